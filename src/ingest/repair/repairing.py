"""Process transactions of a log with gaps: start repairs for incomplete changes, and hold back changes of rows in
repair."""

from __future__ import annotations

import re
from collections.abc import Iterable

from cdc.model.errors import Skippable
from cdc.model.identifiers import fold_identifier
from cdc.model.schema import TableId
from ingest.events.log_events import (
    Image,
    LogEvent,
    RefusedImage,
    Row,
    RowsLogged,
    RowsNotLogged,
    RowsPartial,
    StatementLogged,
    TableInvalidated,
)
from ingest.events.tables import Tables
from ingest.records.capture_interfaces import Checkpoint, Record
from ingest.records.images import represented
from ingest.records.records import Recorder
from ingest.records.snapshots import Snapshots
from ingest.repair.altered import AlteringTransactions
from ingest.repair.repairs import OpenRepairs

# Statements that may create, change or drop a foreign key.
_DEFINES = re.compile(r"\b(CREATE|ALTER|DROP|RENAME)\b", re.IGNORECASE)
_REFERS = re.compile(r"\bREFERENCES\b", re.IGNORECASE)


class RepairWatcher:
    """Passes what `Transactions` finds out about tables to both the snapshots and the repairs."""

    def __init__(self, snapshots: Snapshots, repairs: OpenRepairs, tables: Tables) -> None:
        self.windows, self.partial = snapshots.windows, snapshots.partial
        self._snapshots, self._repairs, self._tables = snapshots, repairs, tables

    def void(self, table: TableId) -> None:
        """Discard what is being read of a table, and read it again, because the table changed as a whole."""
        self._snapshots.void(table)
        self._repairs.void(table)

    def restart(self, table: TableId) -> None:
        """Read a table again from its beginning, because its primary key changed. Implements `Watcher`."""
        self._snapshots.restart(table)
        self._repairs.key_changed(table, self._tables.schema(table).primary_key)

    def start(self, table: TableId, *, marker: int | None = None) -> None:
        """Read a table: a rename or a partition brought rows that the log does not contain. Implements `Watcher`."""
        self._repairs.drop(table)
        self._snapshots.start(table, marker=marker)

    def gone(self, table: TableId) -> None:
        """Forget a table that was dropped. Implements `Watcher`."""
        self._repairs.drop(table)
        self._snapshots.gone(table)


class RepairingTransactions(AlteringTransactions):
    """Transactions that start a repair for each row whose change the log contains only in part or not at all."""

    def __init__(
        self, recorder: Recorder, tables: Tables, start: Checkpoint, snapshots: Snapshots, repairs: OpenRepairs
    ) -> None:
        super().__init__(recorder, tables, start, RepairWatcher(snapshots, repairs, tables))
        self._repairs, self._parents, self._repaired = repairs, repairs.parents, repairs.open
        repairs.number = self.number

    def _other(self, event: LogEvent, now_ms: int) -> list[Record]:
        if isinstance(event, RowsPartial):
            self._partial_rows(event)
        elif isinstance(event, RowsNotLogged):
            self._touched = True
            about = "" if event.why == "statement" else event.sql  # a statement's text may contain values
            self._repairs.reread(self._named(event.tables), event.why, self.number(), about)
        elif isinstance(event, TableInvalidated):
            self._repairs.reread([event.table], "catalog", self.number(), event.why)
        else:
            return super()._other(event, now_ms)
        return []

    def _missing(self, tables: Iterable[TableId]) -> None:
        self._touched = True
        self._repairs.reread(list(tables), "rollback", self.number())

    def _special_changes(self, event: RowsLogged, now_ms: int) -> list[Record]:
        table = event.table
        if table in self._parents:
            self._repairs.follow(event)
        records = self._rows(event, now_ms)
        if table in self._repaired:
            records = self._repairs.hold_back(table, records)
        return records

    def _partial_rows(self, event: RowsPartial) -> None:
        skipped = min(self._skip, len(event.rows))
        self._skip -= skipped
        self._row += len(event.rows)
        if skipped == len(event.rows):
            return
        sure = event.operation != "update" or not self._repairs.foreign_keys.unsure(
            event.table, *map(_values, event.rows[0])
        )
        writer = self._writer(event.table)
        if isinstance(writer, Skippable):
            self.tables.pass_over(event.table, writer, len(event.rows) - skipped, 0)
            return
        if writer.shape is not None:
            for change in event.rows:
                for image in change if event.operation == "update" else (change,):
                    writer.shape(_values(image))
        self._touched = True
        rows = [
            tuple(represented(image, writer, counted=False) for image in change) if event.operation == "update"
            else represented(change, writer, counted=False)
            for change in event.rows[skipped:]
        ]  # fmt: skip
        rest = event._replace(rows=rows)
        self._repairs.hold_partial(rest, writer.schema.primary_key, self.number(), sure=sure)

    def _statement(self, event: StatementLogged, now_ms: int) -> list[Record]:
        records = super()._statement(event, now_ms)
        emptied = [
            self.tables.id_of((effect.database, effect.table))
            for effect in self.tables.effects(event)
            if effect.kind == "truncate"
        ]
        if below := [table for table in self._repairs.foreign_keys.below(emptied) if table not in emptied]:
            self._repairs.reread(below, "statement", self.number())
        if _DEFINES.search(event.sql[:1000]):
            self._repairs.doubt_foreign_keys()
            if _REFERS.search(event.sql):
                self._phases.end_all()
        return records

    def _named(self, tables: tuple[tuple[str, str], ...] | None) -> list[TableId]:
        """Return those of the given tables (lower case) that are captured or have child tables; None stands for all
        tables."""
        known = {name for name in self.tables.catalog.tables if self.tables.captured(*name)}
        known |= {name for name in self.tables.catalog.unknown if self.tables.captured(*name)}
        known |= {(table.database, table.table) for table in self._repairs.foreign_keys.by_parent}
        return [
            TableId(source=self.tables.source, database=database, table=table)
            for database, table in sorted(known)
            if tables is None or (fold_identifier(database), fold_identifier(table)) in tables
        ]


def _values(image: Image) -> Row:
    return image.values if isinstance(image, RefusedImage) else image
