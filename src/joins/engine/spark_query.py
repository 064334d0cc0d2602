"""Run the streaming query of a join, batch by batch: from Kafka through the plan's steps to the sink.

A batch has four stages in this order. A timestamp is bound to it. All partitions write its rows in exactly one Spark
action, because a second action would run the stateful steps twice. Barriers are written. Spark commits. After a
crash Spark repeats the batch from the same offsets and state with the same timestamp, so it writes identical cells."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import orjson
import structlog
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from cdc.model.errors import Retriable, TailorbirdError
from cdc.stored.layout import Layout
from joins.engine.file_checkpoint import QueryCheckpoint, QueryRecord, clock_of
from joins.engine.http_metrics import JoinMetrics
from joins.engine.http_tracing import BatchTraces
from joins.engine.proc_worker import measured
from joins.engine.progress import Operator
from joins.engine.spark_by_time import set_up_by_time
from joins.engine.spark_kernel import finished, kernel_flow, kernel_of
from joins.engine.spark_state import stores
from joins.kernel.program import SafeOffsets, program_of
from joins.query.plan import Plan
from joins.runtime.cuts import Cuts, Lag, Offsets, Positions, covers, merged
from joins.runtime.sink import Report
from joins.stores.kafka_cut_positions import PositionsLog
from joins.stores.proc_retry import patiently, report_waiting
from joins.stores.sink_interfaces import Clock, Cut, Run, Target

_ASK_STATE_EVERY_MS = 10_000
_PAUSE = 0.2
_LATE = 3  # a table whose oldest missing change is older than so many intervals does not wait
TICK = "1 second"  # the time between batches of a query with conditions on the time, which also run without changes

log = structlog.get_logger()
T = TypeVar("T")
_REPORT = "report binary"
PACED_KAFKA = "tailorbird.kernel.PacedKafka"


def start_query(
    spark: SparkSession,
    plan: Plan,
    settled: SafeOffsets,
    *,
    kafka: Mapping[str, str],
    checkpoint: str,
    ends: SafeOffsets,
    sink: BatchSink,
    max_changes: int,
    tombstone_ms: int,
) -> StreamingQuery:
    """Start the query. It resumes from its checkpoint, or begins at the beginning of the log.

    However large the lag, a batch has at most about `max_changes` changes, and fewer if they take longer than some
    seconds (`Pace.java`). `kafka`: properties of Java's clients of the brokers, without secrets. `ends` and
    `tombstone_ms` are as in `program_of`.
    """
    parts = program_of(
        plan,
        settled,
        kafka=kafka,
        ends=ends,
        truncation_points=sink.record.truncation_points,
        exact_from=sink.record.exact_from,
        tombstone_ms=tombstone_ms,
        checkpoint=checkpoint,
    )
    sources = sum(len(part.readers) for part in parts)
    set_up_by_time(spark, plan)
    name = f"{plan.sink.topology}.{plan.sink.table}"
    sink.pace = _pace(spark, name, max_changes)

    def read(topics: tuple[str, ...]) -> DataFrame:
        return (
            spark.readStream.format(PACED_KAFKA)
            .options(**{f"kafka.{name}": value for name, value in kafka.items()})
            .option("kafka.isolation.level", "read_committed")
            # a range of committed records ends with a commit marker, after which the consumer waits for more records:
            # Kafka's default of 500 ms would be half of a small batch's time
            .option("kafka.fetch.max.wait.ms", "10")
            .option("subscribe", ",".join(topics))
            .option("startingOffsets", "earliest")
            .option("failOnDataLoss", "true")
            .option("pace", name)
            .option("share", sources)
            .load()
        )

    rows = finished(kernel_flow(read, parts, plan).select("k", "m"), plan, plan.last)
    writer = rows.writeStream.outputMode("append").queryName(name)
    if plan.by_clock:
        writer = writer.trigger(processingTime=TICK)
    return writer.option("checkpointLocation", checkpoint).foreachBatch(sink.write).start()


def _pace(spark: SparkSession, name: str, max_changes: int) -> Any:
    kernel: Any = kernel_of(spark)
    return kernel.Pace.of(name, max_changes)


def reports(query: StreamingQuery, after: int) -> list[Mapping[str, Any]]:
    """Return Spark's reports of the batches after `after` that had changes, oldest first, as far as Spark keeps
    them.

    pyspark's own property would call the JVM about a hundred times per report."""
    found: Any = query._jsq.recentProgress()
    texts = [one.json() for one in found if one.batchId() > after and one.numInputRows()]
    return [json.loads(text) for text in texts]


# in an error of Spark: the table whose exact phase has ended (`PlanSource.name`), and the number of the phase
PHASE_ENDED = re.compile(r"tailorbird\.kernel\.PhaseEnded: (\S+) (\d+)")


class BatchSink:
    """Writes batches. Spark calls it in the driver, one batch at a time.

    - `failure`: the error that ended the query.
    - `state`: the size of the stateful operators, updated from time to time.
    - `raised`: a batch has set truncation points that the running query does not know, so the query must be
      restarted.
    - `void`: the topics were compacted while they were read, or what was added up is not reliable (`PhaseEndedError`).
      The run must begin again, with the new `exact_from` (`QueryRecord`).
    - `pace`: Java's `Pace`, which learns the time and bytes of each batch; None before the query starts.
    - `thinned`: by topic, the number of records that have disappeared since the run began."""

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
        traces: BatchTraces,
        stopped: Callable[[], bool],
    ) -> None:
        self.plan, self.traces = plan, traces
        self.layout, self.record, self.checkpoint = layout, record, checkpoint
        self.positions, self.clock_ms = positions, clock_ms
        self.metrics, self.stopped, self.thinned = metrics, stopped, thinned
        self.failure: TailorbirdError | None = None
        self.raised = self.void = False
        self.pace: Any = None
        self._bytes = 0  # of the last batch
        self.exact_from: Mapping[str, int] = record.exact_from
        self.state: tuple[Operator, ...] = ()
        self._state_at = 0
        self.total = Report()
        metrics.incomplete(record.refused.total)
        committed = checkpoint.last_committed()
        run = Run(id=record.id, first_timestamp=record.first_timestamp, committed=committed, complete=record.complete)
        self.sink = self._patiently(lambda: target.sink(run, clock_ms))
        # while a run is incomplete, readers still use the barriers of a former one
        self._reported: Positions = self._patiently(target.reached) if record.complete else {}
        self._cuts = Cuts(self._reported)
        self._batch = committed
        self._levels: Sequence[Offsets] = checkpoint.levels(committed) if committed >= 0 else ()
        self._watermark = self._watermark_of(committed)
        self._clock = clock_of(checkpoint.spark, committed) if plan.by_clock and committed >= 0 else None
        # Spark calls `write` from a thread of its own, `follow_positions` comes from the main thread
        self._busy, self._counting = threading.Lock(), threading.Lock()

    @property
    def ends(self) -> bool:
        """Return whether the running query must end, so that another can start."""
        return self.raised or self.void

    def begin(self) -> None:
        """Reset the state for a new query, which knows all truncation points."""
        self.raised, self.failure = False, None

    def write(self, rows: DataFrame, batch: int) -> None:
        """Write the rows of one batch, then its barriers.

        Raises Retriable if the query must restart first, to learn the truncation points of the batch before.
        """
        began = time.monotonic()
        self.metrics.health.begun(began)
        try:
            with self._busy:
                if self.ends:
                    raise Retriable("the query needs the last batch's truncation points", "it restarts by itself")
                self._write(rows, batch)
        except TailorbirdError as error:
            self.failure = error
            raise
        finally:
            self.metrics.health.ended()
        if self.pace is not None:
            self.pace.took(round(1000 * (time.monotonic() - began)), self._bytes)
        while self._early(time.monotonic() - began):
            time.sleep(_PAUSE)

    def _early(self, passed: float) -> bool:
        """Return whether the next batch should wait, because each is a commit that costs more than its rows."""
        if passed >= self.sink.interval or not self.record.complete or self.ends or self.stopped():
            return False
        return all(lag.seconds < _LATE * self.sink.interval for lag in self.lags().values())

    def _write(self, rows: DataFrame, batch: int) -> None:
        clock = clock_of(self.checkpoint.spark, batch) if self.plan.by_clock else None
        self._patiently(lambda: self.sink.begin(batch))
        if self.sink.by_row:
            rows = rows.repartition("k").sortWithinPartitions("k")
        self.traces.begun(batch)
        writer = self.sink.writer(self.plan, self.layout, batch)
        write = measured(writer)
        report = Report()
        try:
            reports = rows.mapInArrow(write, _REPORT).collect()
        except Exception as error:
            self._look_for_phase(error)
            raise
        for row in reports:
            report.merge(Report(**orjson.loads(row["report"])))
        self.traces.written(report)
        self.keep(batch, report)
        self._finish(batch, clock)
        self.total.merge(report)
        self._bytes = report.bytes
        self.metrics.written(batch, report)
        if self.clock_ms() - self._state_at > _ASK_STATE_EVERY_MS:
            self._state_at, self.state = self.clock_ms(), stores(rows.sparkSession)

    def _look_for_phase(self, error: Exception) -> None:
        """Raise Retriable, with `void` set, if the batch ended because an exact phase has ended. It wrote nothing."""
        found = PHASE_ENDED.search(str(error))
        if found is None:
            return
        name, number = found[1], int(found[2])
        self.exact_from = {**self.exact_from, name: number + 1}
        self.void = True
        # phases are counted from 1; 0: a record does not say where its row was, or cannot be read
        happened = "an exact phase has ended" if number else "a row may have moved without a record"
        log.warning(happened, table=self.layout.table, topic=name, remedy="starts over")
        raise Retriable(f"{happened}: {name}", "the run starts over by itself") from error

    def keep(self, batch: int, report: Report) -> None:
        """Store the truncation points and the number of refused records of a batch, before Spark commits it."""
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
            self.metrics.incomplete(record.refused.total)

    def settled(self, records: int) -> None:
        """Reduce the number of open dead letters by `records`, because later records of their keys were accepted."""
        if records:
            with self._busy:
                refused = self.record.refused
                self.record = replace(self.record, refused=replace(refused, before=refused.before - records))
                self.checkpoint.store(self.record)
                self.metrics.incomplete(self.record.refused.total)

    def _finish(self, batch: int, clock: int | None) -> None:
        """Write the barriers of a batch. Before the run is complete, they would promise too much and are not
        written."""
        self._levels, self._batch, self._clock = self.checkpoint.levels(batch), batch, clock
        self._watermark = self._watermark_of(batch)
        if self._watermark is not None:
            self.metrics.watermark(self._watermark)
        if not self.record.complete:
            if not covers(merged(self._levels), self.record.target):
                self._patiently(lambda: self.sink.finish(None))
                return
            self._prove_whole()
            swept = self._patiently(self.sink.sweep)
            log.info("first complete cut", table=self.layout.table, batch=batch, rows_of_former_runs_deleted=swept)
            self.record = replace(self.record, complete=True, whole_ms=self.clock_ms())
            self.checkpoint.store(self.record)
        cut = self._cut()
        self._patiently(lambda: self.sink.finish(cut))
        self.traces.reported(self._reported, cut.positions)
        self._reported = cut.positions
        self.metrics.cut(cut.positions)

    def _prove_whole(self) -> None:
        """Check that compaction has removed nothing since the run began. Otherwise raise Retriable and publish
        nothing."""
        gone = self._patiently(self.thinned)
        if self.stopped():  # then the count may be incomplete
            raise Retriable("stopped while the log was counted", "the next start counts again")
        if gone:
            self.void = True
            log.warning("compacted while it was read", table=self.layout.table, records_gone=gone, remedy="starts over")
            raise Retriable("the log was compacted while it was read", "the run starts over by itself")

    def follow_positions(self) -> None:
        """Read new source positions, and write barriers again if the last batch already covers a newer position.

        A transaction's rows and its position become readable one partition after the other. So a batch may have rows
        whose position is not readable yet, and without new data no later batch would publish it. The main thread
        calls this repeatedly while batches run, because querying Kafka takes a tenth of the time of a small batch."""
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
                self.traces.reported(self._reported, cut.positions)
                self._reported = cut.positions
        finally:
            self._busy.release()

    def lags(self) -> dict[str, Lag]:
        """Return the lag of the table for each source."""
        with self._counting:
            return self._cuts.lags(self.clock_ms())

    def _cut(self) -> Cut:
        """Return what the table contains after the last finished batch, by the positions known now."""
        with self._counting:
            positions = self._cuts.cover(*self._levels)
        return Cut(
            batch=self._batch,
            positions=positions,
            ends=self._levels,
            incomplete=self.record.refused.total,
            watermark=self._watermark,
            clock=self._clock,
        )

    def _watermark_of(self, batch: int) -> int | None:
        """Return the watermark (ms) of a batch. None before the first batch, and without a join by time."""
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
