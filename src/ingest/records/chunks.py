"""Build the SELECTs of a snapshot in chunks, and decide which tables can be read in chunks.

A chunk is a range of the primary key. That works if the server orders key values exactly as it compares them with
literals: integers, decimals, dates, texts and bytes. Tables with other keys (floating-point numbers, ENUM, JSON), or
without a key, are read in one pass.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable
from typing import Any

from cdc.model.schema import Column, TableSchema
from ingest.events.log_events import Row
from ingest.events.values import select_expression

_WALKABLE = {
    "int8", "int16", "int32", "int64", "uint64", "decimal", "date", "datetime", "timestamp", "string", "bytes",
}  # fmt: skip
_NUMERIC = {"int8", "int16", "int32", "int64", "uint64", "decimal"}
_NUMBER = re.compile(r"-?\d+(\.\d+)?")


def quoted(name: str) -> str:
    """Quote an identifier for SQL."""
    return "`" + name.replace("`", "``") + "`"


def walkable(schema: TableSchema) -> bool:
    """Return whether a table can be read in chunks along its primary key."""
    columns = [schema.column(name) for name in schema.primary_key]
    return bool(columns) and all(
        column is not None and column.type.kind in _WALKABLE
        and not column.column_type.startswith(("enum", "set", "bit")) for column in columns
    )  # fmt: skip


def literal(column: Column, value: Any) -> str:
    """Return a key value in the form of `stored` as an SQL literal. Raises ValueError for an invalid number."""
    if isinstance(value, dict):
        return f"x'{bytes.fromhex(value['hex']).hex()}'"
    if column.type.kind in _NUMERIC:
        if not _NUMBER.fullmatch(value):
            raise ValueError(f"{value!r} is not a number")
        return str(value)
    text = str(value).replace("\\", "\\\\").replace("'", "''")
    return f"'{text}'"


def stored(value: str | bytes) -> Any:
    """Return a key value of a SELECT's result in the form that a checkpoint stores as JSON: bytes as `{"hex": …}`."""
    return {"hex": value.hex()} if isinstance(value, bytes) else value


def select_rows(schema: TableSchema, after: list[Any] | None, last: list[Any] | None, where: str, limit: int) -> str:
    """Return the SELECT of the next chunk: up to `limit` rows with keys above `after` and not above `last`, in key
    order.

    Its columns are those of the table, then the key columns without conversion. `after` and `last` are keys in the form
    of `stored`; None is no bound. `where` is an additional condition, or empty. Raises ValueError for an invalid key.
    """
    shown = [select_expression(column, quoted(column.name)) for column in schema.columns]
    shown += [quoted(name) for name in schema.primary_key]
    conditions = [f"({where})"] if where else []
    if after is not None:
        conditions.append(_compared(schema, after, ">", or_equal=False))
    if last is not None:
        conditions.append(_compared(schema, last, "<", or_equal=True))
    condition = " WHERE " + " AND ".join(conditions) if conditions else ""
    order = ", ".join(map(quoted, schema.primary_key))
    return f"SELECT {', '.join(shown)} FROM {_name(schema)}{condition} ORDER BY {order} LIMIT {limit}"


def select_last(schema: TableSchema, where: str) -> str:
    """Return the SELECT of the greatest key; `where` is a condition, or empty."""
    keys = [quoted(name) for name in schema.primary_key]
    condition = f" WHERE ({where})" if where else ""
    order = ", ".join(f"{key} DESC" for key in keys)
    return f"SELECT {', '.join(keys)} FROM {_name(schema)}{condition} ORDER BY {order} LIMIT 1"


def select_every_key(schema: TableSchema) -> str:
    """Return the SELECT of all keys."""
    return f"SELECT {', '.join(map(quoted, schema.primary_key))} FROM {_name(schema)}"


def select_between(schema: TableSchema, begin: list[Any], above: Any, up_to: Any) -> str:
    """Return the SELECT of the keys that begin with some values and whose next value is above one, up to another."""
    keys, conditions = list(map(quoted, schema.primary_key)), list[str]()
    values = [*zip(schema.primary_key, begin, strict=False)]
    name = schema.primary_key[len(begin)]
    for column, sign, value in (*((one, "=", value) for one, value in values), (name, ">", above), (name, "<=", up_to)):
        conditions.append(f"{quoted(column)} {sign} {literal(_key_column(schema, column), value)}")
    return f"SELECT {', '.join(keys)} FROM {_name(schema)} WHERE {' AND '.join(conditions)}"


def select_first(schema: TableSchema, above: list[Any], at_least: list[Any], below: list[Any]) -> str:
    """Return the SELECT of the first key above a key, and not below a value of the first key columns, and below a
    key."""
    keys = ", ".join(map(quoted, schema.primary_key))
    bounds = (
        _compared(schema, above, ">", or_equal=False),
        _compared(schema, at_least, ">", or_equal=True),
        _compared(schema, below, "<", or_equal=False),
    )
    return f"SELECT {keys} FROM {_name(schema)} WHERE {' AND '.join(bounds)} ORDER BY {keys} LIMIT 1"


def select_keys(schema: TableSchema, keys: Iterable[Row]) -> str:
    """Return MySQL's SELECT of the rows with these keys: mappings key column → canonical value.

    Raises ValueError for a text that is no number in a numeric column, or no base64 in a column of bytes."""
    shown = ", ".join(select_expression(column, quoted(column.name)) for column in schema.columns)
    return f"SELECT {shown} FROM {_name(schema)} WHERE {where_keys(schema, keys)}"


def where_keys(schema: TableSchema, keys: Iterable[Row]) -> str:
    """Return MySQL's condition for the rows with these keys: mappings key column → canonical value. At least one key.

    Put it in parentheses before AND: it may be an OR. Raises ValueError for a text that is no number in a numeric
    column, or no base64 in a column of bytes.
    """
    names = schema.primary_key
    if len(names) == 1:
        values = ", ".join(literal(_key_column(schema, names[0]), _stored_form(schema, names[0], key)) for key in keys)
        return f"{quoted(names[0])} IN ({values})"
    # Not `(a, b) IN (…)`, for which MariaDB reads the whole table.
    return " OR ".join(
        "("
        + " AND ".join(f"{quoted(n)} = {literal(_key_column(schema, n), _stored_form(schema, n, key))}" for n in names)
        + ")"
        for key in keys
    )


def _key_column(schema: TableSchema, name: str) -> Column:
    column = schema.column(name)
    assert column is not None, "a key's columns are columns"
    return column


def _stored_form(schema: TableSchema, name: str, key: Row) -> Any:
    """Return the canonical value of a key column in the form of `stored`."""
    kind, value = _key_column(schema, name).type.kind, key[name]
    if kind == "bytes":
        return {"hex": base64.b64decode(str(value)).hex()}
    if kind == "date":
        return str(value).removesuffix("Z")
    if kind in ("datetime", "timestamp"):
        return str(value).removesuffix("Z").replace("T", " ")
    return str(value)


def select_all(schema: TableSchema, where: str) -> str:
    """Return the SELECT of all rows in one pass, in any order."""
    shown = ", ".join(select_expression(column, quoted(column.name)) for column in schema.columns)
    return f"SELECT {shown} FROM {_name(schema)}" + (f" WHERE ({where})" if where else "")


def _name(schema: TableSchema) -> str:
    return f"{quoted(schema.table_id.database)}.{quoted(schema.table_id.table)}"


def _compared(schema: TableSchema, key: list[Any], sign: str, *, or_equal: bool) -> str:
    """Return the condition that the key is above or below a key value, written so that the server uses the key's index.

    `key` may contain only the values of the first key columns. `sign` is `>` or `<`. The tuple comparison is spelled
    out column by column.
    """
    text = ""
    for name, value in reversed(list(zip(schema.primary_key, key, strict=False))):
        this, right = quoted(name), literal(_key_column(schema, name), value)
        if not text:
            text = f"{this} {sign}{'=' if or_equal else ''} {right}"
        else:
            text = f"({this} {sign}= {right} AND ({this} {sign} {right} OR ({text})))"
    return text
