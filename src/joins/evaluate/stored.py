"""Convert canonical values (`cdc.model.types`) to the Python values that expressions use, and back."""

from __future__ import annotations

import base64
from decimal import Decimal
from typing import Any

from cdc.model.geometry import ewkt_of
from cdc.model.types import Canonical, LogicalType, float_of
from joins.evaluate.casting import single
from joins.evaluate.moments import DAY, civil, clock, date_of, moment_of
from joins.evaluate.unknown import UnknownValue
from joins.query.value_types import family


def to_native(type_: LogicalType, value: Canonical) -> Any:
    """Convert a canonical value to the Python value that expressions use."""
    if value is None:
        return None
    if isinstance(value, list):
        return [to_native(type_.member, member) for member in value]
    if isinstance(value, dict):  # a geometry in the log's form
        return ewkt_of(value)
    if type_.kind in ("decimal", "uint64"):
        return Decimal(str(value))
    match family(type_):
        case "date":
            return date_of(str(value).removesuffix("Z"))
        case "moment":
            return moment_of(str(value).removesuffix("Z"))
        case "bytes":
            return base64.b64decode(str(value))
        case "number":
            number: Any = value
            if type_.kind == "float32":
                return single(float(number))
            return float(number) if type_.kind == "float64" else int(number)
    return value


def to_canonical(type_: LogicalType, value: Any) -> Canonical:
    """Convert the result of an expression to canonical form. Raises UnknownValue for a date that has none."""
    if value is None:
        return None
    if isinstance(value, list):
        assert type_.element is not None  # only lists have members
        return [to_canonical(type_.element, member) for member in value]  # type: ignore[misc]  # lists contain no NULL
    match family(type_):
        case "date":
            return f"{_date(value)}Z"
        case "moment":
            hour, minute, second = clock(value)
            fraction = f".{value % 1_000_000:06d}".rstrip("0") if value % 1_000_000 else ""
            return f"{_date(value // DAY)}T{hour:02d}:{minute:02d}:{second:02d}{fraction}Z"
        case "bytes":
            return base64.b64encode(value).decode()
        case "number":
            if type_.kind == "decimal":
                return f"{value:f}"
            if type_.kind.startswith("float"):
                return float_of(float(value))
            return int(value)
    assert isinstance(value, bool | str)
    return value


def _date(days: int) -> str:
    year, month, day = civil(days)
    if not 1 <= year <= 9999:
        raise UnknownValue("a date beyond the years 1 to 9999")
    return f"{year:04d}-{month:02d}-{day:02d}"
