"""The streaming query: Kafka's records through the plan's steps into HBase, a batch at a time.

A batch is done in this order, each step only after the one before: its stamp is bound to it; its rows are written, by
all partitions, in exactly one Spark action (a second action would run the stateful steps twice); barriers are put;
Spark commits. A crash anywhere replays the batch from the same offsets and the same state under the same stamp, which
writes identical cells.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import orjson
import pyarrow as pa
import structlog
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from cdc.model.brokers import Brokers
from cdc.model.errors import Retriable, TailorbirdError
from cdc.stored.layout import Layout
from cdc.topology.topology import Engine
from joins.engine.file_checkpoint import QueryCheckpoint, QueryRecord
from joins.engine.http_metrics import JoinMetrics
from joins.engine.progress import Operator
from joins.engine.spark_by_time import set_up_by_time
from joins.engine.spark_kernel import finished, kernel_flow
from joins.engine.spark_state import stores
from joins.engine.spark_steps import dataflow, readers
from joins.engine.workers.proc_worker import settle
from joins.kernel.program import FragmentProgram, SafeOffsets, program_of
from joins.query.plan import Plan
from joins.steps.cuts import Cuts, Lag, Offsets, Positions, covers, merged
from joins.steps.sink import Report
from joins.stores.kafka_cut_positions import PositionsLog
from joins.stores.proc_retry import patiently, report_waiting
from joins.stores.sink_interfaces import Clock, Cut, Run, Target, Writer

_ASK_STATE_EVERY_MS = 10_000

log = structlog.get_logger()
T = TypeVar("T")
_REPORT = "report binary"


def start_query(
    spark: SparkSession,
    plan: Plan,
    settled: SafeOffsets,
    *,
    servers: Brokers,
    kafka: Mapping[str, str],
    partitions: int,
    checkpoint: str,
    ends: SafeOffsets,
    sink: BatchSink,
    engine: Engine,
    max_changes: int,
    tombstone_ms: int,
) -> StreamingQuery:
    """Start the query; it goes on where its checkpoint ends, or at the log's beginning.

    A batch has at most about `max_changes` changes, however far the log is ahead. `kafka`: the
    properties of Java's clients of `servers`, secrets not among them. `ends` and `tombstone_ms` as in
    `program_of`.
    """
    parts: tuple[FragmentProgram, ...] = ()
    if engine == "jvm":
        truncation_points = sink.record.truncation_points
        parts = program_of(
            plan,
            settled,
            kafka=kafka,
            ends=ends,
            truncation_points=truncation_points,
            tombstone_ms=tombstone_ms,
            checkpoint=checkpoint,
        )
    sources = sum(len(part.readers) for part in parts) or readers(plan)
    set_up_by_time(spark, plan)

    def read(topics: tuple[str, ...]) -> DataFrame:
        return (
            spark.readStream.format("kafka")
            .options(**{f"kafka.{name}": value for name, value in kafka.items()})
            .option("kafka.isolation.level", "read_committed")
            # a range of committed records ends with a commit marker, behind which the consumer waits for what is not
            # there: with Kafka's 500 ms that was half of a small batch
            .option("kafka.fetch.max.wait.ms", "10")
            .option("subscribe", ",".join(topics))
            .option("startingOffsets", "earliest")
            .option("failOnDataLoss", "true")
            .option("maxOffsetsPerTrigger", max(1, max_changes // sources))
            .load()
        )

    rows = kernel_flow(read, parts, plan) if parts else dataflow(read, plan, settled, partitions, servers, ends)
    rows = finished(rows.select("k", "m"), plan, plan.last)
    writer = rows.writeStream.outputMode("append").queryName(f"{plan.sink.topology}.{plan.sink.table}")
    return writer.option("checkpointLocation", checkpoint).foreachBatch(sink.write).start()


def reports(query: StreamingQuery, after: int) -> list[Mapping[str, Any]]:
    """Spark's reports of the batches behind number `after` that had changes, oldest first, as far as Spark keeps them.

    pyspark's own property asks the JVM some hundred times per report.
    """
    found: Any = query._jsq.recentProgress()
    texts = [one.json() for one in found if one.batchId() > after and one.numInputRows()]
    return [json.loads(text) for text in texts]


class BatchSink:
    """Writes batches; called by Spark on the driver, one at a time. `failure` = what ended the query, if we did.

    `state`: what the stateful operators hold, asked now and then. `raised`: a batch has set floors that the running
    query does not know: it must be started anew. `void`: the log was compacted while it was read, so that the run must
    begin again. `thinned`: asks how many records of what the run found when it began are gone, by topic.
    """

    def __init__(
        self,
        *,
        plan: Plan,
        target: Target,
        layout: Layout,
        record: QueryRecord,
        checkpoint: QueryCheckpoint,
        positions: PositionsLog,
        thinned: Callable[[], Mapping[str, int]],
        clock_ms: Clock,
        metrics: JoinMetrics,
        stopped: Callable[[], bool],
    ) -> None:
        self.plan = plan
        self.layout, self.record, self.checkpoint = layout, record, checkpoint
        self.positions, self.clock_ms = positions, clock_ms
        self.metrics, self.stopped, self.thinned = metrics, stopped, thinned
        self.failure: TailorbirdError | None = None
        self.raised = self.void = False
        self.state: tuple[Operator, ...] = ()
        self._state_at = 0
        self.total = Report()
        committed = checkpoint.last_committed()
        run = Run(id=record.id, first_timestamp=record.first_timestamp, committed=committed)
        self.sink = self._patiently(lambda: target.sink(run, clock_ms))
        # of a run that is not complete yet, readers were told by a former one
        self._reported: Positions = self._patiently(target.reached) if record.complete else {}
        self._cuts = Cuts(self._reported)
        self._batch = committed
        self._levels: Sequence[Offsets] = checkpoint.levels(committed) if committed >= 0 else ()
        self._watermark = self._watermark_of(committed)
        # Spark calls `write` from a thread of its own, `follow_positions` comes from the main thread
        self._busy, self._counting = threading.Lock(), threading.Lock()

    @property
    def ends(self) -> bool:
        """Whether the running query must end, for another to begin."""
        return self.raised or self.void

    def begin(self) -> None:
        """A query begins that knows all floors."""
        self.raised, self.failure = False, None

    def write(self, rows: DataFrame, batch: int) -> None:
        """Write one batch whole, then its barriers."""
        self.metrics.health.begun(time.monotonic())
        try:
            with self._busy:
                if self.ends:
                    raise Retriable("the query must know the floors of the batch before", "it starts anew by itself")
                self._write(rows, batch)
        except TailorbirdError as error:
            self.failure = error
            raise
        finally:
            self.metrics.health.ended()

    def _write(self, rows: DataFrame, batch: int) -> None:
        self._patiently(lambda: self.sink.begin(batch))
        if self.sink.by_row:
            rows = rows.repartition("k").sortWithinPartitions("k")
        write = settling(self.sink.writer(self.plan, self.layout, batch))
        report = Report()
        for row in rows.mapInArrow(write, _REPORT).collect():
            report.merge(Report(**orjson.loads(row["report"])))
        self.keep(batch, report)
        self._finish(batch)
        self.total.merge(report)
        self.metrics.written(batch, report)
        if self.clock_ms() - self._state_at > _ASK_STATE_EVERY_MS:
            self._state_at, self.state = self.clock_ms(), stores(rows.sparkSession)

    def keep(self, batch: int, report: Report) -> None:
        """Keep what markers have set and what was refused, before the batch is committed that met them."""
        known = {topic: dict(partitions) for topic, partitions in self.record.truncation_points.items()}
        for topic, partition, sequence in report.truncation_points:
            before = known.setdefault(topic, {}).get(partition, 0)
            known[topic][partition] = max(sequence, before)
        self.raised = self.raised or known != self.record.truncation_points
        record = replace(
            self.record,
            truncation_points=known,
            refused=self.record.refused.counted(batch, report.refused - report.settled),
        )
        if record != self.record:
            self.record = record
            self.checkpoint.store(record)

    def settled(self, records: int) -> None:
        """So many dead-letter records wait no longer, since later records of their keys were accepted."""
        if records:
            with self._busy:
                refused = self.record.refused
                self.record = replace(self.record, refused=replace(refused, before=refused.before - records))
                self.checkpoint.store(self.record)

    def _finish(self, batch: int) -> None:
        """Tell readers, once the run has seen all that there was when it began: before, it would promise too much."""
        self._levels, self._batch = self.checkpoint.levels(batch), batch
        self._watermark = self._watermark_of(batch)
        if self._watermark is not None:
            self.metrics.watermark(self._watermark)
        if not self.record.complete:
            if not covers(merged(self._levels), self.record.target):
                return
            self._prove_whole()
            swept = self._patiently(self.sink.sweep)
            log.info("first complete cut", table=self.layout.table, batch=batch, rows_of_former_runs_deleted=swept)
            self.record = replace(self.record, complete=True, whole_ms=self.clock_ms())
            self.checkpoint.store(self.record)
        cut = self._cut()
        self._patiently(lambda: self.sink.finish(cut))
        self._reported = cut.positions
        self.metrics.cut(cut.positions)

    def _prove_whole(self) -> None:
        """Retriable, and nothing is told of the run, if what it read was not the log of one moment."""
        gone = self._patiently(self.thinned)
        if self.stopped():  # then not all may have been counted
            raise Retriable("stopped while the log was counted", "the next start counts again")
        if gone:
            self.void = True
            log.warning(
                "compacted while it was read", table=self.layout.table, records_gone=gone, remedy="begins again"
            )
            raise Retriable("the log was compacted while it was read", "the run begins again by itself")

    def follow_positions(self) -> None:
        """Read what capture has committed, and put barriers again if a finished batch covers more than it told.

        Called by the main thread again and again, beside the batches: asking Kafka takes as long as a tenth of a small
        batch. A transaction's rows and its position become readable one partition after the other, so a batch may hold
        the rows while their position is not there to be read. Without news there would be no later batch to tell it.
        """
        for position in self._patiently(lambda: self.positions.read(self._reported)):
            with self._counting:
                self._cuts.add(position)
        if not self._busy.acquire(blocking=False):
            return
        try:
            if self._batch < 0 or not self.record.complete:
                return
            cut, committed = self._cut(), self.checkpoint.last_committed()
            if cut.positions != self._reported and self._patiently(lambda: self.sink.follow(cut, committed)):
                self._reported = cut.positions
        finally:
            self._busy.release()

    def lags(self) -> dict[str, Lag]:
        """How far the table is behind each source."""
        with self._counting:
            return self._cuts.lags(self.clock_ms())

    def _cut(self) -> Cut:
        """What the table is equal to behind the last finished batch, by the positions that are known now."""
        with self._counting:
            positions = self._cuts.cover(*self._levels)
        return Cut(
            batch=self._batch,
            positions=positions,
            ends=self._levels,
            incomplete=self.record.refused.total,
            watermark=self._watermark,
        )

    def _watermark_of(self, batch: int) -> int | None:
        """What a batch of joins by time waits for no more, in ms; None of other tables, and before the first batch."""
        return self.checkpoint.watermark(batch) if self.plan.by_time and batch >= 0 else None

    def _patiently(self, action: Callable[[], T]) -> T:
        health, thread = self.metrics.health, threading.get_ident()

        def waiting(error: Retriable, pause: float) -> None:
            health.waits(thread, error.message, time.monotonic())
            report_waiting(error, pause)

        try:
            return patiently(action, waiting, self.stopped)
        finally:
            health.resumes(thread)


def settling(write: Writer) -> Writer:
    """`write`, behind which the worker settles."""

    def written(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from write(batches)
        settle()

    return written
