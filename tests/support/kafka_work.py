"""What each role of a topology does in Kafka, by the clients that its processes use; without databases and Spark."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping

from cdc.model.event import Position
from cdc.model.naming import change_topic, dead_letter_topic
from cdc.process.kafka_grants import check_grants, granted
from cdc.topology.roles import KafkaRole
from cdc.topology.topology import Source, Topology
from cdc.topology.versions import Versions
from indexer.index.kafka_dead_letters import KafkaDeadLetters
from indexer.index.processor import DeadLetter
from ingest.changes.kafka_changes import KafkaChanges
from ingest.gateway.commands import FleetOperator
from ingest.gateway.kafka_sources import KafkaSource
from ingest.gateway.run_gateway import _topics, commands_of
from ingest.log.kafka_log import KafkaLog
from ingest.log.kafka_rewind import kept_positions
from ingest.log.kafka_signals import KafkaSignals, send
from ingest.records.capture_interfaces import Checkpoint, OpenLog, Record
from ingest.records.findings import Search
from ingest.run_capture import IntoKafka
from joins.process.targets import target_of
from joins.stores.kafka_compaction import LogWatch
from joins.stores.kafka_cut_positions import PositionsLog
from joins.stores.kafka_log import end_offsets, send_dead_letters
from joins.stores.kafka_open import OpenRecords
from tailorbird.deploy.plan.kafka_versions import read_versions, store_versions
from tailorbird.operate.status.dead_letters import DeadLetterList
from tailorbird.operate.status.kafka_captured import captured_positions
from tailorbird.operate.status.kafka_dead_letters import DeadLetterReader, settle
from tailorbird.verify.checks.kafka_runs import RunsReader, keep
from tailorbird.verify.checks.runs import CheckRun

_AT = Checkpoint(
    position=Position(file="f", pos=1, gtid_set="", row=0, sequence=1), snapshot="done", ts_ms=1
)  # fmt: skip


def _source(topology: Topology) -> Source:
    return next(iter(topology.sources.values()))


def _session(topology: Topology, log: OpenLog | KafkaLog) -> None:
    """Write to all topics of a source, commit, read all back, and search a change topic."""
    name, (table,) = topology.name, _source(topology).tables
    log.recover()
    log.append(Record(change_topic(name, table), b'{"id":1}', None))
    for topic in ("schemas", "history", "quarantine", "deadletters"):
        log.append(Record(f"{name}.{topic}", b'["a test"]', None))
    log.commit(_AT)
    log.kept()
    search = Search(change_topic(name, table), [], [], 10)
    log.search(search)
    deadline = time.monotonic() + 20
    while not search.done:
        if search.failed is not None:
            raise search.failed
        assert time.monotonic() < deadline
        time.sleep(0.005)


def capture(topology: Topology) -> None:
    log, signals = IntoKafka(topology, _source(topology)).open()
    try:
        _session(topology, log)
        signals.read(None)
    finally:
        signals.close()
        log.close()


def gateway(topology: Topology) -> None:
    topic, audit = _topics(topology)
    try:
        commands_of(topology, topic, audit).issue(FleetOperator("test"), f"ci{time.time_ns()}", "view", 1)
        served = KafkaSource(topology, _source(topology))
        log, signals = served.log(), served.signals()
        try:
            _session(topology, log)
            signals.values(None)
        finally:
            signals.close()
            log.close()
    finally:
        topic.close()
        audit.close()


def join(topology: Topology) -> None:
    servers, name = topology.log.brokers, topology.name
    topics = [change_topic(name, table) for table in _source(topology).tables]
    check_grants(topology, "join")
    for table in topology.tables.values():
        if table.sink == "kafka":
            target_of(topology, table).check(topology.file)
    stopped = threading.Event().is_set
    ends = end_offsets(servers, topics, lambda _: None, stopped)
    LogWatch(servers, topics, lag=1000, remedy="").beginning(ends, time.time_ns() // 1_000_000, stopped)
    PositionsLog(servers, name, frozenset(topics)).read({})
    send_dead_letters(servers, dead_letter_topic(name), [(b"k", b"{}")])
    OpenRecords(servers, name, "wide").refresh()


def indexer(topology: Topology) -> None:
    granted(topology, "indexer")
    letters = KafkaDeadLetters(topology.log.brokers, topology=topology.name, index="i", replication_factor=1)
    letters.put([DeadLetter(row=b"r", version=1, reason="a test", cells={})])
    letters.accepted({b"r": 1})


def console(topology: Topology) -> None:
    granted(topology, "console")
    changes = KafkaChanges(topology)
    try:
        changes.begin()
    finally:
        changes.close()
    with DeadLetterReader(topology, DeadLetterList(topology.name)) as letters, RunsReader(topology) as runs:
        letters.read()
        keep(topology, CheckRun(check="c", began_ms=1, ended_ms=1, turn=1, checked=()))
        runs.read()
    captured_positions(topology)


def operator(topology: Topology) -> None:
    granted(topology, "operator")
    send(topology, "shop", {"type": "pause-snapshot"})
    KafkaSignals(topology, "shop").read(None)
    kept_positions(topology, _source(topology))
    settle(topology, [], "by a test")
    store_versions(topology, Versions())
    read_versions(topology)
    # another session of the source, as of `rewind`
    log = KafkaSource(topology, _source(topology)).log()
    try:
        _session(topology, log)
    finally:
        log.close()


WORK: Mapping[KafkaRole, Callable[[Topology], None]] = {
    "capture": capture, "gateway": gateway, "join": join, "indexer": indexer, "console": console, "operator": operator,
}  # fmt: skip
