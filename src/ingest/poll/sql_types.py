"""Map the types and values of any database, as SQLAlchemy returns them, to MySQL's column types and canonical
values."""

from __future__ import annotations

import base64
import datetime as dt
import decimal
import uuid
from collections.abc import Callable
from typing import Any

import orjson
from sqlalchemy import types as sql
from sqlalchemy.dialects import mssql
from sqlalchemy.types import TypeEngine

from cdc.model.schema import Column
from cdc.model.types import Canonical, LogicalType, float_of

_LONGEST_VARCHAR = 16_383
_MOST_DIGITS = 65  # MySQL's limits, within which every later stage is exact


def column_type(kind: TypeEngine[Any]) -> str | None:
    """Return the MySQL column type that can store all values of a type; None if there is none."""
    match kind:
        case mssql.MONEY():
            return "decimal(19,4)"
        case mssql.SMALLMONEY():
            return "decimal(10,4)"
        case sql.Boolean():
            return "bit(1)"
        case sql.SmallInteger():
            return "smallint"
        case sql.BigInteger():
            return "bigint"
        case sql.Integer():
            # unsigned integers and SQLite's INTEGER have more than 32 bits
            return "bigint unsigned" if getattr(kind, "unsigned", False) else "bigint"
        case sql.Float():
            return "double"
        case sql.Numeric():
            known = kind.precision is not None and kind.precision <= _MOST_DIGITS
            return f"decimal({kind.precision},{kind.scale or 0})" if known else "longtext"
        case sql.DateTime():
            return "timestamp(6)" if is_zoned(kind) else "datetime(6)"
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


def is_zoned(kind: TypeEngine[Any]) -> bool:
    """Return whether times of a type have a time zone."""
    return isinstance(kind, mssql.DATETIMEOFFSET) or bool(getattr(kind, "timezone", False))


def not_a_cursor(kind: TypeEngine[Any], dialect: str) -> str | None:
    """Return why a time column of this type cannot be the cursor in a dialect; None if it can.

    A cursor is compared with its own value in microseconds. That fails for SQL Server's finer times, and for DATETIME,
    whose steps are 1/300 second.
    """
    if dialect != "mssql":
        return None
    if isinstance(kind, mssql.DATETIME2 | mssql.DATETIMEOFFSET):
        return None if kind.precision is not None and kind.precision <= 6 else "it is finer than a microsecond"
    if isinstance(kind, mssql.DATETIME | mssql.SMALLDATETIME):
        return "SQL Server rounds it to 1/300 of a second, or to a minute"
    return None


def reader_of(column: Column) -> Callable[[Any], Canonical]:
    """Return the function from SQLAlchemy's value of a column to its canonical value. It raises ValueError or
    TypeError."""
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
        raise ValueError(f"{value!r} is not an integer")
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
        raise TypeError(f"{value!r} is not a date")
    return f"{value:%Y-%m-%d}Z" if value.year > 999 else f"{value.isoformat()[:10]}Z"


def _moment(value: Any) -> str:
    if not isinstance(value, dt.datetime):
        raise TypeError(f"{value!r} is not a time")
    if value.tzinfo is not None:
        value = value.astimezone(dt.UTC).replace(tzinfo=None)
    return _fraction(value.isoformat(timespec="microseconds")) + "Z"


def _time(value: Any) -> str:
    if not isinstance(value, dt.time):
        raise TypeError(f"{value!r} is not a time of day")
    return _fraction(value.isoformat(timespec="microseconds"))


def _fraction(text: str) -> str:
    return text.rstrip("0").rstrip(".")


_READERS: dict[str, Callable[[Any], Canonical]] = {
    "bool": bool,
    "float64": lambda value: float_of(float(value)),
    "date": _date,
    "datetime": _moment,
    "timestamp": _moment,
    "time": _time,
    "string": _text,
    "json": _json,
    "bytes": _bytes,
}
