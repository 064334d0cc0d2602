"""Keys of tables that SQLAlchemy reads: compared column by column, and kept as JSON between two processes; pure."""

from __future__ import annotations

import datetime as dt
import decimal
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy import types as sql

from cdc.model.errors import UsageError

# Types that JSON does not have: how a value is written, and read back.
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


def behind(keys: Sequence[sa.Column[Any]], after: Sequence[object], dialect: str) -> sa.ColumnElement[bool]:
    """The rows behind a key: (k1, k2) > (a, b), which not every database can say, spelt out.

    SQL Server gets texts in the column's own type: drivers send NVARCHAR, by whose rules a VARCHAR would be compared,
    though it is ordered by others, and which no index helps with.
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
    """Why rows cannot be read in the order of a key, page by page; empty where they can."""
    if dialect not in ("mysql", "mariadb"):
        return ""
    for key in keys:
        if isinstance(key.type, sql.Enum | sql.Float):
            return f"{key.name} is {key.type}, whose order is not how its values compare with literals"
    return ""


def stored_key(values: Iterable[Any]) -> list[Any]:
    """A key's values, as the driver gave them, as JSON; UsageError for a type that is none of a key's."""
    return [_stored(value) for value in values]


def key_of(stored: Iterable[Any]) -> list[Any]:
    """Inverse of `stored_key`."""
    return [_READ[(kind := next(iter(one)))](one[kind]) if isinstance(one, dict) else one for one in stored]


def _stored(value: Any) -> Any:
    if isinstance(value, str | int | float | bool):
        return value
    value = bytes(value) if isinstance(value, bytearray | memoryview) else value
    for kind, written in _WRITTEN.items():
        if isinstance(value, kind):
            return {kind.__name__: written(value)}
    raise UsageError(f"a key of type {type(value).__name__} cannot be walked page by page", "poll a view of the table")
