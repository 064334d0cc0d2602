"""Name DuckDB's types for the types of columns, and convert values to those that DuckDB takes."""

from __future__ import annotations

import base64
import datetime as dt
import decimal
from typing import Any

from cdc.model.geometry import ewkt_of
from cdc.model.types import Canonical, LogicalType
from joins.query.value_types import MOST_DIGITS, NULL, family

_TYPES = {
    "bool": "BOOLEAN", "int8": "TINYINT", "int16": "SMALLINT", "int32": "INTEGER", "int64": "BIGINT",
    "uint64": "UBIGINT", "float32": "FLOAT", "float64": "DOUBLE", "date": "DATE", "datetime": "TIMESTAMP",
    "timestamp": "TIMESTAMP", "bytes": "BLOB",
}  # fmt: skip


def duckdb_type(type_: LogicalType) -> str:
    """Return DuckDB's name of a type. A decimal with more digits than DuckDB supports becomes text."""
    if type_.element is not None:
        return f"{duckdb_type(type_.element)}[]"
    if type_.kind == "decimal":
        return "INTEGER" if type_ == NULL else str(type_) if type_.precision <= MOST_DIGITS else "VARCHAR"
    return _TYPES.get(type_.kind, "VARCHAR")


def native(type_: LogicalType, value: Canonical) -> Any:
    """Convert a canonical value to the Python value that DuckDB takes."""
    if value is None:
        return None
    if type_.kind == "decimal":
        return decimal.Decimal(str(value)) if type_.precision <= MOST_DIGITS else str(value)
    if isinstance(value, dict):  # a geometry in the log's form
        return ewkt_of(value)
    match family(type_):
        case "date":
            return dt.date.fromisoformat(str(value).removesuffix("Z"))
        case "moment":
            return dt.datetime.fromisoformat(str(value).removesuffix("Z"))
        case "bytes":
            return base64.b64decode(str(value))
    return value
