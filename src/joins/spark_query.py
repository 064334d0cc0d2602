"""The streaming query: Kafka's records through the plan's steps into HBase, a batch at a time.

A batch is done in this order, each step only after the one before: its stamp is bound to it; its rows are written, by
all partitions, in exactly one Spark action (a second action would run the stateful steps twice); barriers are put;
Spark commits. A crash anywhere replays the batch from the same offsets and the same state under the same stamp, which
writes identical cells.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, replace
from functools import partial
from typing import TypeVar

import orjson
import pyarrow as pa
import structlog
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from cdc.cells import RowCodec
from cdc.errors import Fatal, Retriable, TailorbirdError
from cdc.layout import Layout
from cdc.naming import dead_letter_topic, hbase_table
from joins.cuts import Cuts, Offsets, Positions, covers
from joins.file_checkpoint import Checkpoint, QueryRecord
from joins.hbase_table import HBase, JoinedTable, patiently, write_rows
from joins.http_metrics import Metrics
from joins.kafka_log import send_dead_letters
from joins.kafka_positions import PositionsLog
from joins.plan import Plan
from joins.records import load, record_of
from joins.route import Settled
from joins.sink import Report, barriers, dead_letter, next_stamp, writes_of
from joins.spark_steps import dataflow

MAX_CHANGES_PER_BATCH = 10_000
# The fault that tests inject: the driver dies by SIGKILL right after the HBase writes of the first batch ≥ this number.
CRASH_AFTER_WRITE = "TAILORBIRD_CRASH_AFTER_WRITE"
_STAMPS_KEPT = 200

log = structlog.get_logger()
Clock = Callable[[], int]
T = TypeVar("T")
_REPORT = "report binary"
_connections: dict[str, HBase] = {}  # of this Python worker, kept from batch to batch


def start_query(
    spark: SparkSession,
    plan: Plan,
    settled: Settled,
    *,
    servers: str,
    partitions: int,
    checkpoint: str,
    sink: BatchSink,
) -> StreamingQuery:
    """Start the query; it goes on where its checkpoint ends, or at the log's beginning."""
    changes = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("kafka.isolation.level", "read_committed")
        # a range of committed records ends with a commit marker, behind which the consumer waits for what is not there:
        # with Kafka's 500 ms that was half of a small batch
        .option("kafka.fetch.max.wait.ms", "10")
        .option("subscribe", ",".join(plan.topics))
        .option("startingOffsets", "earliest")
        .option("failOnDataLoss", "true")
        .option("maxOffsetsPerTrigger", MAX_CHANGES_PER_BATCH)
        .load()
    )
    rows = dataflow(changes, plan, settled, partitions)
    writer = rows.writeStream.outputMode("append").queryName(f"{plan.sink.topology}.{plan.sink.table}")
    return writer.option("checkpointLocation", checkpoint).foreachBatch(sink.write).start()


class BatchSink:
    """Writes batches; called by Spark on the driver, one at a time. `failure` = what ended the query, if we did."""

    def __init__(
        self,
        *,
        table: JoinedTable,
        layout: Layout,
        outputs: tuple[int, ...],
        record: QueryRecord,
        checkpoint: Checkpoint,
        thrift: str,
        servers: str,
        positions: PositionsLog,
        clock_ms: Clock,
        metrics: Metrics,
        stopped: Callable[[], bool],
    ) -> None:
        self.table, self.layout, self.record, self.checkpoint = table, layout, record, checkpoint
        self.outputs = outputs
        self.thrift, self.servers, self.positions, self.clock_ms = thrift, servers, positions, clock_ms
        self.metrics, self.stopped = metrics, stopped
        self.failure: TailorbirdError | None = None
        self.total = Report()
        self._last_stamp = max(record.first_stamp, self._patiently(table.last_stamp))
        # of a run that is not complete yet, the barriers are a former run's
        self._told: Positions = self._patiently(table.reached) if record.complete else {}
        self._cuts = Cuts(self._told)
        self._batch = checkpoint.last_committed()
        self._ends: Offsets = checkpoint.ends(self._batch) if self._batch >= 0 else {}
        # Spark calls `write` from a thread of its own, `follow_positions` comes from the main thread
        self._busy, self._counting = threading.Lock(), threading.Lock()

    def write(self, rows: DataFrame, batch: int) -> None:
        """Write one batch whole, then its barriers."""
        try:
            with self._busy:
                self._write(rows, batch)
        except TailorbirdError as error:
            self.failure = error
            raise

    def _write(self, rows: DataFrame, batch: int) -> None:
        stamp = self._patiently(lambda: self._stamp(batch))
        write = partition_writer(self.layout, self.outputs, batch, stamp, thrift=self.thrift, servers=self.servers)
        report = Report()
        for row in rows.mapInArrow(write, _REPORT).collect():
            report.merge(Report(**orjson.loads(row["report"])))
        if report.halted:
            raise Fatal(report.halted, "the join can not follow it yet: rebuild the table with `--rebuild`")
        self._crash_on_demand(batch)
        self._finish(batch, stamp)
        self.total.merge(report)
        self.metrics.written(batch, report)

    def _stamp(self, batch: int) -> int:
        known = self.table.stamp(self.record.id, batch)
        if known is None:
            known = next_stamp(self.clock_ms(), self._last_stamp)
            self.table.store_stamp(self.record.id, batch, known)
            if batch and batch % _STAMPS_KEPT == 0:
                self.table.forget_stamps(self.record.id, batch - _STAMPS_KEPT)
        self._last_stamp = max(self._last_stamp, known)
        return known

    def _finish(self, batch: int, stamp: int) -> None:
        """Barriers, once the run has seen all that there was when it began: before, they would promise too much."""
        self._ends, self._batch = self.checkpoint.ends(batch), batch
        if not self.record.complete:
            if not covers(self._ends, self.record.target):
                return
            swept = self._patiently(lambda: self.table.sweep(self.record.first_stamp))
            log.info("first complete cut", table=self.table.name, batch=batch, rows_of_former_runs_deleted=swept)
            self.record = replace(self.record, complete=True)
            self.checkpoint.store(self.record)
        self._tell(self._reached(), stamp)

    def follow_positions(self) -> None:
        """Read what capture has committed, and put barriers again if a finished batch covers more than it told.

        Called by the main thread again and again, beside the batches: asking Kafka takes as long as a tenth of a small
        batch. A transaction's rows and its position become readable one partition after the other, so a batch may hold
        the rows while their position is not there to be read. Without news there would be no later batch to tell it.
        """
        for position in self._patiently(lambda: self.positions.read(self._told)):
            with self._counting:
                self._cuts.add(position)
        if not self._busy.acquire(blocking=False):
            return
        try:
            if self._batch < 0 or not self.record.complete:
                return
            positions = self._reached()
            if positions != self._told:
                self._last_stamp = next_stamp(self.clock_ms(), self._last_stamp)
                self._tell(positions, self._last_stamp)
        finally:
            self._busy.release()

    def _reached(self) -> Positions:
        with self._counting:
            return self._cuts.cover(self._ends)

    def _tell(self, positions: Positions, stamp: int) -> None:
        made = barriers(self.table.buckets, self._batch, stamp, positions)
        self._patiently(lambda: self.table.write_barriers(made, stamp))
        self._told = positions

    def _patiently(self, action: Callable[[], T]) -> T:
        return patiently(action, _tell_waiting, self.stopped)

    def _crash_on_demand(self, batch: int) -> None:
        wanted = os.environ.get(CRASH_AFTER_WRITE)
        if wanted is not None and batch >= int(wanted):
            log.warning("dying on demand", batch=batch, demanded_by=CRASH_AFTER_WRITE)
            os.kill(os.getpid(), signal.SIGKILL)


def partition_writer(
    layout: Layout, outputs: tuple[int, ...], batch: int, stamp: int, *, thrift: str, servers: str
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function that each partition runs: records in, one report out, everything written in between."""

    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        hbase = _connections.setdefault(thrift, HBase(thrift))
        codec, report = RowCodec(layout), Report()
        table, family = hbase_table(layout.topology, layout.table), layout.family.encode()
        dead_letters = dead_letter_topic(layout.topology)
        for arrived in batches:
            stored = zip(arrived.column("k").to_pylist(), arrived.column("m").to_pylist(), strict=True)
            writes = writes_of((record_of(load(k, m), outputs) for k, m in stored), codec, batch)
            rows = partial(write_rows, hbase, table, family, writes.deletes, writes.puts, stamp)
            patiently(rows, _tell_waiting, _never)
            if letters := [dead_letter(refused, layout.table, batch) for refused in writes.refused]:
                patiently(partial(send_dead_letters, servers, dead_letters, letters), _tell_waiting, _never)
            report.add(writes)
        yield pa.RecordBatch.from_pydict({"report": pa.array([orjson.dumps(asdict(report))], pa.binary())})

    return write


def _never() -> bool:
    """A task waits as long as it takes: Spark ends its worker when the query stops."""
    return False


def _tell_waiting(error: Retriable, pause: float) -> None:
    log.warning("waiting", reason=error.message, again_in_seconds=round(pause, 1))
