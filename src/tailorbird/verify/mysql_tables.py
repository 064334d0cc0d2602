"""Reads whole source tables for the comparison. Values come apart from the capture's code: neither can hide the other's
faults; only the connection is made as the capture makes it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pymysql
from pymysql.cursors import Cursor

from cdc.model.event import Position
from cdc.model.filters import TableRule
from cdc.model.schema import Column, TableId, TableSchema
from cdc.model.types import LogicalType, from_mysql
from cdc.topology.topology import Source
from ingest.mysql.mysql_connection import Connection, query, settings, translated
from ingest.mysql.mysql_schema import head
from tailorbird.verify.positions import text_of


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceTable:
    """All rows of a table as the driver gives them, with its columns' names and types in ordinal order.

    `schema`: what a query over it is compiled with, where that is asked for. `json_as_logged`: JSON stands in `rows` as
    the log has it; else as MySQL prints it.
    """

    columns: tuple[tuple[str, LogicalType], ...]
    rows: list[tuple[Any, ...]]
    schema: TableSchema | None = None
    json_as_logged: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TablesSnapshot:
    """Tables of a source in one consistent snapshot. `position`: where the server's log was when the snapshot was
    open, as text (`positions.text_of`), so at least all that the tables show.
    """

    position: str
    tables: Mapping[TableId, SourceTable]


def read_tables(source: Source) -> dict[TableId, SourceTable]:
    """Every captured table of a source, read in one consistent snapshot. Retriable while it is away."""
    return dict(read_snapshot(source, source.tables).tables)


def read_snapshot(source: Source, tables: Iterable[TableId]) -> TablesSnapshot:
    """Some tables of a source, whole, read in one consistent snapshot. Retriable while it is away."""
    with translated(source, "read its tables"):
        connection = pymysql.connect(**settings(source), init_command="SET time_zone = '+00:00'")
        with connection, connection.cursor() as cursor:
            cursor.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT")
            # asked for after the snapshot began: a position from before it might lack what the snapshot shows
            position = _position(connection, source)
            found = {table: _read_table(cursor, source, table) for table in tables}
    return TablesSnapshot(position=position, tables=found)


def _position(connection: Connection, source: Source) -> str:
    """The GTIDs that the server has executed; the end of its log where it numbers no transactions."""
    if source.type == "mariadb":
        ((numbered,),) = query(connection, "SELECT @@GLOBAL.gtid_binlog_pos")
    else:
        ((mode, executed),) = query(connection, "SELECT @@GLOBAL.gtid_mode, @@GLOBAL.gtid_executed")
        numbered = executed if mode == "ON" else ""
    if numbered:
        return str(numbered).replace("\n", "")
    end = head(connection, source)
    return text_of(Position(file=end.file, pos=end.pos, gtid_set="", sequence=0))


def _read_table(cursor: Cursor, source: Source, table: TableId) -> SourceTable:
    cursor.execute(
        "SELECT column_name, column_type FROM information_schema.columns"
        " WHERE table_schema = %s AND table_name = %s ORDER BY ordinal_position",
        (table.database, table.table),
    )
    rule = source.rules.get(table, TableRule())
    shown = list(cursor.fetchall())
    columns = tuple(_columns(shown, rule.leaves_out))
    cursor.execute(
        "SELECT column_name FROM information_schema.statistics"
        " WHERE table_schema = %s AND table_name = %s AND index_name = 'PRIMARY' ORDER BY seq_in_index",
        (table.database, table.table),
    )
    schema = _schema(table, dict(shown), columns, [str(name) for (name,) in cursor.fetchall()])
    names = ", ".join(_read(name, type_) for name, type_ in columns)
    cursor.execute(f"SELECT {names} FROM {_quoted(table.database)}.{_quoted(table.table)}")
    bits = {n for n, (name, type_) in enumerate(columns) if type_.kind == "bytes" and _is_bit(dict(shown)[name])}
    rows = list(cursor.fetchall())
    if bits:
        rows = [tuple(_turned(value) if n in bits else value for n, value in enumerate(row)) for row in rows]
    return SourceTable(columns=columns, rows=rows, schema=schema)


def _is_bit(column_type: object) -> bool:
    return str(column_type).lower().startswith("bit")


def _turned(value: Any) -> Any:
    """A BIT as the log has it: its bytes come in the other order from the driver."""
    return value[::-1] if isinstance(value, bytes) else value


def _columns(
    shown: Iterable[tuple[object, object]], ignored: Callable[[str], bool]
) -> Iterator[tuple[str, LogicalType]]:
    """The columns that leave the source: those of types that are not captured stay there, as ignored ones do."""
    for name, column_type in shown:
        if ignored(str(name)):
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
    if type_.kind == "list":  # the driver takes a vector's bytes for text
        return f"HEX({_quoted(name)})"
    if type_.kind == "float32":  # the server prints six digits of it
        return f"{_quoted(name)} * 1e0"
    # the driver gives bits as bytes
    return f"{_quoted(name)} + 0" if type_.kind == "bool" else _quoted(name)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
