"""Publish changes of tables whose columns are not known from DDL in the log: described by their server, or in
quarantine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cdc.model.errors import Skippable
from cdc.model.event import Position
from cdc.model.schema import TableId
from ingest.events.left_out import QuarantinedTable
from ingest.events.log_events import LogEvent, RowsQuarantined, TableAltered, TableEmptied
from ingest.events.redecode import decoded
from ingest.records.capture_interfaces import Record
from ingest.records.records import TableWriter
from ingest.records.rewritten import rekeyed
from ingest.records.transactions import Transactions


class AlteringTransactions(Transactions):
    """Transactions of sources whose log describes a table, instead of its DDL, before the table's rows (PostgreSQL).

    After a restart, the source sends a partly published transaction again. A truncation then counts as one row, and is
    skipped like the rows that were published. The schemas are known from the history.
    """

    def _other(self, event: LogEvent, now_ms: int) -> list[Record]:
        if isinstance(event, TableAltered):
            return self._altered(event, now_ms)
        if isinstance(event, TableEmptied):
            return self._emptied(event, now_ms)
        if isinstance(event, RowsQuarantined):
            return self._kept(event)
        return super()._other(event, now_ms)

    def _altered(self, event: TableAltered, now_ms: int) -> list[Record]:
        table = event.table
        known = self.tables.catalog.tables.get((table.database, table.table))
        before = self._known(table)
        change = self.tables.altered(event, self.next_position())
        records = self._changed(change)
        if known is None or known.identity == event.definition.identity:
            self._read_again(rekeyed({} if before is None else {table: before.schema}, change))
            return records
        # The table was dropped and created again: the old rows are gone, and the log may lack rows of the new table.
        if before is not None:
            records += self._truncated(table, before, now_ms)
        if self._watcher is not None:
            self._watcher.start(table, marker=self.number())
        return records

    def _emptied(self, event: TableEmptied, now_ms: int) -> list[Record]:
        if self._skip:
            self._skip -= 1
            self._row += 1
            return []
        writer = self._writer(event.table)
        if isinstance(writer, Skippable):
            return self._passed_over(event.table, 1, writer)
        records = self._truncated(event.table, writer, now_ms)
        self._row += 1
        return records

    def _known(self, table: TableId) -> TableWriter | None:
        try:
            return self._recorder.writer(self.tables.schema(table))
        except Skippable:  # not an error: no row of the table was published
            return None

    def _kept(self, event: RowsQuarantined) -> list[Record]:
        assert self._open is not None, "rows outside a transaction"
        if self._skip:
            self._skip -= 1
            return []
        if why := self.tables.why_left_out(event.table):
            return self._passed_over(event.table, 1, why)
        self._touched = True
        self._phases.end(event.table)
        self._sequence += 1
        self.quarantined += 1
        position = Position(file=self._file, pos=self._pos, gtid_set="", sequence=self._sequence)
        commit_ms = self._open.commit_us // 1000
        name = event.table.name
        before = self.kept.get(name) or QuarantinedTable(sequence=self._sequence, events=0, since_ms=commit_ms, why="")
        self.kept[name] = {**before, "events": before["events"] + 1, "why": event.why}
        if self.tables.hides(event.table):
            # A raw event would store ignored or masked columns. Re-read the table instead, once its columns are known.
            self._row += 1
            self._missing([event.table])
            return []
        record = self._recorder.kept(event, position, self._open.gtid, commit_ms, self._open.server_id, self._row)
        self._row += 1
        return [record]

    def replay(self, dead_letters: list[Mapping[str, Any]], table: TableId, now_ms: int) -> list[Record]:
        """Return the records of quarantined rows whose columns are known now. Raises Skippable if the columns do not
        fit them.

        `dead_letters` are records of the quarantine topic, in order, all of one table.
        """
        self._phases.end(table)  # the rows changed before those that were published since
        columns = self.tables.catalog_columns(table)
        log_events = [(decoded(dead_letter, columns), dead_letter["row"]) for dead_letter in dead_letters]
        records: list[Record] = []
        for (began, rows), row in log_events:
            self._begin(began)
            self._row = row
            records += self._changes(rows, now_ms)
            self._open = None
        self.kept.pop(table.name, None)
        return records
