"""External tables that other systems write with plain HBase `Bytes`, with a declared mapping from cells to fields."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from cdc.model.types import LogicalType

Mapping = Literal["row", "column"]
ReadRow = Literal["dynamic", "never"]
UniqueKey = Literal["string", "hex"]
Take = Literal["value", "qualifier"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignField:
    """One field of the documents and the HBase cells that it comes from. `family` is empty for the row key.

    A `qualifier` that ends in `*` matches all columns with that prefix, and makes a field of many values. `take`
    selects the cell's value, or the part of the column's name after the prefix.
    """

    name: str
    family: str
    qualifier: str
    take: Take
    type: LogicalType

    @property
    def many(self) -> bool:
        """Return whether a document may have several values."""
        return self.qualifier.endswith("*")

    def matches(self, family: bytes, qualifier: bytes) -> bool:
        """Return whether a cell of this column belongs to the field."""
        if family != self.family.encode():
            return False
        wanted = self.qualifier.encode()
        return qualifier.startswith(wanted[:-1]) if self.many else qualifier == wanted


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignTable:
    """An external table, written by another system; `table` is its name in HBase, with its namespace.

    `mapping`: `row` makes one document of each row, `column` one of each cell that a field names. `read_row`: `dynamic`
    reads the row from HBase to complete a write that contains only some cells; `never` treats a write as the whole row.
    Rows outside [`start_row`, `stop_row`) are left out; None is no bound.
    """

    name: str
    table: str
    mapping: Mapping
    read_row: ReadRow
    unique_key: UniqueKey
    fields: tuple[ForeignField, ...]
    start_row: bytes | None = None
    stop_row: bytes | None = None

    @property
    def families(self) -> tuple[str, ...]:
        """Return the column families of the fields."""
        return tuple(dict.fromkeys(field.family for field in self.fields if field.family))

    def covers(self, row: bytes) -> bool:
        """Return whether a row is within the bounds."""
        return (self.start_row is None or row >= self.start_row) and (self.stop_row is None or row < self.stop_row)
