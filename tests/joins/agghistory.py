"""Histories of tables whose rows are grouped: groups that appear, grow hot, are left, emptied and filled again."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from cdc.model.types import Canonical
from tests.joins.joincase import Row
from tests.joins.joinrandom import Table, value_of

Word = list[Any]


def history_of(tables: list[Table], chance: random.Random) -> list[Word]:
    """Return words of `joincase` about some tables."""
    return _History(tables, chance).words()


class _History:
    """Tracks the tables' content, so that words refer to existing rows."""

    def __init__(self, tables: list[Table], chance: random.Random) -> None:
        self.tables, self.chance = tables, chance
        self.rows: dict[str, dict[tuple[Canonical, ...], Row]] = {table.name: {} for table in tables}
        self.hot = chance.choice([0.0, 0.0, 0.5, 0.9])  # this share of the values is one value

    def words(self) -> list[Word]:
        """Return a history."""
        found = [self._put(table, self._row(table)) for table in self.tables for _ in range(self.chance.randint(0, 6))]
        for _ in range(self.chance.randint(0, 40)):
            found += self._words(self.chance.choice(self.tables))
        return found

    def _words(self, table: Table) -> list[Word]:
        known, chance = self.rows[table.name], self.chance
        dice = chance.random()
        if dice < 0.03:
            known.clear()
            return [["truncate", table.name]]
        if dice < 0.10:
            return [["quiet"]]
        if dice < 0.12:
            lost = [at for at in known if chance.random() < 0.3]
            vanished = [self._key(table, known.pop(at)) for at in lost]
            return [["snapshot", table.name, vanished, [*self._changed(table)]]]
        if not known or dice < 0.45:
            return [self._put(table, self._row(table))]
        row = chance.choice(list(known.values()))
        if dice < 0.55:
            return [self._delete(table, row)]
        if dice < 0.60:  # a column that no query reads
            return [self._put(table, {**row, "unused": chance.randint(5, 99)})]
        if dice < 0.65:  # its key
            return [self._delete(table, row), self._put(table, {**row, **self._key(table, self._row(table))})]
        column = chance.choice([name for name in table.columns if name not in table.key])
        if dice < 0.72:  # all rows with the same value are deleted, and some are inserted again
            others = [one for one in known.values() if one[column] == row[column]]
            back = [one for one in others if chance.random() < 0.4]
            return [*(self._delete(table, one) for one in others), *(self._put(table, one) for one in back)]
        return [self._put(table, {**row, column: self._value(table, column)})]

    def _changed(self, table: Table) -> Iterator[Row]:
        """Yield rows that change without a record, perhaps the column by which they are joined."""
        known, columns = self.rows[table.name], [name for name in table.columns if name not in table.key]
        for at, row in known.items():
            if columns and self.chance.random() < 0.3:
                column = self.chance.choice(columns)
                known[at] = {**row, column: self._value(table, column)}
                yield known[at]

    def _put(self, table: Table, row: Row) -> Word:
        self.rows[table.name][tuple(row[column] for column in table.key)] = row
        return ["put", table.name, row]

    def _delete(self, table: Table, row: Row) -> Word:
        del self.rows[table.name][tuple(row[column] for column in table.key)]
        return ["delete", table.name, self._key(table, row)]

    def _key(self, table: Table, row: Row) -> Row:
        return {column: row[column] for column in table.key}

    def _row(self, table: Table) -> Row:
        return {name: self._value(table, name) for name in table.columns}

    def _value(self, table: Table, column: str) -> Canonical:
        found = value_of(table.columns[column], self.chance)
        if column in table.key or found is None or self.chance.random() >= self.hot:
            return found
        return value_of(table.columns[column].removesuffix("?"), random.Random(1))
