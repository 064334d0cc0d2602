"""Tables of the sources: identity, columns, primary key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from cdc.model.escapes import dotted
from cdc.model.types import Canonical, LogicalType, from_mysql


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class TableId:
    """One table of one source; `str()` returns `source.database.table`, the form used in keys and messages."""

    source: str
    database: str
    table: str

    def __str__(self) -> str:
        return dotted(self.source, self.database, self.table)

    @property
    def name(self) -> str:
        """Return `database.table`, the form used in signals and in the progress of snapshots."""
        return dotted(self.database, self.table)


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column; `column_type` as information_schema prints it (`int unsigned`, `decimal(10,2)`).

    `collation` is None if it is unknown or there is none. `default` is the value of the column in rows that were
    written before it was added: a canonical value, meaningful only if `default_known` (an expression's value is
    unknown).
    """

    name: str
    column_type: str
    nullable: bool = True
    charset: str | None = None
    collation: str | None = None
    default: Canonical = None
    default_known: bool = False

    @property
    def type(self) -> LogicalType:
        """Return the logical type that every later stage works with. Raises ValueError for an unknown type."""
        return from_mysql(self.column_type)

    def to_json(self) -> dict[str, Any]:
        """Return a JSON value that `column_from_json` reads back; unknown attributes are absent."""
        value: dict[str, Any] = {
            "name": self.name,
            "column_type": self.column_type,
            "nullable": self.nullable,
            "charset": self.charset,
        }
        if self.collation is not None:
            value["collation"] = self.collation
        if self.default_known:
            value["default"] = self.default
        return value


# Thousands of tables have equal columns, such as those of a schema per tenant: they share one object.
_shared = lru_cache(1 << 16)(Column)


def column_of(*, default: Canonical = None, **attributes: Any) -> Column:
    """Return a column with these attributes. Equal columns without a default are one object. Raises TypeError for other
    attributes."""
    # values of a default may be equal though they differ, such as 1 and True
    return _shared(**attributes) if default is None else Column(default=default, **attributes)


def column_from_json(value: Mapping[str, Any]) -> Column:
    """Read a column; inverse of `Column.to_json`, also for records without `collation` and `default`. Raises TypeError
    for anything else."""
    return column_of(**value, default_known="default" in value)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSchema:
    """A table's columns in ordinal order and its primary key (column names; empty if it has none).

    `former`: dropped columns with their last definition, each with the name of the column before it (empty: it was the
    first). Only readers of the past know them; they are not stored.

    `left_out`: names and types of columns that are not captured because of their type, such as `geometry`.
    """

    table_id: TableId
    version: int
    columns: tuple[Column, ...]
    primary_key: tuple[str, ...]
    former: tuple[tuple[str, Column], ...] = ()
    left_out: tuple[tuple[str, str], ...] = ()

    def column(self, name: str) -> Column | None:
        """Return the column of that name, a former one if it was dropped, or None."""
        return next((column for column in (*self.columns, *(c for _, c in self.former)) if column.name == name), None)

    def places(self) -> tuple[str, ...]:
        """Return the names of all columns, with former ones in their old places."""
        names = [column.name for column in self.columns]
        for before, column in self.former:
            names.insert(names.index(before) + 1 if before in names else 0, column.name)
        return tuple(names)

    def to_json(self) -> dict[str, Any]:
        """Return the value of a record in the topic `…schemas`; inverse of `schema_from_json`."""
        value: dict[str, Any] = {
            "format": 1,
            "source": self.table_id.source,
            "database": self.table_id.database,
            "table": self.table_id.table,
            "version": self.version,
            "columns": [column.to_json() for column in self.columns],
            "primary_key": list(self.primary_key),
        }
        if self.left_out:
            value["left_out"] = [list(one) for one in self.left_out]
        return value


def schema_from_json(value: dict[str, Any]) -> TableSchema:
    """Read a record of the topic `…schemas`. Raises KeyError or ValueError if it is not one."""
    if value["format"] != 1:
        raise ValueError(f"schema record of format {value['format']}, this version reads format 1")
    return TableSchema(
        table_id=TableId(source=value["source"], database=value["database"], table=value["table"]),
        version=value["version"],
        columns=tuple(column_from_json(column) for column in value["columns"]),
        primary_key=tuple(value["primary_key"]),
        left_out=tuple((name, column_type) for name, column_type in value.get("left_out", ())),
    )
