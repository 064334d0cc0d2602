"""The streaming query: Kafka's records through the plan's steps into HBase, a batch at a time.

A batch is done in this order, each step only after the one before: its stamp is bound to it; its rows are written, by
all partitions, in exactly one Spark action (a second action would run the stateful steps twice); barriers are put;
Spark commits. A crash anywhere replays the batch from the same offsets and the same state under the same stamp, which
writes identical cells.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from itertools import chain
from typing import Any, TypeVar

import orjson
import pyarrow as pa
import structlog
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from cdc.stored.cells import RowCodec
from cdc.stored.layout import Layout
from cdc.topology.topology import Engine
from cdc.words.errors import Retriable, TailorbirdError
from cdc.words.naming import dead_letter_topic, hbase_table
from joins.engine.file_checkpoint import QueryCheckpoint, QueryRecord
from joins.engine.http_metrics import JoinMetrics
from joins.engine.proc_worker import settle
from joins.engine.progress import Operator
from joins.engine.spark_kernel import finished, kernel_flow
from joins.engine.spark_state import stores
from joins.engine.spark_steps import dataflow
from joins.kernel.program import Level, Settled, program_of
from joins.query.plan import Plan
from joins.steps.chunks import folded, whole_rows
from joins.steps.cuts import Cuts, Lag, Offsets, Positions, covers, merged
from joins.steps.records import ROW_PUT, Message, Record, RowPut, load, record_of, ts_of, values_of
from joins.steps.sink import Report, barriers, dead_letter, plain, writes_of
from joins.steps.stamps import Stamps
from joins.stores.evolution import places
from joins.stores.hbase_table import JoinedTable, connection, patiently, write_rows
from joins.stores.kafka_log import send_dead_letters
from joins.stores.kafka_positions import PositionsLog
from joins.stores.kafka_table import UpsertTopic, produce, upserts

# The fault that tests inject: the driver dies by SIGKILL right after the HBase writes of the first batch ≥ this number.
CRASH_AFTER_WRITE = "TAILORBIRD_CRASH_AFTER_WRITE"
_STAMPS_KEPT = 200
_ASK_STATE_EVERY_MS = 10_000

log = structlog.get_logger()
Clock = Callable[[], int]
T = TypeVar("T")
_REPORT = "report binary"


def start_query(
    spark: SparkSession,
    plan: Plan,
    settled: Settled,
    *,
    servers: str,
    partitions: int,
    checkpoint: str,
    ends: Settled,
    sink: BatchSink,
    engine: Engine,
    max_changes: int,
    tombstone_ms: int,
) -> StreamingQuery:
    """Start the query; it goes on where its checkpoint ends, or at the log's beginning.

    A batch has at most about `max_changes` changes, however far the log is ahead. `ends` and `tombstone_ms` as in
    `program_of`.
    """
    levels: tuple[Level, ...] = ()
    if engine == "jvm":
        floors = sink.record.floors
        levels = program_of(plan, settled, servers=servers, ends=ends, floors=floors, tombstone_ms=tombstone_ms)
    sources = sum(1 for level in levels if level.topics) or 1

    def read(topics: tuple[str, ...]) -> DataFrame:
        return (
            spark.readStream.format("kafka")
            .option("kafka.bootstrap.servers", servers)
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

    if levels:
        rows = kernel_flow(read, levels)
    else:
        rows = dataflow(read(plan.topics), plan, settled, partitions, servers, ends)
    rows = finished(rows.select("k", "m"), plan)
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
        table: JoinedTable | UpsertTopic,
        layout: Layout,
        record: QueryRecord,
        checkpoint: QueryCheckpoint,
        thrift: str,
        servers: str,
        positions: PositionsLog,
        thinned: Callable[[], Mapping[str, int]],
        clock_ms: Clock,
        metrics: JoinMetrics,
        stopped: Callable[[], bool],
    ) -> None:
        self.plan = plan
        self.table, self.layout, self.record, self.checkpoint = table, layout, record, checkpoint
        self.thrift, self.servers, self.positions, self.clock_ms = thrift, servers, positions, clock_ms
        self.metrics, self.stopped, self.thinned = metrics, stopped, thinned
        self.failure: TailorbirdError | None = None
        self.raised = self.void = False
        self.state: tuple[Operator, ...] = ()
        self._state_at = 0
        self.total = Report()
        committed = checkpoint.last_committed()
        self._stamps = Stamps(
            last=max(record.first_stamp, self._patiently(table.last_stamp)),
            committed=committed,
            bound=self._patiently(lambda: table.stamp(record.id, committed + 1)) is not None,
        )
        # of a run that is not complete yet, the barriers are a former run's
        self._told: Positions = self._patiently(table.reached) if record.complete else {}
        self._cuts = Cuts(self._told)
        self._batch = committed
        self._levels: Sequence[Offsets] = checkpoint.levels(committed) if committed >= 0 else ()
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
        stamp = self._patiently(lambda: self._stamp(batch))
        if isinstance(self.table, UpsertTopic):
            # one task has all messages of a row, one after the other, so that a put stays behind what it beats
            rows = rows.repartition("k").sortWithinPartitions("k")
            write = upsert_writer(self.plan, self.layout, batch, self.record.id, self.table)
        else:
            write = partition_writer(self.plan, self.layout, batch, stamp, thrift=self.thrift, servers=self.servers)
        report = Report()
        for row in rows.mapInArrow(write, _REPORT).collect():
            report.merge(Report(**orjson.loads(row["report"])))
        self._crash_on_demand(batch)
        self._keep(batch, report)
        self._finish(batch, stamp)
        self.total.merge(report)
        self.metrics.written(batch, report)
        if self.clock_ms() - self._state_at > _ASK_STATE_EVERY_MS:
            self._state_at, self.state = self.clock_ms(), stores(rows.sparkSession)

    def _keep(self, batch: int, report: Report) -> None:
        """Keep what markers have set and what was refused, before the batch is committed that met them."""
        known = {topic: dict(partitions) for topic, partitions in self.record.floors.items()}
        for topic, partition, sequence in report.floors:
            before = known.setdefault(topic, {}).get(partition, 0)
            known[topic][partition] = max(sequence, before)
        self.raised = self.raised or known != self.record.floors
        record = replace(self.record, floors=known, refused=self.record.refused.counted(batch, report.refused))
        if record != self.record:
            self.record = record
            self.checkpoint.store(record)

    def _stamp(self, batch: int) -> int:
        known = self.table.stamp(self.record.id, batch)
        stamp = self._stamps.of_batch(batch, known, self.clock_ms())
        if known is None:
            self.table.store_stamp(self.record.id, batch, stamp)
            if batch and batch % _STAMPS_KEPT == 0:
                self.table.forget_stamps(self.record.id, batch - _STAMPS_KEPT)
        return stamp

    def _finish(self, batch: int, stamp: int) -> None:
        """Barriers, once the run has seen all that there was when it began: before, they would promise too much."""
        self._levels, self._batch = self.checkpoint.levels(batch), batch
        if not self.record.complete:
            if not covers(merged(self._levels), self.record.target):
                return
            self._prove_whole()
            swept = self._patiently(lambda: self.table.sweep(self.record.first_stamp))
            log.info("first complete cut", table=self.layout.table, batch=batch, rows_of_former_runs_deleted=swept)
            self.record = replace(self.record, complete=True)
            self.checkpoint.store(self.record)
        self._tell(self._reached(), stamp)

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
        for position in self._patiently(lambda: self.positions.read(self._told)):
            with self._counting:
                self._cuts.add(position)
        if not self._busy.acquire(blocking=False):
            return
        try:
            if self._batch < 0 or not self.record.complete:
                return
            positions = self._reached()
            if positions == self._told:
                return
            # a batch that Spark has not committed may be half written, or its end not seen (`joins.steps.stamps`)
            stamp = self._stamps.between(self.checkpoint.last_committed(), self.clock_ms())
            if stamp is not None:
                self._tell(positions, stamp)
        finally:
            self._busy.release()

    def lags(self) -> dict[str, Lag]:
        """How far the table is behind each source."""
        with self._counting:
            return self._cuts.lags(self.clock_ms())

    def _reached(self) -> Positions:
        with self._counting:
            return self._cuts.cover(merged(self._levels))

    def _tell(self, positions: Positions, stamp: int) -> None:
        made = barriers(
            self.table.buckets, self._batch, stamp, positions, ends=self._levels, incomplete=self.record.refused.total
        )
        self._patiently(lambda: self.table.write_barriers(made, stamp))
        self._told = positions

    def _patiently(self, action: Callable[[], T]) -> T:
        health, thread = self.metrics.health, threading.get_ident()

        def waiting(error: Retriable, pause: float) -> None:
            health.waits(thread, error.message, time.monotonic())
            _tell_waiting(error, pause)

        try:
            return patiently(action, waiting, self.stopped)
        finally:
            health.goes_on(thread)

    def _crash_on_demand(self, batch: int) -> None:
        wanted = os.environ.get(CRASH_AFTER_WRITE)
        if wanted is not None and batch >= int(wanted):
            log.warning("dying on demand", batch=batch, demanded_by=CRASH_AFTER_WRITE)
            os.kill(os.getpid(), signal.SIGKILL)


def partition_writer(
    plan: Plan, layout: Layout, batch: int, stamp: int, *, thrift: str, servers: str
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function that each partition runs: records in, one report out, everything written in between."""

    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        hbase = connection(thrift)
        codec, report = RowCodec(layout), Report()
        table, family = hbase_table(layout.topology, layout.table), layout.family.encode()
        dead_letters = dead_letter_topic(layout.topology)
        indexes = places(layout, {output.name: output.index for output in plan.finish.outputs})
        some = _messages(batches)
        for messages in some if plan.steps else folded(chain.from_iterable(some)):
            writes = writes_of((fitted(message, indexes) for message in messages), codec, batch)
            rows = partial(write_rows, hbase, table, family, writes.deletes, writes.puts, stamp)
            patiently(rows, _tell_waiting, _never)
            if letters := [dead_letter(refused, layout.table, batch) for refused in writes.refused]:
                patiently(partial(send_dead_letters, servers, dead_letters, letters), _tell_waiting, _never)
            report.add(writes)
        settle()
        yield pa.RecordBatch.from_pydict({"report": pa.array([orjson.dumps(asdict(report))], pa.binary())})

    return write


def fitted(message: Message, places: Sequence[int | None]) -> Record:
    """A message at the sink, a row in the order of the layout's columns; NULL for a column that no longer comes."""
    if None not in places or message.op != ROW_PUT:
        return record_of(message, [place for place in places if place is not None])
    values = values_of(message.p)
    return RowPut([None if place is None else values[place] for place in places], ts_of(message.p))


def upsert_writer(
    plan: Plan, layout: Layout, batch: int, run: str, table: UpsertTopic
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """As `partition_writer`, into an upsert topic."""
    servers, topic = table.servers, table.topic
    indexes = [output.index for output in plan.finish.outputs]

    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        report = Report()
        for some in whole_rows(chain.from_iterable(_messages(batches))):
            messages = some if plan.steps else chain.from_iterable(folded(some))
            records, refused, floors = upserts(messages, layout, indexes)
            patiently(partial(produce, servers, topic, run, records), _tell_waiting, _never)
            if letters := [dead_letter(one, layout.table, batch) for one in refused]:
                send = partial(send_dead_letters, servers, dead_letter_topic(layout.topology), letters)
                patiently(send, _tell_waiting, _never)
            gone, put = (sum((value is None) == ends for _, value in records) for ends in (True, False))
            report.merge(Report(rows_put=put, rows_gone=gone, refused=len(refused), floors=plain(floors)))
        settle()
        yield pa.RecordBatch.from_pydict({"report": pa.array([orjson.dumps(asdict(report))], pa.binary())})

    return write


def _messages(batches: Iterable[pa.RecordBatch]) -> Iterator[list[Message]]:
    """Messages at the sink, as they arrive."""
    for arrived in batches:
        columns = (arrived.column("k").to_pylist(), arrived.column("m").to_pylist())
        yield [load(k, m) for k, m in zip(*columns, strict=True)]


def _never() -> bool:
    """A task waits as long as it takes: Spark ends its worker when the query stops."""
    return False


def _tell_waiting(error: Retriable, pause: float) -> None:
    log.warning("waiting", reason=error.message, again_in_seconds=round(pause, 1))
