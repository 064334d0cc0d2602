"""Represent what a query reads: a captured table's schema, or the rows of another query."""

from __future__ import annotations

from dataclasses import dataclass, field

from cdc.model.schema import Column, TableSchema
from cdc.model.types import LogicalType


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryColumn:
    """A column of a query's rows; `origin` is for display, `members` as in `joins.query.plan.Output`."""

    name: str
    type: LogicalType
    nullable: bool
    origin: str
    members: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryRows:
    """The rows of a query as another one reads them; it has the interface of a `TableSchema`.

    `primary_key`: columns proved to be unique; a query cannot use names that begin with `_`. Empty: there is a key, but
    the columns do not contain it. `also`: other keys with the same property.
    """

    columns: tuple[QueryColumn, ...]
    primary_key: tuple[str, ...]
    also: tuple[tuple[str, ...], ...] = ()
    former: tuple[tuple[str, Column], ...] = field(default=(), init=False)
    left_out: tuple[tuple[str, str], ...] = field(default=(), init=False)

    def column(self, name: str) -> QueryColumn | None:
        """Return the column with that name, or None."""
        return next((column for column in self.columns if column.name == name), None)

    def places(self) -> tuple[str, ...]:
        """Return the names of all columns, in order."""
        return tuple(column.name for column in self.columns)


Shape = TableSchema | QueryRows


def keys_of(shape: Shape) -> tuple[tuple[str, ...], ...]:
    """Return all keys of a table or a query, the primary key first; a key may be empty."""
    return (shape.primary_key, *(shape.also if isinstance(shape, QueryRows) else ()))
