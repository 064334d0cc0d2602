"""Write a joined table to HBase: rows with the timestamp of their batch, then barriers with the source positions.

A timestamp is bound to a batch before its first write, so a repeated batch writes identical cells
(`joins.stores.timestamps`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from itertools import chain

import pyarrow as pa

from cdc.model.brokers import Brokers
from cdc.model.naming import dead_letter_topic, hbase_table
from cdc.stored.cells import RowCodec
from cdc.stored.layout import Layout
from joins.query.plan import Plan
from joins.runtime.chunks import folded
from joins.runtime.sink import OpenRow, Report, barriers, dead_letter, settlements, writes_of
from joins.stores.arrow_messages import messages_of, report_batch
from joins.stores.evolution import fitted, places
from joins.stores.hbase_table import JoinedTable, connection, write_rows
from joins.stores.kafka_log import send_dead_letters
from joins.stores.kafka_open import OpenRecords
from joins.stores.proc_retry import as_long_as_it_takes
from joins.stores.sink_interfaces import Clock, Cut, Run, Writer, lacking
from joins.stores.stored_target import StoredTarget
from joins.stores.timestamps import BatchTimestamps

_TIMESTAMPS_KEPT = 200


class HBaseTarget(StoredTarget[JoinedTable]):
    """A joined table in HBase."""

    def sink(self, run: Run, clock_ms: Clock) -> HBaseSink:
        """Return the writer for a run's next batches."""
        return HBaseSink(self.table, self.servers, run, clock_ms)


class HBaseSink:
    """Writes the batches of a run. At least once, but a repeated write produces the same cells."""

    interval = 0.0
    by_row = False  # a put's timestamp beats a delete's, whichever task writes it

    def __init__(self, table: JoinedTable, servers: Brokers, run: Run, clock_ms: Clock) -> None:
        self.table, self._servers, self._run, self._clock_ms = table, servers, run, clock_ms
        self._timestamps = BatchTimestamps(
            last=max(run.first_timestamp, table.last_timestamp()),
            committed=run.committed,
            bound=table.batch_timestamp(run.id, run.committed + 1) is not None,
        )
        self._timestamp = 0  # of the current batch
        self._open: OpenRecords | None = None
        self._published = run.complete
        if run.committed >= 0:
            self._check_not_lost(run.committed)

    def begin(self, batch: int) -> None:
        """Bind a new timestamp to the batch, or find the one that is bound already.

        Raises UsageError if HBase has lost what the run has written before."""
        if batch > 0:
            self._check_not_lost(batch - 1)
        known = self.table.batch_timestamp(self._run.id, batch)
        self._timestamp = self._timestamps.of_batch(batch, known, self._clock_ms())
        if known is None:
            self.table.store_timestamp(self._run.id, batch, self._timestamp)
            if batch and batch % _TIMESTAMPS_KEPT == 0:
                self.table.forget_timestamps(self._run.id, batch - _TIMESTAMPS_KEPT)

    def writer(self, plan: Plan, layout: Layout, batch: int) -> Writer:
        """Return the function that writes the batch's rows and deletes to HBase, and its dead letters to Kafka."""
        if self._open is None:
            self._open = OpenRecords(self._servers, layout.topology, layout.table)
        return hbase_writer(
            plan, layout, batch, self._timestamp,
            thrift=self.table.hbase.address, servers=self._servers, open_rows=self._open.refresh(),
        )  # fmt: skip

    def finish(self, cut: Cut | None) -> None:
        """Write the barriers of the current batch. They guarantee that all writes with smaller timestamps are
        stored."""
        if cut is not None:
            self._report(cut, self._timestamp)
            self._published = True

    def follow(self, cut: Cut, committed: int) -> bool:
        """Write barriers with newer source positions between batches.

        Return False, and write none, while a batch has a timestamp that Spark has not committed."""
        timestamp = self._timestamps.between(committed, self._clock_ms())
        if timestamp is None:
            return False
        self._check_not_lost(committed)
        self._report(cut, timestamp)
        return True

    def sweep(self) -> int:
        """Delete the rows that this run has not written. Return their number."""
        return self.table.sweep(self._run.first_timestamp)

    def _check_not_lost(self, batch: int) -> None:
        """Raise UsageError unless HBase has the timestamp of an earlier batch, and a barrier if one was written.

        A table that an administrator dropped, or that a disaster took, and that was created again, has neither."""
        known = self.table.batch_timestamp(self._run.id, batch)
        if known is None or (self._published and self.table.barrier() is None):
            raise lacking(f"HBase at {self.table.hbase.address}", self.table.name, batch)

    def _report(self, cut: Cut, timestamp: int) -> None:
        made = barriers(
            self.table.buckets, cut.batch, timestamp, cut.positions,
            ends=cut.ends, incomplete=cut.incomplete, watermark=cut.watermark, clock=cut.clock,
        )  # fmt: skip
        self.table.write_barriers(made, timestamp)


def hbase_writer(
    plan: Plan,
    layout: Layout,
    batch: int,
    timestamp: int,
    *,
    thrift: str,
    servers: Brokers,
    open_rows: Mapping[str, OpenRow],
) -> Writer:
    """Return the function that each partition runs: it writes all messages and returns one report.

    `open_rows` are rows with dead-letter records of earlier batches. A row that is accepted now settles its records."""

    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        hbase = connection(thrift)
        codec, report = RowCodec(layout), Report()
        table, family = hbase_table(layout.topology, layout.table), layout.family.encode()
        dead_letters = dead_letter_topic(layout.topology)
        indexes = places(layout, {output.name: output.index for output in plan.outputs})
        some = messages_of(batches)
        for messages in some if plan.folds else folded(chain.from_iterable(some)):
            writes = writes_of((fitted(message, indexes) for message in messages), codec, batch)
            rows = partial(write_rows, hbase, table, family, writes.deletes, writes.puts, timestamp)
            as_long_as_it_takes(rows)
            if dead_letter_records := [dead_letter(refused, layout.table, batch) for refused in writes.refused]:
                as_long_as_it_takes(partial(send_dead_letters, servers, dead_letters, dead_letter_records))
            if open_rows:
                settled, count = settlements(messages, writes.refused, open_rows, layout.table)
                if settled:
                    as_long_as_it_takes(partial(send_dead_letters, servers, dead_letters, settled))
                report.settled += count
            report.add(writes)
        yield report_batch(report)

    return write
