"""Read whole MySQL and MariaDB tables for a comparison.

Values are decoded without the code of the capture, so that a fault in that code is found. Only the connection is
shared."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import pymysql
from pymysql.cursors import Cursor

from cdc.model.event import Position
from cdc.model.filters import TableRule
from cdc.model.patterns import MergedTable, merged_named
from cdc.model.schema import Column, TableId, TableSchema
from cdc.model.types import LogicalType, from_mysql
from cdc.topology.topology import Source
from ingest.mysql.mysql_connection import Connection, query, settings, translated
from ingest.mysql.mysql_schema import captured_schemas, head
from tailorbird.verify.positions import text_of


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceTable:
    """All rows of a table as the database driver returns them, with names and types of the columns.

    `schema` is the schema for the compilation of a query, if requested. With `json_as_logged`, JSON values have the
    form of the topic, otherwise the form that MySQL prints."""

    columns: tuple[tuple[str, LogicalType], ...]
    rows: list[tuple[Any, ...]]
    schema: TableSchema | None = None
    json_as_logged: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TablesSnapshot:
    """Tables of a source from one consistent snapshot.

    `position` is the server's log position (`positions.text_of`), read after the snapshot began. It covers at least
    all changes in the tables."""

    position: str
    tables: Mapping[TableId, SourceTable]


def united(
    merged: MergedTable, schemas: Mapping[TableId, TableSchema], read: Callable[[TableId], SourceTable]
) -> SourceTable:
    """Return the rows of a merged table: those of all its tables that fit, with the database of each.

    `schemas` are the published schemas of these tables and the merged table, `read` returns the rows of one of them."""
    whole = schemas.get(merged.table_id)
    if whole is None:
        return SourceTable(columns=((merged.column, from_mysql("varchar(64)")),), rows=[])
    names = [column.name for column in whole.columns[1:]]
    rows: list[tuple[Any, ...]] = []
    types: dict[str, LogicalType] = {}
    one: SourceTable | None = None
    for table in sorted(filter(merged.covers, schemas)):
        one = read(table)
        types = dict(one.columns)
        places = [list(types).index(name) for name in names]
        rows += [(table.database, *(row[place] for place in places)) for row in one.rows]
    columns = tuple((column.name, types.get(column.name, column.type)) for column in whole.columns)
    return SourceTable(columns=columns, rows=rows, schema=whole, json_as_logged=one is not None and one.json_as_logged)


def read_tables(source: Source) -> dict[TableId, SourceTable]:
    """Read all captured tables of a source in one consistent snapshot. Raises Retriable while the source is
    unavailable."""
    return dict(read_snapshot(source, source.tables).tables)


def read_snapshot(source: Source, tables: Iterable[TableId]) -> TablesSnapshot:
    """Read the given tables of a source in one consistent snapshot. Raises Retriable while the source is
    unavailable."""
    with translated(source, "read its tables"):
        connection = pymysql.connect(**settings(source), init_command="SET time_zone = '+00:00'")
        with connection, connection.cursor() as cursor:
            cursor.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT")
            # queried after the snapshot began: an earlier position might not cover what the snapshot contains
            position = _position(connection, source)
            found: dict[TableId, SourceTable] = {}
            schemas = captured_schemas(connection, source) if source.merged else {}
            for table in tables:
                merged = merged_named(table, source.merged)
                read = partial(_read_table, cursor, source)
                found[table] = read(table) if merged is None else united(merged, schemas, read)
    return TablesSnapshot(position=position, tables=found)


def _position(connection: Connection, source: Source) -> str:
    """Return the executed GTID set, or the end of the log on a server without GTIDs."""
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
    rule = source.rule_of(table) or TableRule()
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
    """Return a BIT value in the byte order of the topic, which is the reverse of the driver's."""
    return value[::-1] if isinstance(value, bytes) else value


def _columns(
    shown: Iterable[tuple[object, object]], ignored: Callable[[str], bool]
) -> Iterator[tuple[str, LogicalType]]:
    """Yield the captured columns with their types. Ignored columns and unsupported types are left out."""
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
    if type_.kind == "list":  # the driver would decode a vector's bytes as text
        return f"HEX({_quoted(name)})"
    if type_.kind == "float32":  # the server prints only six digits
        return f"{_quoted(name)} * 1e0"
    # the driver returns bits as bytes
    return f"{_quoted(name)} + 0" if type_.kind == "bool" else _quoted(name)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
