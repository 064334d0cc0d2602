"""Write a joined table to Iceberg, exactly once per batch (`joins.stores.iceberg.iceberg_table`).

The tasks of a batch stage its rows as Arrow files in the warehouse. Then the driver merges them into the data files of
the touched buckets and commits."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from cdc.model.brokers import Brokers
from cdc.stored.cells import Barrier
from cdc.stored.lakehouse import IcebergCatalog
from cdc.stored.layout import Layout
from cdc.topology.topology import SchemaChangeBehavior
from joins.query.plan import Plan
from joins.runtime.records import RefusedRecord
from joins.runtime.sink import next_timestamp
from joins.stores.iceberg.arrow_rows import Cells, RowCells, staged_table
from joins.stores.iceberg.iceberg_server import write_staged
from joins.stores.iceberg.iceberg_table import IcebergTable
from joins.stores.kafka_open import OpenRecords
from joins.stores.sink_interfaces import Clock, Cut, Run, Writer
from joins.stores.staged import StagedRow, staging_writer
from joins.stores.stored_target import StoredTarget, barrier_of

_COLLECT_AT_LEAST, _COLLECT_AT_MOST = 10.0, 600.0  # seconds between two looks for files to delete


class IcebergTarget(StoredTarget[IcebergTable]):
    """A joined table in Iceberg."""

    _layout: Layout | None = None

    def settle_layout(self, layout: Layout, behavior: SchemaChangeBehavior) -> Layout:
        """Return the layout to write (`joins.stores.evolution`). It is stored with the rows of the next run."""
        self._layout = super().settle_layout(layout, behavior)
        return self._layout

    def sink(self, run: Run, clock_ms: Clock) -> IcebergSink:
        """Return the writer for a run's next batches. `settle_layout` comes first."""
        assert self._layout is not None, "settle_layout comes first"
        return IcebergSink(self.table, self.servers, run, clock_ms, self._layout)


class IcebergSink:
    """Writes the batches of a run, each exactly once."""

    by_row = False  # rows are staged in any order, and a put beats a delete

    def __init__(
        self, table: IcebergTable, servers: Brokers, run: Run, clock_ms: Clock, layout: Layout
    ) -> None:  # fmt: skip
        self.table, self._servers, self._clock_ms = table, servers, clock_ms
        self.interval = table.where.interval
        self._run = table.open_run(run.id, run.committed, layout)
        self._last = table.last_timestamp()
        self._open: OpenRecords | None = None
        self._folder = ""
        self._batch = self._timestamp = -1  # of the current batch
        self._committed_at = self._collected_at = 0.0

    def begin(self, batch: int) -> None:
        """Begin an attempt of the batch. Rows that former attempts staged are not used."""
        self._timestamp = self._next_timestamp()
        self._batch, self._folder = batch, f"{self._run.staging}/{batch}-{uuid.uuid4().hex}"

    def _next_timestamp(self) -> int:
        self._last = next_timestamp(self._clock_ms(), self._last)
        return self._last

    def writer(self, plan: Plan, layout: Layout, batch: int) -> Writer:
        """Return the function that stages the batch's rows in the warehouse, and writes its dead letters to Kafka."""
        if self._open is None:
            self._open = OpenRecords(self._servers, layout.topology, layout.table)
        return staging_writer(
            plan, layout, batch, converter=partial(RowCells, layout),
            stage=StageInFolder(self.table.where.for_tasks, self._folder, layout),
            servers=self._servers, open_rows=self._open.refresh(),
        )  # fmt: skip

    def finish(self, cut: Cut | None) -> None:
        """Merge the batch's rows into the table, and store its number and barrier in the same commit."""
        self._commit(None if cut is None else barrier_of(cut, self._timestamp))

    def follow(self, cut: Cut, committed: int) -> bool:
        """Store newer source positions between batches.

        Return False, and store none, if the table contains another batch than that of the cut, or if the last commit is
        too recent."""
        if time.monotonic() - self._committed_at < self.interval:
            return False
        if not self.table.publish(self._run, barrier_of(cut, self._next_timestamp())):
            return False
        self._committed()
        return True

    def sweep(self) -> int:
        """Merge the batch's rows, and let readers see the run's rows instead of those of the former run.

        Return the number by which there are fewer rows."""
        return self._commit(None, complete=True)

    def _commit(self, barrier: Barrier | None, *, complete: bool = False) -> int:
        gone = self.table.commit_batch(
            self._run, self._folder, self._batch, self._timestamp, barrier, complete=complete
        )  # fmt: skip
        self._committed()
        return gone

    def _committed(self) -> None:
        """Note the time of a commit, and delete old files now and then."""
        self._committed_at = now = time.monotonic()
        pause = min(max(self.table.where.retain / 10, _COLLECT_AT_LEAST), _COLLECT_AT_MOST)
        if now - self._collected_at > pause:
            self._collected_at = now
            self.table.expire(self._clock_ms() - round(self.table.where.retain * 1000))


@dataclass(frozen=True, slots=True)
class StageInFolder:
    """Stages rows as files of one attempt's folder."""

    where: IcebergCatalog
    folder: str
    layout: Layout

    def __call__(self, rows: Sequence[StagedRow[Cells]]) -> list[RefusedRecord]:
        """Write rows to a new file. Iceberg refuses none."""
        if rows:
            write_staged(self.where, self.folder, staged_table(self.layout, [row.form for row in rows]))
        return []
