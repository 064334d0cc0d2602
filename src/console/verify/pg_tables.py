"""Reads whole tables of a PostgreSQL source for the comparison. Values come by the driver, apart from the capture's
code; only the connection is made as the capture makes it."""

from __future__ import annotations

from typing import Any

import psycopg

from cdc.topology.topology import Source
from cdc.words.filters import TableRule
from cdc.words.schema import Column, TableId, TableSchema
from cdc.words.types import from_mysql
from console.verify.mysql_tables import SourceTable
from ingest.postgres.pg_connection import conninfo, translated

# By information_schema's data_type: the column type as MySQL writes it; all others are read as text.
_TYPES = {
    "boolean": "bit(1)", "smallint": "smallint", "integer": "int", "bigint": "bigint", "real": "float",
    "double precision": "double", "date": "date", "timestamp without time zone": "datetime(6)",
    "timestamp with time zone": "timestamp(6)", "bytea": "longblob",
}  # fmt: skip
_COLUMNS = """SELECT column_name, data_type, numeric_precision, numeric_scale FROM information_schema.columns
WHERE table_schema = %s AND table_name = %s AND is_generated = 'NEVER' ORDER BY ordinal_position"""
_KEY = """SELECT k.column_name FROM information_schema.table_constraints c JOIN information_schema.key_column_usage k
ON k.constraint_schema = c.constraint_schema AND k.constraint_name = c.constraint_name AND k.table_name = c.table_name
WHERE c.table_schema = %s AND c.table_name = %s AND c.constraint_type = 'PRIMARY KEY' ORDER BY k.ordinal_position"""


def read_postgres(source: Source) -> dict[TableId, SourceTable]:
    """Every captured table of a source, read in one consistent snapshot. Retriable while it is away."""
    with translated(source, "read its tables"), psycopg.connect(conninfo(source)) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        return {table: _read(connection, source, table) for table in source.tables}


def _read(connection: psycopg.Connection[Any], source: Source, table: TableId) -> SourceTable:
    rule = source.rules.get(table, TableRule(exact_case=True))
    shown = connection.execute(_COLUMNS, (table.database, table.table)).fetchall()
    types = {
        str(name): f"decimal({precision},{scale})" if kind == "numeric" and precision else _TYPES.get(kind, "longtext")
        for name, kind, precision, scale in shown
        if not rule.leaves_out(str(name))
    }
    parts = [_quoted(name) + ("::text" if kind == "longtext" else "") for name, kind in types.items()]
    names, whole = ", ".join(parts), f"{_quoted(table.database)}.{_quoted(table.table)}"
    rows = connection.execute(f"SELECT {names} FROM {whole}".encode()).fetchall()
    key = [str(name) for (name,) in connection.execute(_KEY, (table.database, table.table)).fetchall()]
    return SourceTable(
        columns=tuple((name, from_mysql(kind)) for name, kind in types.items()),
        rows=rows,
        schema=TableSchema(
            table_id=table,
            version=1,
            columns=tuple(Column(name=name, column_type=kind) for name, kind in types.items()),
            primary_key=tuple(key),
        ),
    )


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
