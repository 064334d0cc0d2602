"""Build the SELECTs of a snapshot in chunks for PostgreSQL. Values are passed as arguments, in the server's text form.

Tables can be read in chunks along every kind of key: its index has the order of `>`, and a text contains the whole
value.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from typing import Any

from cdc.model.schema import TableId, TableSchema
from cdc.topology.topology import Source
from ingest.events.log_events import Row

Argument = bytes


def quoted(name: str) -> str:
    """Quote an identifier for SQL."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """Quote a text as an SQL literal, for statements without arguments."""
    return "'" + text.replace("'", "''") + "'"


def in_schemas(source: Source) -> str:
    """Return the condition that a table `c` of pg_class, in the schema `n` of pg_namespace, may be captured."""
    found = [f"n.nspname IN ({', '.join(map(literal, sorted(source.databases)))})"]
    for merged in source.merged:
        which = f"n.nspname LIKE {literal(merged.like())} ESCAPE '!'"
        found.append(f"({which} AND c.relname = {literal(merged.table_id.table)})")
    return f"({' OR '.join(found)})"


def named(table: TableId) -> str:
    """Return a table's name for SQL."""
    return f"{quoted(table.database)}.{quoted(table.table)}"


def rows_of(table: TableId, *, partitioned: bool) -> str:
    """Return what follows FROM to read a table. Except for a partitioned table, it begins with ONLY: rows of tables
    that inherit from it are left out."""
    return named(table) if partitioned else f"ONLY {named(table)}"


def select_rows(
    schema: TableSchema, rows: str, after: Sequence[Any] | None, last: Sequence[Any] | None, where: str, limit: int
) -> tuple[str, list[Argument]]:
    """Return the SELECT of the next chunk, and its arguments: up to `limit` rows with keys above `after` up to `last`.

    Its columns are those of the table, then the key. `rows` is the FROM clause; `where` is a condition, or empty.
    """
    keys = [quoted(name) for name in schema.primary_key]
    conditions, arguments = _between(keys, after, ("<=", last))
    if where:
        conditions.insert(0, f"({where})")
    columns = [*(quoted(column.name) for column in schema.columns), *keys]
    condition = " WHERE " + " AND ".join(conditions) if conditions else ""
    order = ", ".join(keys)
    return f"SELECT {', '.join(columns)} FROM {rows}{condition} ORDER BY {order} LIMIT {limit}", arguments


def _between(
    keys: Sequence[str], after: Sequence[Any] | None, bound: tuple[str, Sequence[Any] | None]
) -> tuple[list[str], list[Argument]]:
    """Return the conditions that the key is above one and fulfils a bound (sign, key), and their arguments."""
    conditions, arguments = list[str](), list[Argument]()
    for sign, place in ((">", after), bound):
        if place is not None:
            marks = ", ".join(f"${len(arguments) + n}" for n in range(1, len(keys) + 1))
            conditions.append(f"({', '.join(keys)}) {sign} ({marks})")
            arguments += [str(value).encode() for value in place]
    return conditions, arguments


def select_sample(
    schema: TableSchema, rows: str, after: Sequence[Any], last: Sequence[Any], share: float
) -> tuple[str, list[Argument]]:
    """Return the SELECT of the keys between two in some percent of the table's blocks, in order, and its arguments."""
    keys = [quoted(name) for name in schema.primary_key]
    conditions, arguments = _between(keys, after, ("<", last))
    shown = ", ".join(keys)
    sample = f"{rows} TABLESAMPLE SYSTEM ({share:f})"
    return f"SELECT {shown} FROM {sample} WHERE {' AND '.join(conditions)} ORDER BY {shown}", arguments


def select_last(schema: TableSchema, rows: str, where: str) -> str:
    """Return the SELECT of the greatest key."""
    keys = [quoted(name) for name in schema.primary_key]
    condition = f" WHERE ({where})" if where else ""
    order = ", ".join(f"{key} DESC" for key in keys)
    return f"SELECT {', '.join(keys)} FROM {rows}{condition} ORDER BY {order} LIMIT 1"


def select_keys(schema: TableSchema, rows: str, keys: Iterable[Row]) -> tuple[str, list[Argument]]:
    """Return the SELECT of the rows with these keys (column → canonical value), and its arguments."""
    names = ", ".join(quoted(name) for name in schema.primary_key)
    found, arguments = list[str](), list[Argument]()
    for key in keys:
        marks = []
        for name in schema.primary_key:
            arguments.append(server_text(schema, name, key[name]).encode())
            marks.append(f"${len(arguments)}")
        found.append(f"({', '.join(marks)})")
    columns = ", ".join(quoted(column.name) for column in schema.columns)
    return f"SELECT {columns} FROM {rows} WHERE ({names}) IN ({', '.join(found)})", arguments


def where_keys(schema: TableSchema, keys: Iterable[Row]) -> str:
    """Return the SQL condition, without arguments, for the rows with these keys (column → canonical value).

    The server converts each text to the type of its column.
    """
    names = ", ".join(quoted(name) for name in schema.primary_key)
    rows = (", ".join(literal(server_text(schema, name, key[name])) for name in schema.primary_key) for key in keys)
    return f"({names}) IN ({', '.join(f'({row})' for row in rows)})"


def select_all(schema: TableSchema, rows: str, where: str) -> str:
    """Return the SELECT of all rows in one pass, in any order."""
    columns = ", ".join(quoted(column.name) for column in schema.columns)
    return f"SELECT {columns} FROM {rows}" + (f" WHERE ({where})" if where else "")


def server_text(schema: TableSchema, name: str, value: Any) -> str:
    """Return a canonical value of a column as a text that the server can parse."""
    column = schema.column(name)
    assert column is not None, "a key's columns are columns"
    match column.type.kind:
        case "bool":
            return "t" if value else "f"
        case "bytes":
            return "\\x" + base64.b64decode(str(value)).hex()
        case "date":
            return str(value).removesuffix("Z")
        case "datetime":
            return str(value).removesuffix("Z").replace("T", " ")
        case "timestamp":
            return str(value).removesuffix("Z").replace("T", " ") + "+00"
        case _:
            return str(value)
