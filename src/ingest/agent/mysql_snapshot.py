"""All rows of the captured tables as of one moment, read without locks and page by page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pymysql.cursors import SSCursor

from cdc.schema import TableId, TableSchema
from cdc.topology import Source
from cdc.types import Canonical
from ingest.agent.facts import Image, Refused
from ingest.agent.mysql_connection import Connection, translated
from ingest.agent.values import FromText, Unrepresentable, from_text, select_expression

PAGE = 500  # rows held at a time


def read_rows(
    connection: Connection, source: Source, schemas: Mapping[TableId, TableSchema]
) -> Iterator[tuple[TableSchema, list[Image]]]:
    """Pages of every table's rows, all as of the moment of the first page; each table yields one page at least.

    A consistent snapshot of InnoDB takes no locks beyond the metadata lock of reading a table, which only DDL on that
    table waits for. DDL in between makes the read fail with Retriable: the snapshot begins again.
    """
    with translated(source, "begin a consistent snapshot"), connection.cursor() as cursor:
        cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        cursor.execute("SET SESSION net_write_timeout = 3600, wait_timeout = 86400")
        cursor.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")
    for schema in schemas.values():
        yield from _table(connection, source, schema)


def _table(connection: Connection, source: Source, schema: TableSchema) -> Iterator[tuple[TableSchema, list[Image]]]:
    table = schema.table_id
    columns = ", ".join(select_expression(column, quoted(column.name)) for column in schema.columns)
    sql = f"SELECT {columns} FROM {quoted(table.database)}.{quoted(table.table)}"
    readers = [(column.name, from_text(column)) for column in schema.columns]
    # Not closed when reading fails: the cursor would first read the rest of the table; the connection goes with it.
    cursor = connection.cursor(SSCursor)
    with translated(source, f"read {table}"):
        cursor.execute(sql)
    while True:
        with translated(source, f"read {table}"):
            rows = cursor.fetchmany(PAGE)
        yield schema, [image_of(readers, row) for row in rows]
        if not rows:
            return


def image_of(readers: list[tuple[str, FromText]], row: tuple[Any, ...]) -> Image:
    """A row as a SELECT of `select_expression`s returned it → its image, or its refusal naming the columns."""
    values: dict[str, Canonical] = {}
    refused: list[str] = []
    for (name, read), value in zip(readers, row, strict=True):
        if value is None:
            values[name] = None
            continue
        try:
            values[name] = read(value)
        except Unrepresentable as error:
            values[name] = value.hex() if isinstance(value, bytes) else value
            refused.append(f"column {name}: {error}")
    return Refused(values=values, why="; ".join(refused)) if refused else values


def quoted(name: str) -> str:
    """A name as MySQL and MariaDB read it whatever it holds."""
    return "`" + name.replace("`", "``") + "`"
