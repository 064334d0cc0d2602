"""Write a joined table to an upsert topic (`joins.stores.kafka_table`).

Unlike HBase it needs no timestamps and barriers, because offsets order the records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from itertools import chain

import pyarrow as pa

from cdc.model.naming import dead_letter_topic
from cdc.stored.layout import Layout
from cdc.topology.topology import SchemaChangeBehavior
from joins.query.plan import Plan
from joins.runtime.chunks import folded, whole_rows
from joins.runtime.cuts import Positions
from joins.runtime.sink import OpenRow, Report, dead_letter, late_among, plain, settlements
from joins.stores.arrow_messages import messages_of, report_batch
from joins.stores.kafka_log import send_dead_letters
from joins.stores.kafka_open import OpenRecords
from joins.stores.kafka_table import UpsertTopic, produce, upserts
from joins.stores.proc_retry import as_long_as_it_takes
from joins.stores.sink_interfaces import Clock, Cut, Run, Writer, lacking


class KafkaTarget:
    """The upsert topic of a joined table."""

    def __init__(self, topic: UpsertTopic) -> None:
        self.topic = topic

    def check(self, file: str) -> None:
        """Raise UsageError if the topic exists and contains records of another producer."""
        self.topic.check()

    def settle_layout(self, layout: Layout, behavior: SchemaChangeBehavior) -> Layout:
        """Return the layout unchanged. None is stored, because every record names its columns."""
        return layout

    def first_timestamp(self, now_ms: int) -> int:
        """Return the current time. Runs are distinguished by their id, which every record contains."""
        return now_ms

    def reached(self) -> Positions:
        """Return no positions, because the topic has no barriers."""
        return {}

    def sink(self, run: Run, clock_ms: Clock) -> KafkaSink:
        """Return the writer of a run. Create the topic for a new run; an older run must find it."""
        if not self.topic.exists():
            if run.committed >= 0:
                raise lacking(f"Kafka at {self.topic.servers}", self.topic.topic.partition(".")[2], run.committed)
            self.topic.create()
        return KafkaSink(self.topic, run.id)


class KafkaSink:
    """Writes the batches of a run. At least once: repeated records are equal, and the newest of a key is the row's
    state."""

    interval = 0.0
    by_row = True  # so that a put follows the delete that it beats

    def __init__(self, topic: UpsertTopic, run: str) -> None:
        self._topic, self._run = topic, run
        self._open: OpenRecords | None = None

    def begin(self, batch: int) -> None:
        """Do nothing: a batch needs no preparation."""

    def writer(self, plan: Plan, layout: Layout, batch: int) -> Writer:
        """Return the function that writes a record per row, a tombstone per deleted row, and dead letters."""
        if self._open is None:
            self._open = OpenRecords(self._topic.servers, layout.topology, layout.table)
        return kafka_writer(plan, layout, batch, self._run, self._topic, self._open.refresh())

    def finish(self, cut: Cut | None) -> None:
        """Do nothing, because the topic has no barriers."""

    def follow(self, cut: Cut, committed: int) -> bool:
        """Do nothing, because the topic has no barriers."""
        return True

    def sweep(self) -> int:
        """Write a tombstone for every row that this run has not written. Return their number."""
        return self._topic.sweep(self._run)


def kafka_writer(
    plan: Plan, layout: Layout, batch: int, run: str, table: UpsertTopic, open_rows: Mapping[str, OpenRow]
) -> Writer:
    """Return the function that each partition runs: it writes all messages and returns one report.

    `open_rows` as in `joins.stores.hbase_sink.hbase_writer`."""
    servers, topic = table.servers, table.topic
    indexes = [output.index for output in plan.outputs]

    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        report = Report()
        for some in whole_rows(chain.from_iterable(messages_of(batches))):
            messages = some if plan.folds else chain.from_iterable(folded(some))
            messages = list(messages) if open_rows else messages
            records, refused, truncation_points = upserts(messages, layout, indexes)
            as_long_as_it_takes(partial(produce, servers, topic, run, records))
            if dead_letters := [dead_letter(one, layout.table, batch) for one in refused]:
                send = partial(send_dead_letters, servers, dead_letter_topic(layout.topology), dead_letters)
                as_long_as_it_takes(send)
            settled, count = settlements(messages, refused, open_rows, layout.table) if open_rows else ([], 0)
            if settled:
                as_long_as_it_takes(partial(send_dead_letters, servers, dead_letter_topic(layout.topology), settled))
            report.settled += count
            gone, put = (sum((value is None) == ends for _, value in records) for ends in (True, False))
            late = late_among(refused)
            report.merge(
                Report(
                    rows_put=put,
                    rows_gone=gone,
                    refused=len(refused),
                    late=late,
                    truncation_points=plain(truncation_points),
                )
            )
        yield report_batch(report)

    return write
