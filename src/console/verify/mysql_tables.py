"""Reads whole source tables for the comparison, apart from the capture's code: neither can hide the other's faults."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pymysql

from cdc.topology.topology import Source
from cdc.words.schema import Column, TableId, TableSchema
from cdc.words.types import LogicalType, from_mysql


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceTable:
    """All rows of a table as the driver gives them, with its columns' names and types in ordinal order.

    `schema`: what a query over it is compiled with, where that is asked for.
    """

    columns: tuple[tuple[str, LogicalType], ...]
    rows: list[tuple[Any, ...]]
    schema: TableSchema | None = None


def read_tables(source: Source) -> dict[TableId, SourceTable]:
    """Every captured table of a source, read in one consistent snapshot."""
    connection = pymysql.connect(
        host=source.hostname,
        port=source.port,
        user=source.username,
        password=source.password,
        charset="utf8mb4",
        init_command="SET time_zone = '+00:00'",
    )
    found: dict[TableId, SourceTable] = {}
    with connection, connection.cursor() as cursor:
        cursor.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT")
        for table in source.tables:
            cursor.execute(
                "SELECT column_name, column_type FROM information_schema.columns"
                " WHERE table_schema = %s AND table_name = %s ORDER BY ordinal_position",
                (table.database, table.table),
            )
            rule = source.rules.get(table)
            shown = list(cursor.fetchall())
            columns = tuple(_columns(shown, rule.ignored_columns if rule else ()))
            cursor.execute(
                "SELECT column_name FROM information_schema.statistics"
                " WHERE table_schema = %s AND table_name = %s AND index_name = 'PRIMARY' ORDER BY seq_in_index",
                (table.database, table.table),
            )
            schema = _schema(table, dict(shown), columns, [str(name) for (name,) in cursor.fetchall()])
            names = ", ".join(_read(name, type_) for name, type_ in columns)
            cursor.execute(f"SELECT {names} FROM {_quoted(table.database)}.{_quoted(table.table)}")
            found[table] = SourceTable(columns=columns, rows=list(cursor.fetchall()), schema=schema)
    return found


def _columns(shown: Iterable[tuple[object, object]], ignored: tuple[str, ...]) -> Iterator[tuple[str, LogicalType]]:
    """The columns that leave the source: those of types that are not captured stay there, as ignored ones do."""
    for name, column_type in shown:
        if str(name) in ignored:
            continue
        try:
            yield str(name), from_mysql(str(column_type))
        except ValueError:
            continue


def _schema(
    table: TableId, types: Mapping[object, object], columns: Iterable[tuple[str, LogicalType]], key: Iterable[str]
) -> TableSchema:
    kept = tuple(Column(name=name, column_type=str(types[name])) for name, _ in columns)
    return TableSchema(table_id=table, version=1, columns=kept, primary_key=tuple(key))


def _read(name: str, type_: LogicalType) -> str:
    # the driver gives bits as bytes
    return f"{_quoted(name)} + 0" if type_.kind == "bool" else _quoted(name)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
