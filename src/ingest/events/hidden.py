"""Remove columns that a server logs but hides from SELECTs: hashes for unique indexes, and periods of row history.

Hidden columns come after all others. In MariaDB, a system-versioned table has two columns for the period in which a row
is valid; they may be hidden. Past rows are stored in the same table: an UPDATE logs the new row and inserts the old one
with the end of its period, and a DELETE is logged as an update that sets the end. Consumers receive only the current
rows, as a SELECT shows them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from ingest.binlog.format.columns import ColumnHint, LoggedColumn
from ingest.ddl.catalog import TableDefinition
from ingest.ddl.dialect import Dialect
from ingest.events.log_events import Image, Operation, RefusedImage, Row

_HASHES = re.compile(r"DB_ROW_HASH_\d+")
# Value of the end column in current rows: the greatest TIMESTAMP of 31 bits, from MariaDB 11.5 on of 32 bits.
_NEVER = ("2038-01-19", "2106-02-07")
_LAST = ".999999"
Rows = Sequence[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trim:
    """Removes the `hidden` columns from rows of one table, and past rows, which the period column `end` identifies."""

    hidden: frozenset[str]
    end: str = ""

    def rows(self, operation: Operation, rows: Rows) -> list[tuple[Operation, Rows]]:
        """Return the changes of current rows that an event's changes amount to, in order."""
        if not self.end:
            for row in rows:
                for image in row if operation == "update" else (row,):
                    self._strip(image)
            return [(operation, rows)]
        found = [one for row in rows if (one := self._change(operation, row)) is not None]
        for _, changed in found:
            for image in changed if isinstance(changed, tuple) else (changed,):
                self._strip(image)
        return [(kind, [row for _, row in same]) for kind, same in groupby(found, key=_operation)]

    def _change(self, operation: Operation, row: Any) -> tuple[Operation, Any] | None:
        if operation != "update":
            return None if self._ended(row) else (operation, row)
        before, after = row
        if self._ended(after):
            return None if self._ended(before) else ("delete", before)
        return ("insert", after) if self._ended(before) else ("update", row)

    def _ended(self, image: Image) -> bool:
        end = _values(image).get(self.end)
        return isinstance(end, str) and not (end[:10] in _NEVER and _LAST in end)

    def _strip(self, image: Image) -> None:
        values = _values(image)
        for name in self.hidden:
            values.pop(name, None)


def trim_of(definition: TableDefinition | None, columns: Sequence[LoggedColumn]) -> Trim | None:
    """Return the trim of a table whose rows are logged with these columns; None if there is nothing to remove."""
    known = {column.name for column in definition.columns} if definition else set()
    versioned = (definition.versioned if definition else None) or ("", "")
    names = [column.name for column in columns]
    hidden = {name for name in names if _HASHES.fullmatch(name) and name not in known}
    hidden |= {name for name in versioned if name in names and name not in known}
    if not hidden and not versioned[1]:
        return None
    return Trim(hidden=frozenset(hidden), end=versioned[1])


def hints_of(definition: TableDefinition, dialect: Dialect) -> list[ColumnHint]:
    """Return the columns of a table's rows in the log: the visible columns, then those that the server hides.

    A table has at most one hidden column per unique text key (MariaDB) or functional index (MySQL 8.0.13 to 8.0.17).
    The log decides how many of them are present.
    """
    hints = [ColumnHint(name=c.name, type=c.column_type, charset=c.charset) for c in definition.columns]
    known = {column.name for column in definition.columns}
    for name in definition.versioned or ():
        if name not in known:
            hints.append(ColumnHint(name=name, type="timestamp(6)"))
    if dialect.maria:
        unique = sum(key.kind == "unique" for key in definition.keys)
        hints += [ColumnHint(name=f"DB_ROW_HASH_{n + 1}", type="bigint unsigned", spare=True) for n in range(unique)]
    elif 80013 <= dialect.version < 80018:
        parts = sum(part == "" for key in definition.keys for part in key.columns)
        hints += [ColumnHint(name=f"!hidden!{n}", type="", spare=True) for n in range(parts)]
    return hints


def _operation(change: tuple[Operation, Any]) -> Operation:
    return change[0]


def _values(image: Image) -> Row:
    return image.values if isinstance(image, RefusedImage) else image
