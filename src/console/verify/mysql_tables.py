"""Reads whole source tables for the comparison, apart from the capture's code: neither can hide the other's faults."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pymysql

from cdc.topology.topology import Source
from cdc.words.schema import TableId
from cdc.words.types import LogicalType, from_mysql


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceTable:
    """All rows of a table as the driver gives them, with its columns' names and types in ordinal order."""

    columns: tuple[tuple[str, LogicalType], ...]
    rows: list[tuple[Any, ...]]


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
            columns = tuple(_columns(cursor.fetchall(), rule.ignored_columns if rule else ()))
            names = ", ".join(_read(name, type_) for name, type_ in columns)
            cursor.execute(f"SELECT {names} FROM {_quoted(table.database)}.{_quoted(table.table)}")
            found[table] = SourceTable(columns=columns, rows=list(cursor.fetchall()))
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


def _read(name: str, type_: LogicalType) -> str:
    # the driver gives bits as bytes
    return f"{_quoted(name)} + 0" if type_.kind == "bool" else _quoted(name)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
