"""Tables of the sources as Tailorbird knows them: identity, columns, primary key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cdc.model.escapes import dotted
from cdc.model.types import Canonical, LogicalType, from_mysql


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class TableId:
    """One table of one source; `str()` gives `source.database.table`, the form used in keys and messages."""

    source: str
    database: str
    table: str

    def __str__(self) -> str:
        return dotted(self.source, self.database, self.table)

    @property
    def name(self) -> str:
        """`database.table`, the form used in signals and in the states of what is under way."""
        return dotted(self.database, self.table)


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column; `column_type` as information_schema prints it (`int unsigned`, `decimal(10,2)`).

    `collation` is None where it is not known, or there is none. `default` is what rows read in the column that were
    there before it: a canonical value, meaningful only where `default_known` (an expression's value is not known).
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
        """The logical type that every later stage works with."""
        return from_mysql(self.column_type)

    def to_json(self) -> dict[str, Any]:
        """A JSON value that `column_from_json` reads back; what is not known is absent."""
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


def column_from_json(value: Mapping[str, Any]) -> Column:
    """Inverse of `Column.to_json`, of records without `collation` and `default` too; TypeError for anything else."""
    return Column(**value, default_known="default" in value)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSchema:
    """A table's columns in ordinal order and its primary key (column names; empty when it has none).

    `former`: columns that it has no more but had, as they were last, each with the name of the one that stood before it
    (empty: it was the first). Only who reads the past knows them; they are not stored.

    `left_out`: names and types of columns that are not captured since their type is not, such as `geometry`.
    """

    table_id: TableId
    version: int
    columns: tuple[Column, ...]
    primary_key: tuple[str, ...]
    former: tuple[tuple[str, Column], ...] = ()
    left_out: tuple[tuple[str, str], ...] = ()

    def column(self, name: str) -> Column | None:
        """The column of that name, one that it had where it has none, or None."""
        return next((column for column in (*self.columns, *(c for _, c in self.former)) if column.name == name), None)

    def places(self) -> tuple[str, ...]:
        """The names of all columns, those of before where they stood."""
        names = [column.name for column in self.columns]
        for before, column in self.former:
            names.insert(names.index(before) + 1 if before in names else 0, column.name)
        return tuple(names)

    def to_json(self) -> dict[str, Any]:
        """The value of a record in the topic `…schemas`; inverse of `schema_from_json`."""
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
    """Read a record of the topic `…schemas`; KeyError or ValueError when it is not one."""
    if value["format"] != 1:
        raise ValueError(f"schema record of format {value['format']}, this version reads format 1")
    return TableSchema(
        table_id=TableId(source=value["source"], database=value["database"], table=value["table"]),
        version=value["version"],
        columns=tuple(column_from_json(column) for column in value["columns"]),
        primary_key=tuple(value["primary_key"]),
        left_out=tuple((name, column_type) for name, column_type in value.get("left_out", ())),
    )
