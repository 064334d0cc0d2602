"""Keys of tables that SQLAlchemy reads: conditions that compare them, and their representation in JSON."""

from __future__ import annotations

import datetime as dt
import decimal
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy import types as sql

from cdc.model.errors import UsageError

# Types without a representation in JSON: functions that encode and decode their values.
_WRITTEN: Mapping[type, Callable[[Any], str]] = {
    decimal.Decimal: str,
    dt.datetime: dt.datetime.isoformat,
    dt.date: dt.date.isoformat,
    dt.time: dt.time.isoformat,
    uuid.UUID: str,
    bytes: bytes.hex,
}
_READ: Mapping[str, Callable[[str], Any]] = {
    "Decimal": decimal.Decimal,
    "datetime": dt.datetime.fromisoformat,
    "date": dt.date.fromisoformat,
    "time": dt.time.fromisoformat,
    "UUID": uuid.UUID,
    "bytes": bytes.fromhex,
}


def after_key(keys: Sequence[sa.Column[Any]], after: Sequence[object], dialect: str) -> sa.ColumnElement[bool]:
    """Return the condition (k1, k2) > (a, b), spelled out so that every database supports it.

    For SQL Server, texts are cast to the column's type: drivers send NVARCHAR, and comparing it with VARCHAR follows
    other rules than ORDER BY, and does not use the index.
    """
    values = [
        sa.cast(sa.literal(value), key.type) if dialect == "mssql" and isinstance(key.type, sql.String) else value
        for key, value in zip(keys, after, strict=True)
    ]
    return sa.or_(
        *(
            sa.and_(*(k == v for k, v in zip(keys[:i], values, strict=False)), key > values[i])
            for i, key in enumerate(keys)
        )
    )


def unwalkable(keys: Iterable[sa.Column[Any]], dialect: str) -> str:
    """Return why rows cannot be read page by page in the order of a key; empty if they can."""
    if dialect not in ("mysql", "mariadb"):
        return ""
    for key in keys:
        if isinstance(key.type, sql.Enum | sql.Float):
            return f"{key.name} is {key.type}, whose order is not how its values compare with literals"
    return ""


def stored_key(values: Iterable[Any]) -> list[Any]:
    """Encode a key's values from the driver as JSON. Raises UsageError for a type that is not supported."""
    return [_stored(value) for value in values]


def key_of(stored: Iterable[Any]) -> list[Any]:
    """Decode a key; inverse of `stored_key`."""
    return [_READ[(kind := next(iter(one)))](one[kind]) if isinstance(one, dict) else one for one in stored]


def _stored(value: Any) -> Any:
    if isinstance(value, str | int | float | bool):
        return value
    value = bytes(value) if isinstance(value, bytearray | memoryview) else value
    for kind, written in _WRITTEN.items():
        if isinstance(value, kind):
            return {kind.__name__: written(value)}
    raise UsageError(f"a key of type {type(value).__name__} cannot be read page by page", "poll a view of the table")
