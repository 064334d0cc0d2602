"""Databases as `tailorbird init` sees them: tables, keys, references and a few rows of each table.

`tailorbird.deploy.draft.mysql_shape` and `pg_shape` read them from servers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from cdc.model.errors import Skippable
from cdc.model.filters import TableRule
from cdc.model.schema import TableId, TableSchema
from cdc.model.tls import TLS_IF_OFFERED, Tls
from cdc.model.types import from_mysql
from ingest.ddl.catalog import Key
from ingest.events.foreign_keys import CHANGING
from ingest.events.published import published

Rows = tuple[Mapping[str, str | None], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """A reference from a row of the table `child` to a row of the table `parent`.

    The values of `columns` equal those of the parent's columns `referenced`. `guessed` is the reason for a reference
    that is not a foreign key. `rules` are the foreign key's actions, such as `ON DELETE CASCADE`."""

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
    """One table or view of a database, with some `rows` as the server prints them.

    `count` is the estimated number of rows. `fault` is the reason why the table cannot be captured from the log; it
    is empty if none is known."""

    schema: TableSchema
    keys: tuple[Key, ...] = ()
    kind: str = "BASE TABLE"
    engine: str = "InnoDB"
    count: int = 0
    rows: Rows = ()
    fault: str = ""

    @property
    def table_id(self) -> TableId:
        """Return the table's id: source, database and name."""
        return self.schema.table_id

    @property
    def name(self) -> str:
        """Return the table's name within its database."""
        return self.schema.table_id.table

    def published(self, ignored: tuple[str, ...]) -> TableSchema:
        """Return the schema that capture would publish without the `ignored` columns.

        Raises Skippable, with a remedy, if the table cannot be captured."""
        return published(self.schema, self.keys, TableRule(ignored_columns=ignored))

    @property
    def unsupported(self) -> tuple[str, ...]:
        """Return the columns whose types cannot be captured."""
        return tuple(column.name for column in self.schema.columns if not _has_type(column.column_type))

    @property
    def key(self) -> tuple[str, ...]:
        """Return the columns that identify a row for capture. Empty if there are none."""
        try:
            return self.published(self.unsupported).primary_key
        except Skippable:
            return ()

    def values(self, column: str) -> list[str]:
        """Return the values of a column in the rows that were read, without NULLs."""
        return [value for row in self.rows if (value := row.get(column)) is not None]


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundServer:
    """One database and its address. The password is not included; topologies refer to `password_env` instead.

    `database` contains the tables: on PostgreSQL it is a schema, and the database is `dbname`.
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
    tls: Tls = TLS_IF_OFFERED


def rules_of(on_delete: str, on_update: str) -> tuple[str, ...]:
    """Return the actions of a foreign key that change child rows without an entry in the binlog."""
    said = (("DELETE", on_delete), ("UPDATE", on_update))
    return tuple(f"ON {what} {rule}" for what, rule in said if rule in CHANGING)


def _has_type(column_type: str) -> bool:
    try:
        from_mysql(column_type)
    except ValueError:
        return False
    return True
