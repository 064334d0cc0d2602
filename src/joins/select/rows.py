"""Describe the rows that a query reads, from a captured table or from another query."""

from __future__ import annotations

from dataclasses import dataclass, field

from cdc.model.schema import Column, TableSchema
from cdc.model.types import LogicalType


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryColumn:
    """A column of a query's rows. `origin` is its source column or expression, for display.

    `members`: the column is a MySQL SET, as in `joins.query.plan.Output`."""

    name: str
    type: LogicalType
    nullable: bool
    origin: str
    members: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryRows:
    """The columns and keys of a query whose rows another query reads. It has the interface of a `TableSchema`.

    `primary_key`: names of columns that are proved to identify a row. It is empty if the key is not among the
    columns. `also`: further keys. Column names that begin with `_` are internal: queries cannot use them. `former`
    and `left_out` are always empty; a `TableSchema` has them."""

    columns: tuple[QueryColumn, ...]
    primary_key: tuple[str, ...]
    also: tuple[tuple[str, ...], ...] = ()
    former: tuple[tuple[str, Column], ...] = field(default=(), init=False)
    left_out: tuple[tuple[str, str], ...] = field(default=(), init=False)

    def column(self, name: str) -> QueryColumn | None:
        """Return the column with a name, or None."""
        return next((column for column in self.columns if column.name == name), None)

    def places(self) -> tuple[str, ...]:
        """Return the names of all columns, in order."""
        return tuple(column.name for column in self.columns)


Shape = TableSchema | QueryRows


def keys_of(shape: Shape) -> tuple[tuple[str, ...], ...]:
    """Return all keys of a table or query, the primary key first. A key is a tuple of names, which may be empty."""
    return (shape.primary_key, *(shape.also if isinstance(shape, QueryRows) else ()))
