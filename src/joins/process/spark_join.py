"""Run the join of one table until it is stopped: schemas, plan, streaming query and sink."""

from __future__ import annotations

import contextlib
import os
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import structlog

from cdc.model.errors import DiskFull, Fatal, Retriable, TailorbirdError
from cdc.model.schema import TableId, TableSchema
from cdc.openlineage.http_runs import LineageRun
from cdc.otel.http_spans import tracer_of
from cdc.process.file_topology import home
from cdc.process.kafka_grants import check_grants
from cdc.topology.topology import Table, Topology
from joins.engine.causes import cause_of, is_full_disk, remedy_for
from joins.engine.file_checkpoint import QueryCheckpoint, QueryRecord, stored_state_format
from joins.engine.file_secrets import java_properties
from joins.engine.http_metrics import JoinMetrics
from joins.engine.progress import mean_milliseconds, progress_of
from joins.kernel.program import ENGINE, SafeOffsets
from joins.process.file_state import checkpoint_folder
from joins.process.lineage import planned_datasets
from joins.process.spark_application import Application
from joins.process.state_checks import REBUILDS, check_state
from joins.process.targets import target_of
from joins.query.drift import drifts
from joins.query.plan import Plan
from joins.runtime.cuts import merged
from joins.select.compiler import compile_plan
from joins.select.parser import tables_of
from joins.stores.compaction import Reading
from joins.stores.kafka_compaction import LogWatch
from joins.stores.kafka_cut_positions import PositionsLog
from joins.stores.kafka_log import end_offsets
from joins.stores.kafka_open import OpenRecords
from joins.stores.kafka_schemas import SchemaFollower, read_schemas
from joins.stores.proc_retry import patiently

_REPORT_EVERY = 10.0
_START = "start"  # the standing under which the main thread reports what it waits for (cdc.process.verdict.Standing)
_FOLLOW_EVERY = 0.2
T = TypeVar("T")

log = structlog.get_logger()


class TableJoin:
    """Keeps one table equal to its query, in a Spark application that other tables may share. `lineage` receives the
    columns of what it reads and writes.

    After any end, the next start repeats the uncommitted batch and writes the same cells."""

    def __init__(
        self, topology: Topology, table: Table, stop: threading.Event, *, spark: Application, metrics: JoinMetrics,
        lineage: LineageRun | None = None,
    ) -> None:  # fmt: skip
        self.topology, self.table, self.stop, self.metrics = topology, table, stop, metrics
        self.lineage = lineage
        self.application = spark
        self.checkpoint = QueryCheckpoint(checkpoint_folder(topology, table))
        self.target = target_of(topology, table)
        self.drifted = frozenset[str]()
        self.tracer = tracer_of(topology.name, f"join {table.name}")

    def close(self) -> None:
        """Release the lock of the table's checkpoint, so that another process can run the join."""
        self.checkpoint.close()

    def run(self) -> None:
        """Run until `stop` is set. Raises TailorbirdError if the join cannot start or must not continue."""
        self._patiently(lambda: check_grants(self.topology, "join"))
        self.target.check(self.topology.file)
        self.application.start()  # not before: while the store is down, this process is started repeatedly
        servers = self.topology.log.brokers
        tables = tables_of(self.topology, self.table)
        schemas = read_schemas(servers, self.topology.name, tables, self._rereads(), self.stop.is_set)
        if self.stop.is_set():
            return
        # an earlier version's state continues as it is: only a rebuild gives it the newest form
        stored = stored_state_format(self.checkpoint.folder)
        plan = compile_plan(self.topology, self.table, schemas).in_format(stored)
        self._warn(drifts(plan, schemas))
        self._describe(plan, schemas)
        self.log = LogWatch(
            servers,
            plan.topics,
            lag=round(1000 * self.topology.log.min_compaction_lag),
            remedy=f"`tailorbird join {self.topology.file} --table {self.table.name} --rebuild` {REBUILDS}",
        )
        record = self._record(plan)
        ends = end_offsets(servers, plan.topics, self._rereads(), self.stop.is_set)
        if self.stop.is_set():
            return
        self._check_log(record)
        layout = self.target.settle_layout(plan.layout(1), self.table.schema_change_behavior)
        log.info("joining", table=self.table.name, layout=layout.id, query=record.id, complete=record.complete)
        self._stream(plan, ends, record, layout)
        log.info("stopped", table=self.table.name)

    def _record(self, plan: Plan) -> QueryRecord:
        """Return the record of the run in the checkpoint, or of a new run if there is none."""
        self.checkpoint.state_format = plan.state_format
        record = self.checkpoint.record()
        if record is None:
            record = self._begun(plan, {})
        else:
            stored = stored_state_format(self.checkpoint.folder)
            check_state(record, plan, self.table, self.topology.file, stored)
            self.checkpoint.store(record)  # in this version's form, so that an older version does not continue it
        return record

    def _begun(self, plan: Plan, exact_from: Mapping[str, int]) -> QueryRecord:
        """Begin a new run: with an empty state, from the beginning of the log."""
        servers, stopped = self.topology.log.brokers, self.stop.is_set
        ends = end_offsets(servers, plan.topics, self._rereads(), stopped)
        found = self._patiently(lambda: self.log.beginning(ends, _now_ms(), stopped)) if ends else ({}, {}, {})
        record = QueryRecord(
            id=str(uuid.uuid4()),
            fingerprint=plan.fingerprint(),
            partitions=self.table.state_partitions or _partitions(),
            first_timestamp=self._patiently(lambda: self.target.first_timestamp(_now_ms())),
            target=ends,
            complete=False,
            settled=found[0],
            counts=found[1],
            topics=found[2],
            exact_from=exact_from,
            began_ms=_now_ms(),
            engine=ENGINE,
        )
        if not stopped():  # otherwise the record may be incomplete
            self.checkpoint.clear()
            self.checkpoint.store(record)
        return record

    def _check_log(self, record: QueryRecord) -> None:
        """Raise UsageError, with a remedy, if Kafka no longer has records that the run must still read."""
        self._patiently(lambda: self.log.check(self._reading(record), _now_ms()))

    def _reading(self, record: QueryRecord) -> Reading:
        return Reading(
            committed=merged(self.checkpoint.committed()),
            settled=record.settled,
            target=record.target,
            topics=record.topics,
        )

    def _patiently(self, action: Callable[[], T]) -> T:
        try:
            return patiently(action, lambda error, _: self._report_waiting(str(error)), self.stop.is_set)
        finally:
            self.metrics.health.resumes(_START)

    def _sink(self, plan: Plan, record: QueryRecord, layout: Any) -> Any:
        from joins.engine.http_tracing import BatchTraces  # as in `_stream`
        from joins.engine.spark_query import BatchSink

        return BatchSink(
            plan=plan,
            target=self.target,
            layout=layout,
            record=record,
            checkpoint=self.checkpoint,
            positions=PositionsLog(self.topology.log.brokers, self.topology.name, frozenset(plan.topics)),
            thinned=lambda: self.log.thinned(record.settled, record.counts, self.stop.is_set),
            clock_ms=_now_ms,
            metrics=self.metrics,
            traces=BatchTraces(self.table.name, self.tracer),
            stopped=self.stop.is_set,
        )

    def _stream(self, plan: Plan, ends: SafeOffsets, record: QueryRecord, layout: Any) -> None:
        # imported here: pyspark takes a second, which errors found above should not cost
        from joins.cluster.spark_executors import check_executors
        from joins.engine.spark_query import start_query
        from joins.engine.spark_session import is_local

        schemas = SchemaFollower(self.topology.log.brokers, self.topology.name, plan)
        sink = self._sink(plan, record, layout)
        spark = self.application.session(self.table.name, record.partitions)
        try:
            if not is_local(str(spark.sparkContext.master)):
                check_executors(spark, self.checkpoint.spark)
            while not self.stop.is_set():
                if sink.void:
                    record = self._begun(plan, sink.exact_from)
                    sink = self._sink(plan, record, layout)
                    log.info("joining", table=self.table.name, layout=layout.id, query=record.id, complete=False)
                    continue  # it may have been stopped in the meantime
                sink.begin()
                query = start_query(
                    spark,
                    plan,
                    record.settled,
                    kafka=java_properties(self.topology.log.brokers, home() / "secrets"),
                    checkpoint=str(self.checkpoint.spark),
                    sink=sink,
                    ends=ends,
                    max_changes=self.table.max_changes_per_batch,
                    tombstone_ms=round(1000 * max(3600, self.topology.log.min_compaction_lag)),
                )
                self.metrics.health.resumes(_START)
                self.metrics.health.ready()
                self._watch(query, sink, schemas)
        except TailorbirdError:
            if not self.stop.is_set():  # during a stop, an unavailable server is not an error
                raise
        except Exception as error:
            if self.stop.is_set():  # the JVM received the signal as well, and ended first
                log.info("stopped while busy", reason=cause_of(error))
                return
            if (code := self.application.exit_code(settling=2.0)) is not None:
                hint = f"see {self.application.log}; 3 is lack of memory: set a lower max_changes_per_batch"
                raise Fatal(f"Spark's JVM ended with exit code {code}", hint) from error
            if sink.failure is None:
                with contextlib.suppress(Retriable):  # if Kafka is unavailable, report Spark's own error
                    self.log.check(self._reading(sink.record), _now_ms())
            if is_full_disk(error):
                raise DiskFull(self.checkpoint.folder) from error
            raise sink.failure or Fatal(f"Spark: {cause_of(error)}", remedy_for(error)) from error
        finally:
            schemas.close()

    def _warn(self, drifted: Sequence[str]) -> None:
        """Log new differences between the schemas and the columns that the plan uses, each once."""
        for one in sorted(set(drifted) - self.drifted):
            log.warning("schema changed", table=self.table.name, what=one)
        self.drifted = frozenset(drifted)
        self.metrics.drifted(len(drifted))

    def _describe(self, plan: Plan, schemas: Mapping[TableId, TableSchema]) -> None:
        """Send the columns of inputs and output to a receiver of lineage, if there is one and they have changed."""
        if self.lineage is not None:
            self.lineage.reads_and_writes(lambda: planned_datasets(self.topology, self.table, plan, schemas))

    def _watch(self, query: Any, sink: Any, schemas: SchemaFollower) -> None:
        """Wait until the query ends or must be restarted. Log its progress periodically.

        Raises pyspark's exception if the query fails."""
        from joins.engine.spark_query import reports  # as in `_stream`

        reported, batch = time.monotonic(), -1
        records = OpenRecords(self.topology.log.brokers, self.topology.name, self.table.name)
        while not self.stop.is_set() and not sink.ends:
            try:
                if query.awaitTermination(_FOLLOW_EVERY):
                    return
            except Exception:
                if sink.ends:  # the batch after a marker has started, and is left to the next query
                    return
                raise
            try:
                sink.follow_positions()
                self.metrics.lag(sink.lags())
                if (drifted := schemas.news()) is not None:
                    self._warn(drifted)
                    self._describe(sink.plan, schemas.newest())
                if time.monotonic() - reported < _REPORT_EVERY:
                    continue
                reported = time.monotonic()
                self._check_log(sink.record)
                sink.settled(records.settle_logged(merged(self.checkpoint.committed())))
            except TailorbirdError:
                query.stop()  # the application may continue with other tables
                raise
            if found := reports(query, batch):
                batch = found[-1]["batchId"]
                self._report(found, sink)
        records.close()
        query.stop()

    def _report(self, found: Sequence[Mapping[str, Any]], sink: Any) -> None:
        """Log and count the newest batch.

        `batches` and the mean `milliseconds` in the log line cover all batches since the previous line."""
        reported = progress_of(found[-1], sink.state)
        self.metrics.progress(reported)
        log.info(
            "batch",
            table=self.table.name,
            number=reported.batch,
            changes=reported.changes,
            rows_put=sink.total.rows_put,
            rows_deleted=sink.total.rows_gone,
            dead_letters=sink.total.refused,
            changes_per_second=round(reported.changes_per_second),
            behind=reported.behind,
            state_rows=sum(operator.rows or 0 for operator in reported.operators),
            state_bytes=sum(operator.bytes for operator in reported.operators),
            batches=len(found),
            milliseconds=mean_milliseconds(found),
        )

    def _report_waiting(self, reason: str) -> None:
        self.metrics.health.waits(_START, reason, time.monotonic())
        log.info("waiting", table=self.table.name, reason=reason)

    def _rereads(self) -> Callable[[str], None]:
        """Return a function that logs what the join waits for: at once, when it changes, and every ten seconds."""
        last = [("", 0.0)]

        def report(what: str) -> None:
            self.metrics.health.waits(_START, what, time.monotonic())
            if what != last[0][0] or time.monotonic() - last[0][1] > _REPORT_EVERY:
                log.info("waiting", table=self.table.name, reason=what, remedy="is `tailorbird capture` running?")
                last[0] = (what, time.monotonic())

        return report


def _partitions() -> int:
    """Return the permanent number of state partitions."""
    return max(2, (os.cpu_count() or 1) // 2)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
