"""What a query knows of what it reads: a captured table's schema, or the rows that another query makes."""

from __future__ import annotations

from dataclasses import dataclass, field

from cdc.model.schema import Column, TableSchema
from cdc.model.types import LogicalType


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryColumn:
    """A column of a query's rows; `origin` for people, `members` as in `joins.query.plan.Output`."""

    name: str
    type: LogicalType
    nullable: bool
    origin: str
    members: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryRows:
    """The rows of a query as another one reads them; reads like a `TableSchema`.

    `primary_key`: columns whose values no two rows share, as they are proved to; names that begin with `_` can not be
    said in a query. Empty: there is a key, but no column shows it. `also`: other keys of which the same holds.
    """

    columns: tuple[QueryColumn, ...]
    primary_key: tuple[str, ...]
    also: tuple[tuple[str, ...], ...] = ()
    former: tuple[tuple[str, Column], ...] = field(default=(), init=False)
    left_out: tuple[tuple[str, str], ...] = field(default=(), init=False)

    def column(self, name: str) -> QueryColumn | None:
        """The column of that name, or None."""
        return next((column for column in self.columns if column.name == name), None)

    def places(self) -> tuple[str, ...]:
        """The names of all columns, in order."""
        return tuple(column.name for column in self.columns)


Shape = TableSchema | QueryRows


def keys_of(shape: Shape) -> tuple[tuple[str, ...], ...]:
    """All keys of a table or a query, the first of which is its primary key; perhaps an empty one."""
    return (shape.primary_key, *(shape.also if isinstance(shape, QueryRows) else ()))
