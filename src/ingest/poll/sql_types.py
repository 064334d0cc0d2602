"""Types and values of any database that SQLAlchemy speaks to, in our terms: column types as MySQL writes them."""

from __future__ import annotations

import base64
import datetime as dt
import decimal
import uuid
from collections.abc import Callable
from typing import Any

import orjson
from sqlalchemy import types as sql
from sqlalchemy.types import TypeEngine

from cdc.words.schema import Column
from cdc.words.types import Canonical, LogicalType

_LONGEST_VARCHAR = 16_383
_MOST_DIGITS = 65  # MySQL's, which every later stage keeps exactly


def column_type(kind: TypeEngine[Any]) -> str | None:
    """The MySQL type that holds all values of a reflected type; None when there is none."""
    match kind:
        case sql.Boolean():
            return "bit(1)"
        case sql.SmallInteger():
            return "smallint"
        case sql.BigInteger():
            return "bigint"
        case sql.Integer():
            # unsigned and SQLite's INTEGER hold more than 32 bits
            return "bigint unsigned" if getattr(kind, "unsigned", False) else "bigint"
        case sql.Float():
            return "double"
        case sql.Numeric():
            known = kind.precision is not None and kind.precision <= _MOST_DIGITS
            return f"decimal({kind.precision},{kind.scale or 0})" if known else "longtext"
        case sql.DateTime():
            return "timestamp(6)" if kind.timezone else "datetime(6)"
        case sql.Date():
            return "date"
        case sql.Time():
            return None if kind.timezone else "time(6)"
        case sql.JSON():
            return "json"
        case sql.LargeBinary():
            return "longblob"
        case sql.Uuid() | sql.Enum():
            return "longtext"
        case sql.String():
            short = kind.length is not None and kind.length <= _LONGEST_VARCHAR
            return f"varchar({kind.length})" if short else "longtext"
        case _:
            return None


def reader_of(column: Column) -> Callable[[Any], Canonical]:
    """Function value as SQLAlchemy returns it → canonical value; ValueError or TypeError when it cannot be told."""
    return _READERS.get(column.type.kind, _whole) if column.type.kind != "decimal" else _decimal(column.type)


def _decimal(kind: LogicalType) -> Callable[[Any], Canonical]:
    exponent = decimal.Decimal(1).scaleb(-kind.scale)
    context = decimal.Context(prec=_MOST_DIGITS + 1, traps=[decimal.InvalidOperation, decimal.Inexact])

    def read(value: Any) -> str:
        return f"{decimal.Decimal(str(value)).quantize(exponent, context=context):f}"

    return read


def _whole(value: Any) -> int:
    number = int(value)
    if number != value:
        raise ValueError(f"{value!r} is no whole number")
    return number


def _text(value: Any) -> str:
    if isinstance(value, decimal.Decimal):
        return f"{value:f}"
    return value if isinstance(value, str) else str(value)


def _json(value: Any) -> str:
    return value if isinstance(value, str) else orjson.dumps(value).decode()


def _bytes(value: Any) -> str:
    raw = value.bytes if isinstance(value, uuid.UUID) else bytes(value)
    return base64.b64encode(raw).decode()


def _date(value: Any) -> str:
    if not isinstance(value, dt.date):
        raise TypeError(f"{value!r} is no date")
    return f"{value:%Y-%m-%d}Z" if value.year > 999 else f"{value.isoformat()[:10]}Z"


def _moment(value: Any) -> str:
    if not isinstance(value, dt.datetime):
        raise TypeError(f"{value!r} is no time")
    if value.tzinfo is not None:
        value = value.astimezone(dt.UTC).replace(tzinfo=None)
    return _fraction(value.isoformat(timespec="microseconds")) + "Z"


def _time(value: Any) -> str:
    if not isinstance(value, dt.time):
        raise TypeError(f"{value!r} is no time of day")
    return _fraction(value.isoformat(timespec="microseconds"))


def _fraction(text: str) -> str:
    return text.rstrip("0").rstrip(".")


_READERS: dict[str, Callable[[Any], Canonical]] = {
    "bool": bool,
    "float64": float,
    "date": _date,
    "datetime": _moment,
    "timestamp": _moment,
    "time": _time,
    "string": _text,
    "json": _json,
    "bytes": _bytes,
}
