"""Transactions of a log that does not tell all: what it hides goes to the mends, what is held is kept back; pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

from cdc.model.errors import Skippable
from cdc.model.schema import TableId
from ingest.events.log_events import (
    Fact,
    Image,
    RefusedImage,
    Row,
    RowsLogged,
    RowsPartial,
    RowsUntold,
    StatementLogged,
    TableUntold,
)
from ingest.events.tables import Tables
from ingest.records.altered import AlteringTransactions
from ingest.records.capture_interfaces import Checkpoint, Record
from ingest.records.images import represented
from ingest.records.records import Recorder
from ingest.records.snapshots import Snapshots
from ingest.repair.repairs import Mends

# What may make, change or drop a foreign key.
_DEFINES = re.compile(r"\b(CREATE|ALTER|DROP|RENAME)\b", re.IGNORECASE)


class Watching:
    """Whom `Transactions` tells what the log does to tables: the snapshots and the mends."""

    def __init__(self, snapshots: Snapshots, mends: Mends, tables: Tables) -> None:
        self.windows, self.partial = snapshots.windows, snapshots.partial
        self._snapshots, self._mends, self._tables = snapshots, mends, tables

    def void(self, table: TableId) -> None:
        """See `seams.Watcher`."""
        self._snapshots.void(table)
        self._mends.void(table)

    def restart(self, table: TableId) -> None:
        """See `seams.Watcher`."""
        self._snapshots.restart(table)
        self._mends.rekeyed(table, self._tables.schema(table).primary_key)

    def start(self, table: TableId, *, marker: int | None = None) -> None:
        """See `seams.Watcher`."""
        self._mends.dissolve(table)
        self._snapshots.start(table, marker=marker)

    def gone(self, table: TableId) -> None:
        """See `seams.Watcher`."""
        self._mends.dissolve(table)
        self._snapshots.gone(table)


class MendingTransactions(AlteringTransactions):
    """Transactions whose untold rows are mended."""

    def __init__(
        self, recorder: Recorder, tables: Tables, start: Checkpoint, snapshots: Snapshots, mends: Mends
    ) -> None:
        super().__init__(recorder, tables, start, Watching(snapshots, mends, tables))
        self._mends, self._parents, self._mended = mends, mends.parents, mends.open
        mends.number = self.number

    def _other(self, fact: Fact, now_ms: int) -> list[Record]:
        if isinstance(fact, RowsPartial):
            self._told_in_part(fact)
        elif isinstance(fact, RowsUntold):
            self._touched = True
            about = "" if fact.why == "statement" else fact.sql  # a statement's text may hold values
            self._mends.untold(self._named(fact.tables), fact.why, self.number(), about)
        elif isinstance(fact, TableUntold):
            self._mends.untold([fact.table], "catalog", self.number(), fact.why)
        else:
            return super()._other(fact, now_ms)
        return []

    def _missing(self, tables: Iterable[TableId]) -> None:
        self._touched = True
        self._mends.untold(list(tables), "rollback", self.number())

    def _tend(self, fact: RowsLogged, now_ms: int) -> list[Record]:
        table = fact.table
        if table in self._parents:
            self._mends.follow(fact)
        records = self._rows(fact, now_ms)
        if table in self._mended:
            records = self._mends.hold_back(table, records)
        return records

    def _told_in_part(self, fact: RowsPartial) -> None:
        skipped = min(self._skip, len(fact.rows))
        self._skip -= skipped
        self._row += len(fact.rows)
        if skipped == len(fact.rows):
            return
        sure = fact.operation != "update" or not self._mends.foreign_keys.unsure(
            fact.table, *map(_values, fact.rows[0])
        )
        writer = self._writer(fact.table)
        if isinstance(writer, Skippable):
            self.tables.pass_over(fact.table, writer, len(fact.rows) - skipped, 0)
            return
        if writer.shape is not None:
            for change in fact.rows:
                for image in change if fact.operation == "update" else (change,):
                    writer.shape(_values(image))
        self._touched = True
        rows = [
            tuple(represented(image, writer, counted=False) for image in change) if fact.operation == "update"
            else represented(change, writer, counted=False)
            for change in fact.rows[skipped:]
        ]  # fmt: skip
        rest = fact._replace(rows=rows)
        self._mends.partial(rest, writer.schema.primary_key, self.number(), sure=sure)

    def _statement(self, fact: StatementLogged, now_ms: int) -> list[Record]:
        records = super()._statement(fact, now_ms)
        emptied = [
            self.tables.id_of((effect.database, effect.table))
            for effect in self.tables.effects(fact)
            if effect.kind == "truncate"
        ]
        if below := [table for table in self._mends.foreign_keys.below(emptied) if table not in emptied]:
            self._mends.untold(below, "statement", self.number())
        if _DEFINES.search(fact.sql[:1000]):
            self._mends.doubt()
        return records

    def _named(self, tables: tuple[tuple[str, str], ...] | None) -> list[TableId]:
        """Captured tables among these, and others with foreign keys; all where nobody knows which."""
        known = {name for name in self.tables.catalog.tables if self.tables.captured(*name)}
        known |= {name for name in self.tables.catalog.unknown if self.tables.captured(*name)}
        known |= {(table.database, table.table) for table in self._mends.foreign_keys.by_parent}
        return [
            TableId(source=self.tables.source, database=database, table=table)
            for database, table in sorted(known)
            if tables is None or (database.lower(), table.lower()) in tables
        ]


def _values(image: Image) -> Row:
    return image.values if isinstance(image, RefusedImage) else image
