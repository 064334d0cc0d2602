"""Definitions of a server's databases and tables at one position of its log. Statements are applied to a `Catalog`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Literal, TypeVar

from cdc.model.identifiers import fold_identifier
from cdc.model.schema import Column, TableId, TableSchema, column_of
from cdc.model.types import Canonical
from cdc.persistent import persistent
from ingest.ddl.defaults import converted_initial
from ingest.ddl.errors import DdlNotUnderstood

TableName = tuple[str, str]  # database, table
KeyKind = Literal["primary", "unique", "plain"]
V = TypeVar("V")


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnDefinition:
    """Definition of a column. `column_type`, `charset` and `collation` are as information_schema prints them.

    `default` and `rest` (generation expression, ON UPDATE, …) are parts of the statement, used only to compare
    definitions. `initial` is the column's value in rows that were written before the column was added. It is valid only
    if `initial_known`.
    """

    name: str
    column_type: str
    nullable: bool
    charset: str | None
    default: str = ""
    rest: str = ""
    collation: str | None = None
    initial: Canonical = None
    initial_known: bool = False

    @property
    def column(self) -> Column:
        """Return the column as `cdc.model.schema.Column`, the form that all stages use."""
        return column_of(
            name=self.name,
            column_type=self.column_type,
            nullable=self.nullable,
            charset=self.charset,
            collation=self.collation,
            default=self.initial if self.initial_known else None,
            default_known=self.initial_known,
        )

    def to_json(self) -> dict[str, Any]:
        """Return the definition as a JSON value: its attributes."""
        return {
            "name": self.name,
            "column_type": self.column_type,
            "nullable": self.nullable,
            "charset": self.charset,
            "default": self.default,
            "rest": self.rest,
            "collation": self.collation,
            "initial": self.initial,
            "initial_known": self.initial_known,
        }


# Equal columns of thousands of tables share one object, and one JSON value, which is never changed.
_shared_definition = lru_cache(1 << 16)(ColumnDefinition)
_shared_json = lru_cache(1 << 16)(ColumnDefinition.to_json)


def column_definition(*, initial: Canonical = None, **attributes: Any) -> ColumnDefinition:
    """Return a definition with these attributes. Equal ones without an initial value are one object. Raises TypeError
    for other attributes."""
    # initial values may be equal though they differ, such as 1 and True
    return _shared_definition(**attributes) if initial is None else ColumnDefinition(initial=initial, **attributes)


def _column_json(column: ColumnDefinition) -> dict[str, Any]:
    return _shared_json(column) if column.initial is None else column.to_json()


def definition_of(column: Column) -> ColumnDefinition:
    """Return the definition of a `cdc.model.schema.Column`; inverse of `ColumnDefinition.column`."""
    return ColumnDefinition(
        name=column.name,
        column_type=column.column_type,
        nullable=column.nullable,
        charset=column.charset,
        collation=column.collation,
        initial=column.default,
        initial_known=column.default_known,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """A key or index. A part that is an expression has an empty name."""

    name: str
    kind: KeyKind
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableDefinition:
    """Columns of a table in order, its keys, and the default character set and collation (None: not known).

    `identity` is a number, if the server has one, that a table created later under the same name does not share.
    `engine` is empty if unknown. `sequence`: it is a sequence of MariaDB. `versioned` are the two period columns of a
    table whose row history MariaDB keeps; those that are missing in `columns` are hidden columns.

    `former` are the names of columns that were dropped, folded: older rows of the log may contain values under them.
    """

    columns: tuple[ColumnDefinition, ...]
    keys: tuple[Key, ...] = ()
    charset: str | None = None
    collation: str | None = None
    identity: str = ""
    engine: str = ""
    sequence: bool = False
    versioned: tuple[str, str] | None = None
    former: frozenset[str] = frozenset()

    def column(self, name: str) -> ColumnDefinition | None:
        """Return the column of that name in any case, or None."""
        low = fold_identifier(name)
        return next((column for column in self.columns if fold_identifier(column.name) == low), None)

    @property
    def primary_key(self) -> tuple[str, ...]:
        """Return the primary key's columns in key order."""
        return next((key.columns for key in self.keys if key.kind == "primary"), ())

    def shown(self) -> tuple[object, ...]:
        """Return what information_schema.COLUMNS shows of the table. If the result is equal, no column has changed."""
        leading = {fold_identifier(key.columns[0]): key.kind for key in reversed(self.keys) if key.columns}
        primary = {fold_identifier(name) for name in self.primary_key}
        return tuple(
            (
                replace(column, initial=None, initial_known=False),
                "primary" if fold_identifier(column.name) in primary else leading.get(fold_identifier(column.name)),
            )
            for column in self.columns
        )

    def schema(self, table_id: TableId, version: int) -> TableSchema:
        """Return the table as `TableSchema`, the form that all stages use, with this version number."""
        columns = tuple(definition.column for definition in self.columns)
        return TableSchema(table_id=table_id, version=version, columns=columns, primary_key=self.primary_key)

    def to_json(self) -> dict[str, Any]:
        """Return the definition as a JSON value; inverse of `table_from_json`."""
        return {
            "columns": [_column_json(column) for column in self.columns],
            "keys": [{"name": key.name, "kind": key.kind, "columns": list(key.columns)} for key in self.keys],
            "charset": self.charset,
            "collation": self.collation,
            **({"identity": self.identity} if self.identity else {}),
            **({"engine": self.engine} if self.engine else {}),
            **({"sequence": True} if self.sequence else {}),
            **({"versioned": list(self.versioned)} if self.versioned else {}),
            **({"former": sorted(self.former)} if self.former else {}),
        }


def table_from_json(value: Mapping[str, Any]) -> TableDefinition:
    """Decode a value of `TableDefinition.to_json`. Raises KeyError or TypeError for anything else."""
    return TableDefinition(
        columns=tuple(column_definition(**column) for column in value["columns"]),
        keys=tuple(Key(name=k["name"], kind=k["kind"], columns=tuple(k["columns"])) for k in value["keys"]),
        charset=value["charset"],
        collation=value.get("collation"),
        identity=value.get("identity", ""),
        engine=value.get("engine", ""),
        sequence=value.get("sequence", False),
        versioned=tuple(value["versioned"]) if value.get("versioned") else None,
        former=frozenset(value.get("former", ())),
    )


def with_former(before: TableDefinition | None, table: TableDefinition) -> TableDefinition:
    """Return the table with the names of the columns that it had `before`; None: it is new."""
    if before is None or before.identity != table.identity:
        return table
    names = {fold_identifier(column.name) for column in table.columns}
    former = before.former | {name for column in before.columns if (name := fold_identifier(column.name)) not in names}
    return table if former == table.former else replace(table, former=former)


def with_keys_applied(table: TableDefinition) -> TableDefinition:
    """Return the table with column names in keys spelled as in its columns, and with NOT NULL primary key columns.

    Raises DdlNotUnderstood for a primary key with an unknown column.
    """
    spelt = {fold_identifier(column.name): column.name for column in table.columns}
    primary = {fold_identifier(name) for name in table.primary_key}
    if missing := sorted(primary - set(spelt)):
        raise DdlNotUnderstood(f"the primary key names {missing[0]!r}, which is not a column")
    keys = tuple(
        replace(k, columns=tuple(spelt.get(fold_identifier(part), part) for part in k.columns)) for k in table.keys
    )
    columns = tuple(_required(c) if fold_identifier(c.name) in primary else c for c in table.columns)
    return replace(table, columns=columns, keys=keys)


def _required(column: ColumnDefinition) -> ColumnDefinition:
    if not column.nullable or not column.initial_known:
        return replace(column, nullable=False)
    initial, known = converted_initial(column.initial, column.column_type, column.column_type, nullable=False)
    return replace(column, nullable=False, initial=initial, initial_known=known)


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalog:
    """Databases and tables of a server, and which tables have unknown columns.

    `databases` maps each database to its default character set, `collations` to its default collation. `unknown` maps
    tables with unknown columns to the reason. `default_charset` is that of the server. `temporary` are (session,
    database, table) of temporary tables; each hides the table of the same name from its session.
    """

    default_charset: str | None = None
    databases: Mapping[str, str | None] = field(default_factory=dict)
    collations: Mapping[str, str] = field(default_factory=dict)
    tables: Mapping[TableName, TableDefinition] = field(default_factory=dict)
    unknown: Mapping[TableName, str] = field(default_factory=dict)
    temporary: frozenset[tuple[int, str, str]] = frozenset()

    def __post_init__(self) -> None:
        # so that a statement costs as much as the tables that it changes, however many there are
        object.__setattr__(self, "tables", persistent(self.tables))
        object.__setattr__(self, "unknown", persistent(self.unknown))

    def with_table(self, name: TableName, table: TableDefinition) -> Catalog:
        """Return a copy with this table, whose columns are known. It remembers the columns that it had before."""
        table = with_former(self.tables.get(name), table)
        return replace(self, tables=persistent(self.tables).put(name, table), unknown=_without(self.unknown, name))

    def without_table(self, name: TableName) -> Catalog:
        """Return a copy without this table."""
        return replace(self, tables=_without(self.tables, name), unknown=_without(self.unknown, name))

    def with_unknown(self, name: TableName, why: str) -> Catalog:
        """Return a copy in which the columns of this table are unknown, for a reason."""
        unknown = self.unknown if name in self.unknown else persistent(self.unknown).put(name, why)
        return replace(self, tables=_without(self.tables, name), unknown=unknown)

    def with_database(self, database: str, charset: str | None, collation: str | None = None) -> Catalog:
        """Return a copy with the default character set and collation of this database."""
        others = {name: known for name, known in self.collations.items() if name != database}
        return replace(
            self,
            databases={**self.databases, database: charset},
            collations={**others, database: collation} if collation else others,
        )

    def without_database(self, database: str) -> Catalog:
        """Return a copy without this database and its tables."""
        return replace(
            self,
            databases={name: charset for name, charset in self.databases.items() if name != database},
            collations={name: collation for name, collation in self.collations.items() if name != database},
            tables={name: table for name, table in self.tables.items() if name[0] != database},
            unknown={name: why for name, why in self.unknown.items() if name[0] != database},
        )


def _without(mapping: Mapping[TableName, V], name: TableName) -> Mapping[TableName, V]:
    return persistent(mapping).without(name) if name in mapping else mapping
