"""The input of `tailorbird init` from databases: tables, keys, references and a few rows.

`tailorbird.deploy.draft.mysql_shape` and `pg_shape` read it. All guesses are based on it.
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
    """A reference from rows of `child` to a row of `parent`: `columns` have the values of its columns `referenced`.

    `guessed`: the reason for a reference without a foreign key. `rules`: referential actions of the foreign key, such
    as `ON DELETE CASCADE`.
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
    """One table or view. `rows`: some of its rows, as the server prints them. `count`: estimated number of rows.

    `fault`: why the table cannot be captured from the log; empty if no reason is known.
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
        """The table's id."""
        return self.schema.table_id

    @property
    def name(self) -> str:
        """The table's name in its database."""
        return self.schema.table_id.table

    def published(self, ignored: tuple[str, ...]) -> TableSchema:
        """Return the schema of the published rows. Skippable, with a remedy, if they cannot be published."""
        return published(self.schema, self.keys, TableRule(ignored_columns=ignored))

    @property
    def unsupported(self) -> tuple[str, ...]:
        """The columns of types that are not captured."""
        return tuple(column.name for column in self.schema.columns if not _has_type(column.column_type))

    @property
    def key(self) -> tuple[str, ...]:
        """The columns that identify a row for capture; empty if there are none."""
        try:
            return self.published(self.unsupported).primary_key
        except Skippable:
            return ()

    def values(self, column: str) -> list[str]:
        """Return a column's values in the rows that were read, without NULLs."""
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


def rules_of(on_delete: str, on_update: str) -> tuple[str, ...]:
    """Return a foreign key's actions on its child that the binlog does not contain."""
    said = (("DELETE", on_delete), ("UPDATE", on_update))
    return tuple(f"ON {what} {rule}" for what, rule in said if rule in CHANGING)


def _has_type(column_type: str) -> bool:
    try:
        from_mysql(column_type)
    except ValueError:
        return False
    return True
