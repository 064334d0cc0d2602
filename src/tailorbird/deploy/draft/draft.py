"""A topology as it is being guessed: tables, joins, columns and fields, each with its reason; pure data."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from cdc.model.schema import Column
from tailorbird.deploy.draft.shape import FoundServer, FoundTable, Reference


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftJoin:
    """A table of the query: by which reference, and from which alias, it is joined; the root has neither."""

    alias: str
    table: FoundTable
    parent: str = ""
    by: Reference | None = None
    depth: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftColumn:
    """A column of the result: `column` of the table joined as `alias`, called `output`."""

    alias: str
    table: FoundTable
    column: Column
    output: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftTable:
    """A joined table; the first of `joins` is the root. `why` says why it is one, `left` what is not in it and why,
    `warnings` what may surprise."""

    name: str
    joins: tuple[DraftJoin, ...]
    columns: tuple[DraftColumn, ...]
    why: str
    left: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def root(self) -> DraftJoin:
        """The table whose rows are the result's rows."""
        return self.joins[0]

    @property
    def row_key(self) -> list[str]:
        """Output names of the root's key."""
        named = {c.column.name: c.output for c in self.columns if c.alias == self.root.alias}
        return [named[name] for name in self.root.table.key]

    def without_join(self, alias: str, why: str) -> DraftTable:
        """The table without a join, what hangs below it, and their columns."""
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
        """The table without a column."""
        kept = tuple(column for column in self.columns if column.output != output)
        return replace(self, columns=kept, left=(*self.left, why))


@dataclass(frozen=True, slots=True, kw_only=True)
class Reasoned:
    """A name that was chosen, and why."""

    name: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftFields:
    """What is searched, counted and shown of a joined table."""

    search: tuple[Reasoned, ...]
    facets: tuple[Reasoned, ...]
    time: Reasoned | None
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftSource:
    """What is captured of a database: `ignored` columns by table, each with its reason; `left` are whole tables."""

    server: FoundServer
    ignored: dict[str, tuple[Reasoned, ...]] = field(default_factory=dict)
    left: tuple[Reasoned, ...] = ()

    def hidden(self, table: FoundTable) -> tuple[str, ...]:
        """Names of the columns of a table that do not leave it."""
        return tuple(each.name for each in self.ignored.get(table.name, ()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """The whole topology."""

    name: str
    sources: tuple[DraftSource, ...]
    tables: tuple[DraftTable, ...]
    notes: tuple[str, ...] = ()

    def source_of(self, table: FoundTable) -> DraftSource:
        """The source that a table is captured from."""
        return next(each for each in self.sources if each.server.source == table.table_id.source)

    def captured(self, source: DraftSource) -> Iterator[FoundTable]:
        """The tables of a source that any joined table reads, each once, in the server's order."""
        read = {join.table.table_id for table in self.tables for join in table.joins}
        return (table for table in source.server.tables if table.table_id in read)
