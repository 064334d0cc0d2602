"""What `tailorbird init` has read of the databases: tables, keys, references, a few rows; pure data.

Read by `tailorbird.deploy.draft.mysql_shape` and `pg_shape`; everything that is guessed is guessed from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from cdc.model.errors import Skippable
from cdc.model.filters import TableRule
from cdc.model.schema import TableId, TableSchema
from cdc.model.types import from_mysql
from ingest.ddl.catalog import Key
from ingest.events.foreign_keys import CHANGING
from ingest.events.published import published

Rows = tuple[Mapping[str, str | None], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """Rows of `child` name a row of `parent`: `columns` hold what stands in its columns `referenced`.

    `guessed` says why it is taken for one where no foreign key declares it. `rules` are what a foreign key does to
    the child by itself: `ON DELETE CASCADE`, …
    """

    child: TableId
    columns: tuple[str, ...]
    parent: TableId
    referenced: tuple[str, ...]
    rules: tuple[str, ...] = ()
    guessed: str = ""

    def __str__(self) -> str:
        return f"{self.child.table}.{'+'.join(self.columns)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundTable:
    """One table or view; `rows` are some of its rows as the server prints them, `count` about how many there are.

    `fault` says why its server's log cannot be read for it, empty where nothing is known against it.
    """

    schema: TableSchema
    keys: tuple[Key, ...] = ()
    kind: str = "BASE TABLE"
    engine: str = "InnoDB"
    count: int = 0
    rows: Rows = ()
    fault: str = ""

    @property
    def table_id(self) -> TableId:
        """Which one it is."""
        return self.schema.table_id

    @property
    def name(self) -> str:
        """Its name in its database."""
        return self.schema.table_id.table

    def published(self, ignored: tuple[str, ...]) -> TableSchema:
        """Its schema as its rows leave; Skippable, with the remedy, where they cannot."""
        return published(self.schema, self.keys, TableRule(ignored_columns=ignored))

    @property
    def unsupported(self) -> tuple[str, ...]:
        """Columns of types that are not captured."""
        return tuple(column.name for column in self.schema.columns if not _has_type(column.column_type))

    @property
    def key(self) -> tuple[str, ...]:
        """What tells its rows apart, as capture has it; empty where nothing does."""
        try:
            return self.published(self.unsupported).primary_key
        except Skippable:
            return ()

    def values(self, column: str) -> list[str]:
        """What the rows read hold in a column, without NULLs."""
        return [value for row in self.rows if (value := row.get(column)) is not None]


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundServer:
    """One database and how it is reached. The password is not here: files name `password_env` in its place.

    `database` is what names of tables stand in: a schema on PostgreSQL, whose database is `dbname`.
    """

    source: str
    kind: str
    hostname: str
    port: int
    username: str
    password_env: str
    database: str
    tables: tuple[FoundTable, ...] = ()
    references: tuple[Reference, ...] = field(default=())
    dbname: str = ""


def rules_of(on_delete: str, on_update: str) -> tuple[str, ...]:
    """What a foreign key does to its child without telling the log."""
    said = (("DELETE", on_delete), ("UPDATE", on_update))
    return tuple(f"ON {what} {rule}" for what, rule in said if rule in CHANGING)


def _has_type(column_type: str) -> bool:
    try:
        from_mysql(column_type)
    except ValueError:
        return False
    return True
