"""Assign the rows of a table to the leaves of its digest tree, by a fixed function of the primary key.

Every process and the database compute the same leaf from the key alone, without coordination.

    first column of the key     leaf                                        leaf as SQL can ask for it
    an integer                  1,024 neighbouring numbers                  a range of the key
    a date                      one day                                     a range of the key
    a date and time             1,024 seconds                               a range of the key
    anything else               16 bits of the key's hash: 65,536 leaves    one pass over the table

Leaves have the order of the key, and sixteen neighbours form a node of the next level. So a node is a range of the key,
too. If the first column of a longer key has one of these types, only that column counts: rows with equal values in it
share a leaf.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from typing import Literal

from cdc.merkle.canonical import CoveredColumns, RowText
from cdc.model.schema import TableSchema
from cdc.model.types import Canonical

GridKind = Literal["integer", "unsigned", "day", "second", "hash"]
SHIFT = 10  # an integer leaf has 2^10 numbers, a time leaf as many seconds
HASH_BITS = 16
MIDDLE = 2**63  # added to signed numbers, so that leaves keep their order
YEAR_ZERO = 365  # MySQL's TO_DAYS counts from the year 0, Python from the year 1
_FIRST_DAY = "'0001-01-01'"
_SIGNED = {"int8", "int16", "int32", "int64"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """Mapping of a table's keys to leaves: by ranges of the first key column `column`, or by the key's hash."""

    kind: GridKind
    column: str

    @property
    def ranged(self) -> bool:
        """Return whether each leaf is a range of the key, rather than a hash value."""
        return self.kind != "hash"

    @property
    def last(self) -> int:
        """Return the greatest leaf number."""
        if self.kind == "hash":
            return (1 << HASH_BITS) - 1
        if self.kind in ("integer", "unsigned"):
            return (1 << 64 - SHIFT) - 1
        days = date.max.toordinal() + YEAR_ZERO
        return days if self.kind == "day" else ((days + 1) * 86_400 - 1) >> SHIFT


def grid_of(schema: TableSchema) -> Grid:
    """Return the grid of a table that has a digest."""
    column = schema.column(schema.primary_key[0])
    assert column is not None, "a key's columns are columns"
    kind: GridKind = "hash"
    if column.type.kind in _SIGNED and not column.column_type.lower().startswith("year"):  # not compared as a number
        kind = "integer"
    elif column.type.kind == "uint64":
        kind = "unsigned"
    elif column.type.kind == "date":
        kind = "day"
    elif column.type.kind in ("datetime", "timestamp"):
        kind = "second"
    return Grid(kind=kind, column=column.name)


class LeafOf:
    """Function from a row, or a key, of one table to the number of its leaf. Values are canonical."""

    def __init__(self, grid: Grid, covered: CoveredColumns) -> None:
        self._kind, self._column = grid.kind, grid.column
        forms = {form.name: form for form in covered.forms}
        self._key = RowText([forms[name] for name in covered.key])

    def __call__(self, row: Mapping[str, Canonical]) -> int:
        """Return the leaf number. Raises KeyError or ValueError for a row without a valid key."""
        kind, value = self._kind, row[self._column]
        if kind == "hash":
            return self._key.hash(row) >> 128 - HASH_BITS
        if kind == "integer":
            return (value + MIDDLE) >> SHIFT  # type: ignore[operator]  # `cast` costs a call
        if kind == "unsigned":
            return value >> SHIFT  # type: ignore[operator]
        text = str(value)
        days = date.fromisoformat(text[:10]).toordinal() + YEAR_ZERO
        if kind == "day":
            return days
        return (days * 86_400 + int(text[11:13]) * 3600 + int(text[14:16]) * 60 + int(text[17:19])) >> SHIFT


def bounds(grid: Grid, first: int, last: int) -> tuple[str, str] | None:
    """Return the least value of the leaf `first` and the first value after the leaf `last`, as SQL literals; "" means
    no bound.

    Returns None if the grid has no ranges.
    """
    if not grid.ranged:
        return None
    low = _edge(grid, first) if first > 0 else ""
    high = _edge(grid, last + 1) if last < grid.last else ""
    return "" if low == _FIRST_DAY else low, high


def _edge(grid: Grid, leaf: int) -> str:
    if grid.kind in ("integer", "unsigned"):
        return str((leaf << SHIFT) - (MIDDLE if grid.kind == "integer" else 0))
    days, seconds = (leaf, 0) if grid.kind == "day" else divmod(leaf << SHIFT, 86_400)
    if days <= YEAR_ZERO:  # Python has no date before the year 1, and the log contains none
        return _FIRST_DAY
    day = date.fromordinal(days - YEAR_ZERO).isoformat()
    if grid.kind == "day":
        return f"'{day}'"
    return f"'{day} {seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}'"
