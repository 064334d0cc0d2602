"""The draft of a topology as data: sources, joined tables, columns and fields, each with the reason for its choice."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from cdc.model.schema import Column
from tailorbird.deploy.draft.shape import FoundServer, FoundTable, Reference


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftJoin:
    """A table in the query of a joined table. It is joined to the alias `parent` by the reference `by`.

    The root has neither. `depth` is the number of joins between it and the root."""

    alias: str
    table: FoundTable
    parent: str = ""
    by: Reference | None = None
    depth: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftColumn:
    """A column of the result: `column` of the table joined as `alias`, with the name `output`."""

    alias: str
    table: FoundTable
    column: Column
    output: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftTable:
    """A joined table of the draft. The first of `joins` is the root, `columns` are those of the result.

    `why` explains the choice of the table. `left` are omitted joins and columns with reasons. `warnings` describe
    effects that may surprise the user."""

    name: str
    joins: tuple[DraftJoin, ...]
    columns: tuple[DraftColumn, ...]
    why: str
    left: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def root(self) -> DraftJoin:
        """Return the root table. The result has one row for each of its rows."""
        return self.joins[0]

    @property
    def row_key(self) -> list[str]:
        """Return the result's column names for the key of the root."""
        named = {c.column.name: c.output for c in self.columns if c.alias == self.root.alias}
        return [named[name] for name in self.root.table.key]

    def without_join(self, alias: str, why: str) -> DraftTable:
        """Return the table without the join `alias` and all joins and columns that depend on it."""
        gone = {alias}
        for join in self.joins:
            if join.parent in gone:
                gone.add(join.alias)
        return replace(
            self,
            joins=tuple(join for join in self.joins if join.alias not in gone),
            columns=tuple(column for column in self.columns if column.alias not in gone),
            left=(*self.left, why),
        )

    def without_column(self, output: str, why: str) -> DraftTable:
        """Return the table without a column."""
        kept = tuple(column for column in self.columns if column.output != output)
        return replace(self, columns=kept, left=(*self.left, why))


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasonedName:
    """A chosen name with the reason."""

    name: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftFields:
    """The columns of a joined table that are searched, offered as facets, used as time, and displayed."""

    search: tuple[ReasonedName, ...]
    facets: tuple[ReasonedName, ...]
    time: ReasonedName | None
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftSource:
    """A source of the draft.

    `ignored` are the columns to ignore by table, `left` the tables to leave out, each with the reason."""

    server: FoundServer
    ignored: dict[str, tuple[ReasonedName, ...]] = field(default_factory=dict)
    left: tuple[ReasonedName, ...] = ()

    def hidden(self, table: FoundTable) -> tuple[str, ...]:
        """Return the names of a table's ignored columns."""
        return tuple(each.name for each in self.ignored.get(table.name, ()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """The draft of a whole topology. `notes` are remarks that the file shows to the user."""

    name: str
    sources: tuple[DraftSource, ...]
    tables: tuple[DraftTable, ...]
    notes: tuple[str, ...] = ()

    def source_of(self, table: FoundTable) -> DraftSource:
        """Return the source of a table."""
        return next(each for each in self.sources if each.server.source == table.table_id.source)

    def captured(self, source: DraftSource) -> Iterator[FoundTable]:
        """Yield the tables of a source that any joined table reads, once each, in the server's order."""
        read = {join.table.table_id for table in self.tables for join in table.joins}
        return (table for table in source.server.tables if table.table_id in read)
