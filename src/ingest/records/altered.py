"""Tables as their server tells them, where its log has no statements: altered, emptied, made anew; pure."""

from __future__ import annotations

from cdc.words.errors import Skippable
from cdc.words.schema import TableId
from ingest.facts.facts import Fact, TableAltered, TableEmptied
from ingest.records.records import TableWriter
from ingest.records.rewritten import rekeyed
from ingest.records.seams import Record
from ingest.records.transactions import Transactions


class AlteringTransactions(Transactions):
    """Transactions in which tables are altered between rows.

    A transaction that was published in part tells again what was published of it: a table that was emptied counts as a
    row, and is passed over as rows are. Where its tables are altered is known from the history then.
    """

    def _other(self, fact: Fact, now_ms: int) -> list[Record]:
        if isinstance(fact, TableAltered):
            return self._altered(fact, now_ms)
        if isinstance(fact, TableEmptied):
            return self._emptied(fact, now_ms)
        return super()._other(fact, now_ms)

    def _altered(self, fact: TableAltered, now_ms: int) -> list[Record]:
        table = fact.table
        known = self.tables.catalog.tables.get((table.database, table.table))
        before = self._known(table)
        change = self.tables.altered(fact, self._next())
        records = self._changed(change)
        if known is None or known.identity == fact.definition.identity:
            self._read_again(rekeyed({} if before is None else {table: before.schema}, change))
            return records
        # another table under the name: what the old one held is gone, what this one holds the log may not tell
        if before is not None:
            records += self._truncated(table, before, now_ms)
        if self._watcher is not None:
            self._watcher.start(table, marker=self.number())
        return records

    def _emptied(self, fact: TableEmptied, now_ms: int) -> list[Record]:
        if self._skip:
            self._skip -= 1
            self._row += 1
            return []
        records = self._truncated(fact.table, self._writer(fact.table), now_ms)
        self._row += 1
        return records

    def _known(self, table: TableId) -> TableWriter | None:
        try:
            return self._recorder.writer(self.tables.schema(table))
        except Skippable:  # no error: nothing was published of it
            return None
