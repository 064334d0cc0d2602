"""`tailorbird ledger`: the process that keeps a topology's ledger up to date. Also opens the ledger for `verify`."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import structlog
from prometheus_client import Counter, Gauge

from cdc.lifetime.garbage import collect_rarely
from cdc.lifetime.proc_signals import stop_event
from cdc.model.errors import Retriable, UsageError
from cdc.model.filters import TableRule
from cdc.model.schema import TableId, TableSchema
from cdc.otel.http_metrics import send_metrics
from cdc.process.file_private import full_disk_named
from cdc.process.file_running import announced
from cdc.process.file_topology import home, load_topology
from cdc.process.http_operation import serve_operation
from cdc.process.proc_log_lines import log_lines
from cdc.process.verdict import HealthTracker
from cdc.topology.topology import Topology
from ingest.ledger.file_folder import LedgerFolder
from ingest.ledger.kafka_ledger import KafkaLedger
from ingest.ledger.ledger import TopologyLedger
from ingest.ledger.sql_rows import SqlRows

CHANGES = Counter("tailorbird_ledger_records_total", "Records of change topics that the ledger has folded")
BROKEN = Gauge(
    "tailorbird_ledger_broken_changes",
    "Changes that are marked as exact, although `before` is not the last image of the row",
    ["source", "table"],
)
AT_END = Gauge("tailorbird_ledger_at_end_timestamp_seconds", "When the ledger had last read all that was committed")
_REPORT = 10.0  # seconds between two lines of progress
_LONGEST_WAIT = 15.0


@dataclass(slots=True)
class Ledger:
    """An open ledger and its reader of Kafka. `own`: this process writes the ledger."""

    topology_ledger: TopologyLedger
    reader: KafkaLedger
    own: bool

    def poll(self, seconds: float) -> int:
        """Wait up to `seconds` for committed records and apply them. Returns their number."""
        return self.reader.poll(seconds, time.time_ns() // 1_000_000)


@contextmanager
def ledger_of(topology: Topology, *, prompt: bool = False) -> Iterator[Ledger]:
    """Open a topology's ledger for the block. This process writes it, unless another process does; then it only reads.

    `prompt`: poll Kafka at shorter intervals, because a user waits. Raises Retriable while Kafka is unavailable, and if
    nothing was captured yet.
    """
    folder = LedgerFolder(home(), topology.name)
    own = folder.take()

    def wanted(table: TableId) -> bool:
        source = topology.sources.get(table.source)
        return source is not None and source.poll is None and source.captures(table)

    def masked(schema: TableSchema) -> tuple[str, ...]:
        rule = topology.sources[schema.table_id.source].rule_of(schema.table_id) or TableRule()
        return tuple(column.name for column in schema.columns if rule.mask_of(column.name) is not None)

    stores: list[SqlRows] = []

    def open_store(topic: str, partition: int, shape: str) -> SqlRows:
        store = SqlRows(folder.file(topic, partition), shape, writes=own)
        stores.append(store)
        if store.again:
            why = "its topic was recreated, or its digests have other columns, or are from another version"
            structlog.get_logger().info("reads again", topic=topic, partition=partition, why=why)
        return store

    topology_ledger = TopologyLedger(open_store, masked, topology.routing, topology.log.min_compaction_lag)
    reader = KafkaLedger(topology, topology_ledger, wanted, folding=own, prompt=prompt)
    try:
        reader.begin()
        yield Ledger(topology_ledger, reader, own)
    finally:
        reader.close()
        for store in stores:
            store.close()
        folder.release()


def run(file: str, *, until_end: bool = False, metrics_port: int = 0) -> dict[str, int]:
    """Update the ledger until SIGTERM or SIGINT, or with `until_end` until all committed records are read.

    Returns the number of rows by table. Waits while Kafka is unavailable, or the disk is full. Raises UsageError if
    another process writes this ledger.
    """
    topology = load_topology(file)
    log_lines("logfmt")
    collect_rarely()
    stop = stop_event()
    log, pause, standing = structlog.get_logger().bind(topology=topology.name), 0.0, HealthTracker()
    send_metrics(topology.name, "ledger")
    with announced(topology.name, "ledger", metrics_port):
        if metrics_port:
            serve_operation(metrics_port, lambda: (standing.judge(time.monotonic()), {}))
        while not stop.is_set():
            try:
                with full_disk_named(home()):
                    return _keep(topology, stop, log, standing, until_end=until_end)
            except Retriable as error:
                standing.waits("kafka", str(error), time.monotonic())
                pause = min(max(2 * pause, error.retry_after), _LONGEST_WAIT)
                log.warning("waiting", reason=str(error), seconds=pause)
                stop.wait(pause)
    return {}


def _keep(
    topology: Topology, stop: threading.Event, log: structlog.BoundLogger, standing: HealthTracker, *, until_end: bool
) -> dict[str, int]:
    with ledger_of(topology) as ledger:
        if not ledger.own:
            raise UsageError(f"another process writes the ledger of {topology.name}", "run only one; `verify` reads it")
        log.info(
            "began",
            tables=len(ledger.topology_ledger.tables),
            left_out=sorted(map(str, ledger.topology_ledger.without)),
        )
        began, processor = time.monotonic(), time.process_time()
        last_line = began
        count = before = 0
        reported = _report_broken(ledger.topology_ledger, {}, log)
        while not stop.is_set():
            found = ledger.poll(0.2)
            standing.ready()
            standing.resumes("kafka")
            count += found
            CHANGES.inc(found)
            now = time.monotonic()
            if ledger.reader.at_end:
                AT_END.set_to_current_time()
            if until_end and ledger.reader.caught_up:
                break
            if now - last_line >= _REPORT and count > before:
                log.info("kept", records=count, a_second=round((count - before) / (now - last_line)))
                last_line, before = now, count
                reported = _report_broken(ledger.topology_ledger, reported, log)
        _report_broken(ledger.topology_ledger, reported, log)
        seconds = time.monotonic() - began
        processor = time.process_time() - processor
        spent = {"a_second": seconds, "a_processor_second": processor}
        paces = {name: round(count / max(one, 0.001)) for name, one in spent.items()}
        log.info("ended", records=count, seconds=round(seconds, 1), **paces)
        return {
            str(table): partition_ledger.total().count
            for table, partition_ledger in ledger.topology_ledger.tables.items()
        }


def _report_broken(
    topology_ledger: TopologyLedger, reported: Mapping[TableId, int], log: structlog.BoundLogger
) -> dict[TableId, int]:
    """Set the metric of changes that are wrongly marked as exact. Logs an error for each table that has more of them
    than `reported`, and returns their numbers by table."""
    counts = dict[TableId, int]()
    for table, partition_ledger in topology_ledger.tables.items():
        broken = partition_ledger.broken()
        if broken is not None:
            counts[table], partition, offset = broken
            if counts[table] > reported.get(table, 0):
                why = "changes are marked as exact, but `before` is not the last image of the row: groups may be wrong"
                topic = partition_ledger.topic
                log.error(why, table=str(table), count=broken[0], topic=topic, partition=partition, offset=offset)
    for table in {**reported, **counts}:
        BROKEN.labels(table.source, table.name).set(counts.get(table, 0))
    return counts
