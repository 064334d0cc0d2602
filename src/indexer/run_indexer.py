"""Run one indexer process until SIGTERM: it receives HBase's replication and writes Solr."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import structlog

from cdc.lifetime.proc_signals import stop_event
from cdc.model.errors import Retriable, Skippable, TailorbirdError, UsageError
from cdc.model.naming import hbase_table, peer
from cdc.openlineage.http_runs import LineageRun, lineage_run
from cdc.otel.http_metrics import send_metrics
from cdc.otel.http_spans import tracer_of
from cdc.process.file_running import announced
from cdc.process.kafka_grants import granted
from cdc.process.verdict import HealthTracker
from cdc.topology.topology import HBase, Index, Topology
from indexer.engine.engine import SearchCollection, open_collection
from indexer.engine.http_tracing import IndexTraces
from indexer.foreign.foreign import ForeignProcessor, NoProgress, ProgressStore
from indexer.foreign.hbase_foreign import ForeignReader
from indexer.foreign.writer import ConditionalCollection
from indexer.index.http_metrics import IndexMetrics
from indexer.index.kafka_dead_letters import KafkaDeadLetters
from indexer.index.lineage import indexed_datasets
from indexer.index.processor import Collection, DeadLetters, Processor, Tally
from indexer.peer.peer import Edits
from indexer.peer.tcp_allowed import AllowedClients
from indexer.peer.tcp_peer import PeerServer
from indexer.peer.zk_registration import Client, Registration, connect, region_servers
from indexer.rebuild.targets import Fanout, Targets, TargetStore, checked
from indexer.rebuild.zk_state import Generations, StoredProgress, StoredTargets
from indexer.table.hbase_layouts import StoredLayouts

# A failing batch is held this long before it goes back to HBase, which sends it again at once. With the last post to
# Solr (at most 15 s) it stays below the 60 s after which HBase considers the indexer dead.
_HOLD_SECONDS = 30.0
_LONGEST_PAUSE = 1.0
# One key for all batches: HBase sends a returned batch on any connection, and one success ends the waiting.
_BATCHES = "batches"
_PURGE_CHECK_SECONDS = 5.0
_LONGEST_PURGE_PAUSE = 600.0

log = structlog.get_logger()
AnyProcessor = Processor | ForeignProcessor


class AnyCollection(Collection, ConditionalCollection, Protocol):
    """A target for joined tables and external tables alike."""


def choose_index(topology: Topology, name: str | None) -> Index:
    """Return the index called `name`, or the topology's only index if `name` is None. Raises UsageError otherwise."""
    known = ", ".join(topology.indexes) or "none: add `indexes:` to the topology"
    if name is None:
        if len(topology.indexes) != 1:
            raise UsageError(f"{topology.file}: which index? It has {known}", "name one: --index NAME")
        return next(iter(topology.indexes.values()))
    if name not in topology.indexes:
        raise UsageError(f"{topology.file}: no index {name}", f"it has {known}")
    return topology.indexes[name]


def holding(
    process: Callable[[Edits, float], Tally], stopped: threading.Event, health: HealthTracker
) -> Callable[[Edits], Tally]:
    """Return a function that calls `process` again while a server is unavailable, for at most `_HOLD_SECONDS`.

    It returns the result of the first success, or raises the last Retriable. `health` records the failures."""

    def handle(edits: Edits) -> Tally:
        give_up = time.monotonic() + _HOLD_SECONDS
        pause = 0.1
        while True:
            try:
                tally = process(edits, give_up)
                health.resumes(_BATCHES)
                return tally
            except Retriable as error:
                health.waits(_BATCHES, str(error), time.monotonic())
                if stopped.is_set() or time.monotonic() + pause > give_up:
                    raise
                log.warning("waiting", reason=str(error))
            stopped.wait(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    return handle


def run_index(topology: Topology, index_name: str | None, *, metrics_port: int = 0) -> None:
    """Run the indexer of one index until SIGTERM or SIGINT. Raises TailorbirdError if it cannot start or must not
    continue.

    A batch of edits is acknowledged when Solr or the dead-letter topic has stored every row of it. The process
    stores nothing itself: HBase sends unacknowledged batches to the next process."""
    index = choose_index(topology, index_name)
    _quiet_libraries()
    granted(topology, "indexer")
    stopped = stop_event()
    with announced(topology.name, f"index {index.name}", metrics_port):
        metrics = IndexMetrics(index.name, metrics_port)
        send_metrics(topology.name, f"index {index.name}", metrics.registry)
        with lineage_run(
            topology.name, "INDEX", index.name, lambda: indexed_datasets(topology, index, None), metrics.registry
        ) as lineage:
            _index(topology, index, metrics, stopped, lineage)


def _index(
    topology: Topology, index: Index, metrics: IndexMetrics, stopped: threading.Event, lineage: LineageRun | None
) -> None:
    failures: list[TailorbirdError] = []

    def failed(error: TailorbirdError) -> None:
        failures.append(error)
        stopped.set()

    client = connect(topology.hbase.zookeeper)
    try:
        name = peer(topology.name, index.name, Generations(client).current(topology.name, index.name))
        indexing = Indexing(topology, index, client, name)
        indexing.warn_without_collections()
        _serve(topology, index, name, client, indexing, metrics, stopped, failed, lineage)
        indexing.close()
    finally:
        client.stop()
        client.close()
    if failures:
        raise failures[0]
    log.info("stopped", index=index.name)


def _serve(
    topology: Topology,
    index: Index,
    name: str,
    client: Client,
    indexing: Indexing,
    metrics: IndexMetrics,
    stopped: threading.Event,
    failed: Callable[[TailorbirdError], None],
    lineage: LineageRun | None,
) -> None:
    """Listen for region servers, register in ZooKeeper, and process batches until `stopped` is set."""
    process = holding(indexing.process, stopped, metrics.health)
    traces = IndexTraces(index, tracer_of(topology.name, f"index {index.name}"), indexing.barriers)

    def handle(edits: Edits) -> None:
        began_ns = time.time_ns()
        try:
            tally = process(edits)
        except Retriable:
            metrics.sent_back()
            raise
        metrics.handled(tally, time.time() - edits.newest / 1000)
        traces.posted(began_ns, tally.barriers)
        if tally.dead:
            log.warning("dead_letters", count=tally.dead)

    clients = AllowedClients(lambda: allowed_hosts(topology.hbase, client))
    server = PeerServer(handle, failed, address=topology.hbase.bind, clients=clients)
    try:
        registration = Registration(
            client,
            name,
            host=topology.hbase.advertised_host,
            port=server.port,
            start_code=time.time_ns() // 1_000_000,
        )
        log.info("indexing", index=index.name, collection=index.collection, peer=name, port=server.port)
        metrics.health.ready()
        while not stopped.wait(_PURGE_CHECK_SECONDS):
            indexing.purge()
            if lineage is not None:
                indexing.describe(lineage)
        registration.close()
    finally:
        server.close(wait=True)


def allowed_hosts(hbase: HBase, client: Client) -> list[str]:
    """Return the hosts that may send edits: those of the topology. By default, they are HBase's servers as
    ZooKeeper lists them, and the configured hosts of ZooKeeper and Thrift."""
    if hbase.region_servers:
        return list(hbase.region_servers)
    configured = [address.rpartition(":")[0].strip("[]") for address in (hbase.zookeeper, hbase.thrift)]
    return [*configured, *region_servers(client)]


class Indexing:
    """Indexes edits into the current collections of one index; threads may share it."""

    def __init__(self, topology: Topology, index: Index, client: Client, name: str) -> None:
        self._topology, self._index, self._client, self._peer = topology, index, client, name
        self._targets: TargetStore = StoredTargets(client, name, collection=index.collection)
        self._layouts = StoredLayouts(topology.hbase.thrift, topology=topology.name, table=index.table)
        self._dead_letters = KafkaDeadLetters(
            topology.log.brokers,
            topology=topology.name,
            index=index.name,
            replication_factor=topology.log.replication_factor,
        )
        self._collections: dict[str, SearchCollection] = {}
        self._processors: dict[int, AnyProcessor] = {}
        self._lock = threading.Lock()
        self._purged = time.monotonic()

    def process(self, edits: Edits, give_up: float) -> Tally:
        """Call `Processor.process` for the current collections. Raises Retriable if they changed in the meantime."""
        targets = checked(self._targets)
        tally = self._processor(targets).process(edits, give_up=give_up)
        if checked(self._targets).epoch != targets.epoch:
            raise Retriable("the index's collections changed during the batch")
        return tally

    def purge(self) -> None:
        """Periodically remove the tombstones of rows that were deleted long ago. A failure is logged and retried."""
        if time.monotonic() - self._purged < min(_LONGEST_PURGE_PAUSE, self._index.stub_retention / 4):
            return
        self._purged = time.monotonic()
        try:
            targets = checked(self._targets)
            if len(targets.collections) > 1:
                return  # a rebuild's scan may still restore a row that a tombstone fences
            purged = self._collection(targets.collections[0]).purge_tombstones(
                before_ms=time.time_ns() // 1_000_000 - round(self._index.stub_retention * 1000),
                buckets=self._buckets,
            )
            log.info("tombstones_purged", count=purged)
        except Retriable as error:
            log.warning("tombstones_not_purged", reason=str(error))

    def barriers(self) -> list[dict[str, Any]]:
        """Return the barriers that queries of the index see. Raises Retriable while a server is unavailable."""
        return self._collection(checked(self._targets).collections[0]).barriers()

    def describe(self, lineage: LineageRun) -> None:
        """Send the columns of the index to a receiver of lineage, if they are known and have changed."""
        try:
            layout = self._layouts.newest_read() or (None if self._is_foreign else self._layouts.newest())
        except (Retriable, Skippable):
            return  # it looks again; batches report the error
        lineage.reads_and_writes(lambda: indexed_datasets(self._topology, self._index, layout))

    def warn_without_collections(self) -> None:
        """Log a warning if a target collection is missing, because nothing can be indexed then."""
        try:
            for name in self._targets.read().collections:
                if not self._collection(name).exists():
                    log.warning("collection_missing", collection=name, remedy="tailorbird apply TOPOLOGY")
        except Retriable as error:
            log.warning("waiting", reason=str(error))

    @property
    def _is_foreign(self) -> bool:
        return self._index.table in self._topology.foreign_tables

    @property
    def _buckets(self) -> int:
        table = self._topology.tables.get(self._index.table)
        return table.salt_buckets if table else 0

    def close(self) -> None:
        """Wait for running posts, and close the connections."""
        for collection in self._collections.values():
            collection.close()

    def _collection(self, name: str) -> SearchCollection:
        with self._lock:
            if name not in self._collections:
                self._collections[name] = open_collection(self._topology, self._index, name)
            return self._collections[name]

    def _processor(self, targets: Targets) -> AnyProcessor:
        with self._lock:
            if targets.epoch in self._processors:
                return self._processors[targets.epoch]
            # The memory of another epoch's processor and collections (unfinished batches, types of fields) refers to
            # collections that had these names before. It ends with the batches that still use them.
            self._processors, self._collections = {}, {}
        collections = [self._collection(name) for name in targets.collections]
        progress = StoredProgress(self._client, self._peer, epoch=targets.epoch)
        processor = build_processor(
            self._topology, self._index, self._layouts, collections, self._dead_letters, progress
        )
        with self._lock:
            return self._processors.setdefault(targets.epoch, processor)


def build_processor(
    topology: Topology,
    index: Index,
    layouts: StoredLayouts,
    collections: Sequence[AnyCollection],
    dead_letters: DeadLetters,
    progress: ProgressStore | None = None,
) -> AnyProcessor:
    """Return a processor that indexes a table's edits, or single rows if `progress` is None, into the collections."""

    def clock_ms() -> int:
        return time.time_ns() // 1_000_000

    foreign = topology.foreign_tables.get(index.table)
    if foreign is not None:
        return ForeignProcessor(
            foreign,
            search=index.search,
            rows=ForeignReader(topology.hbase.thrift, foreign),
            collections=collections,
            dead_letters=dead_letters,
            progress=progress or NoProgress(),
            clock_ms=clock_ms,
            monotonic=time.monotonic,
            tolerance_ms=round(1000 * topology.hbase.clock_tolerance),
        )
    table = topology.tables[index.table]
    return Processor(
        table=hbase_table(topology.name, table.name),
        family=table.family,
        search=index.search,
        layouts=layouts,
        collection=collections[0] if len(collections) == 1 else Fanout(collections),
        dead_letters=dead_letters,
        clock_ms=clock_ms,
        monotonic=time.monotonic,
        tolerance_ms=round(1000 * topology.hbase.clock_tolerance),
    )


def _quiet_libraries() -> None:
    # they log stack traces of errors that are handled and reported here
    for name in ("pysolr", "urllib3", "kazoo", "thriftpy2", "happybase"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
