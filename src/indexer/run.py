"""Wires one indexer process: HBase's replication → one Solr collection, until SIGTERM."""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Callable

import structlog

from cdc.errors import Retriable, TailorbirdError, UsageError
from cdc.naming import hbase_table, peer
from cdc.topology import Index, Topology
from indexer.hbase_layouts import StoredLayouts
from indexer.http_metrics import Metrics
from indexer.kafka_dead_letters import DeadLetters
from indexer.peer import Edits
from indexer.processor import Processor, Tally
from indexer.solr_collection import SolrCollection
from indexer.tcp_peer import PeerServer
from indexer.zk_registration import Registration

# HBase resolves this name; its servers and ours are one machine in the local stack.
_HOST = "localhost"
# A batch that does not go through is held this long before it goes back to HBase, which sends it again at once. With
# the last post to Solr (15 s at most) it stays below the 60 s after which HBase takes us for dead.
_HOLD_SECONDS = 30.0
_LONGEST_PAUSE = 1.0

log = structlog.get_logger()


def choose_index(topology: Topology, name: str | None) -> Index:
    """The index that a process serves: the named one, or the only one; UsageError otherwise."""
    known = ", ".join(topology.indexes) or "none: add `indexes:` to the topology"
    if name is None:
        if len(topology.indexes) != 1:
            raise UsageError(f"{topology.file}: which index? It has {known}", "name one: --index NAME")
        return next(iter(topology.indexes.values()))
    if name not in topology.indexes:
        raise UsageError(f"{topology.file}: no index {name}", f"it has {known}")
    return topology.indexes[name]


def holding(process: Callable[[Edits, float], Tally], stopped: threading.Event) -> Callable[[Edits], Tally]:
    """`process`, tried again while a server is away, until it goes through or `_HOLD_SECONDS` have passed."""

    def handle(edits: Edits) -> Tally:
        give_up = time.monotonic() + _HOLD_SECONDS
        pause = 0.1
        while True:
            try:
                return process(edits, give_up)
            except Retriable as error:
                if stopped.is_set() or time.monotonic() + pause > give_up:
                    raise
                log.warning("waiting", reason=str(error))
            stopped.wait(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    return handle


def run_index(topology: Topology, index_name: str | None, *, metrics_port: int = 0) -> None:
    """Index until SIGTERM or SIGINT; raises TailorbirdError when it can not start or must not go on.

    A batch of edits is acknowledged when Solr, or the topic of dead letters, holds every row of it. What is not
    acknowledged when the process ends comes again to the next one: nothing is kept here.
    """
    index = choose_index(topology, index_name)
    table = topology.tables[index.table]
    _quiet_libraries()
    stopped = threading.Event()
    failures: list[TailorbirdError] = []

    def failed(error: TailorbirdError) -> None:
        failures.append(error)
        stopped.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    collection = SolrCollection(topology.solr.url, index.collection, commit_within=index.commit_within)
    _warn_without_collection(collection, index.collection)
    metrics = Metrics(index.name, metrics_port)
    processor = Processor(
        table=hbase_table(topology.name, table.name),
        family=table.family,
        search=index.search,
        layouts=StoredLayouts(topology.hbase.thrift, topology=topology.name, table=table.name),
        collection=collection,
        quarantine=DeadLetters(
            topology.log.bootstrap_servers,
            topology=topology.name,
            index=index.name,
            replication_factor=topology.log.replication_factor,
        ),
        clock_ms=lambda: time.time_ns() // 1_000_000,
        monotonic=time.monotonic,
    )
    process = holding(lambda edits, give_up: processor.process(edits, give_up=give_up), stopped)

    def handle(edits: Edits) -> None:
        try:
            tally = process(edits)
        except Retriable:
            metrics.sent_back()
            raise
        metrics.handled(tally, time.time() - edits.newest / 1000)
        if tally.dead:
            log.warning("dead_letters", count=tally.dead)

    server = PeerServer(handle, failed)
    try:
        name = peer(topology.name, index.name)
        registration = Registration(
            topology.hbase.zookeeper,
            name,
            host=_HOST,
            port=server.port,
            start_code=time.time_ns() // 1_000_000,
        )
        log.info("indexing", index=index.name, collection=index.collection, peer=name, port=server.port)
        stopped.wait()
        registration.close()
    finally:
        server.close(wait=not failures)
    if failures:
        raise failures[0]
    log.info("stopped", index=index.name)


def _warn_without_collection(collection: SolrCollection, name: str) -> None:
    try:
        if not collection.exists():
            log.warning("collection_missing", collection=name, remedy="tailorbird apply TOPOLOGY")
    except Retriable as error:
        log.warning("waiting", reason=str(error))


def _quiet_libraries() -> None:
    # they log stack traces of what we handle and report in our own words
    for name in ("pysolr", "kazoo", "thriftpy2", "happybase"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
