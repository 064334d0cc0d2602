"""Handle columns that a server hides but logs: MariaDB's hashes of unique texts, and periods of row history.

A hidden column follows all others. A system-versioned table of MariaDB has two columns for the period in which a row is
valid, hidden or not. Its history is rows of the same table: an UPDATE logs the new row and inserts the old one with its
end, a DELETE is an update that sets the end. Readers receive the current rows only, as a SELECT shows them.
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
# The end of a current row: the last TIMESTAMP, of 31 bits and (from MariaDB 11.5 on) of 32.
_NEVER = ("2038-01-19", "2106-02-07")
_LAST = ".999999"
Rows = Sequence[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trim:
    """Removes columns that the server hides, and rows of the past according to column `end`, from a table's rows."""

    hidden: frozenset[str]
    end: str = ""

    def rows(self, operation: Operation, rows: Rows) -> list[tuple[Operation, Rows]]:
        """Convert the rows that an event changed to changes of the current rows, in their order."""
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
    """Return the trim for a table with this definition, logged with these columns; None if nothing is to be removed."""
    known = {column.name for column in definition.columns} if definition else set()
    versioned = (definition.versioned if definition else None) or ("", "")
    names = [column.name for column in columns]
    hidden = {name for name in names if _HASHES.fullmatch(name) and name not in known}
    hidden |= {name for name in versioned if name in names and name not in known}
    if not hidden and not versioned[1]:
        return None
    return Trim(hidden=frozenset(hidden), end=versioned[1])


def hints_of(definition: TableDefinition, dialect: Dialect) -> list[ColumnHint]:
    """Return a table's columns as its rows are logged: those that every SELECT shows, then those that the server hides.

    The log determines how many columns for unique texts (MariaDB) or functional indexes (MySQL 8.0.13 to 8.0.17) it
    has: at most one for each such key.
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
