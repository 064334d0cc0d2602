"""Map logical types to Spark's types, and compute the result types of operators.

Decimals follow Spark's rules (`DecimalPrecision` with `spark.sql.decimalOperations.allowPrecisionLoss`). A result
that needs more than 38 digits loses decimal places, but keeps at least six of them."""

from __future__ import annotations

import decimal
import re
from typing import Literal

from sqlglot import exp

from cdc.model.types import Kind, LogicalType

BOOL = LogicalType(kind="bool")
INT32 = LogicalType(kind="int32")
INT64 = LogicalType(kind="int64")
FLOAT64 = LogicalType(kind="float64")
STRING = LogicalType(kind="string")
DATE = LogicalType(kind="date")
DATETIME = LogicalType(kind="datetime")
TIME = LogicalType(kind="time")
# Type of an untyped NULL, which adopts that of other operands. No column can have it: a decimal has at least one digit.
NULL = LogicalType(kind="decimal", precision=0)

INTEGERS: dict[str, int] = {
    "int8": 3,
    "int16": 5,
    "int32": 10,
    "int64": 20,
}  # with the digits of a decimal that holds it
_WIDTH = list(INTEGERS)
_SPARK: dict[Kind, str] = {
    "bool": "BOOLEAN", "int8": "TINYINT", "int16": "SMALLINT", "int32": "INT", "int64": "BIGINT",
    "uint64": "DECIMAL(20,0)", "float32": "FLOAT", "float64": "DOUBLE", "date": "DATE", "datetime": "TIMESTAMP_NTZ",
    "timestamp": "TIMESTAMP_NTZ", "time": "STRING", "string": "STRING", "json": "STRING", "bytes": "BINARY",
    "point": "STRING", "geometry": "STRING",
}  # fmt: skip
_CASTS: dict[exp.DType, LogicalType] = {
    exp.DType.BOOLEAN: BOOL,
    exp.DType.TINYINT: LogicalType(kind="int8"),
    exp.DType.SMALLINT: LogicalType(kind="int16"),
    exp.DType.INT: INT32,
    exp.DType.BIGINT: INT64,
    exp.DType.FLOAT: LogicalType(kind="float32"),
    exp.DType.DOUBLE: FLOAT64,
    exp.DType.TEXT: STRING,
    exp.DType.VARCHAR: STRING,
    exp.DType.DATE: DATE,
    exp.DType.TIMESTAMP: DATETIME,
    exp.DType.TIMESTAMPNTZ: DATETIME,
    exp.DType.TIMESTAMPTZ: DATETIME,  # how sqlglot reads Spark's TIMESTAMP
}
MOST_DIGITS = 38  # of a decimal in Spark
Family = Literal["null", "bool", "number", "text", "date", "moment", "bytes", "list", "geometry"]


_TIME = re.compile(r"(-?)(\d{1,3}):([0-5]\d)(?::([0-5]\d)(?:\.(\d{1,6}))?)?")
_SECOND = 1_000_000


def duration_of(text: str) -> int | None:
    """Parse a TIME text (`-100:00:00.5`, `9:30`) to microseconds. Return None for other text."""
    if (found := _TIME.fullmatch(text)) is None:
        return None
    sign, hours, minutes, seconds, fraction = found.groups()
    whole = int(hours) * 3600 + int(minutes) * 60 + int(seconds or 0)
    return (-1 if sign else 1) * (whole * _SECOND + int((fraction or "").ljust(6, "0")))


def time_of(duration: int) -> str:
    """Format microseconds as a canonical TIME text."""
    whole, fraction = divmod(abs(duration), _SECOND)
    text = f"{'-' * (duration < 0)}{whole // 3600:02}:{whole // 60 % 60:02}:{whole % 60:02}"
    return f"{text}.{fraction:06}".rstrip("0") if fraction else text


def duration_sql(time: str) -> str:
    """Return Spark SQL that converts a canonical TIME text to microseconds.

    Times must be compared as numbers, because as text '99:00:00' is greater than '100:00:00'."""
    parts = [f"split_part(replace({time}, '-', ''), ':', {i})" for i in (1, 2, 3)]
    seconds = f"try_cast(try_cast({parts[2]} AS DECIMAL(8,6)) * {_SECOND} AS BIGINT)"
    # an INT times such a number fits a BIGINT, so no text can end the query
    hours, minutes = (f"CAST(try_cast({part} AS INT) AS BIGINT)" for part in parts[:2])
    whole = f"{hours} * {3600 * _SECOND} + {minutes} * {60 * _SECOND}"
    return f"(CASE WHEN startswith({time}, '-') THEN -1 ELSE 1 END * ({whole} + {seconds}))"


def spark_type(type_: LogicalType) -> str:
    """Return Spark's name of a type."""
    if type_.kind == "list":
        return f"ARRAY<{spark_type(type_.element or STRING)}>"
    return f"DECIMAL({type_.precision},{type_.scale})" if type_.kind == "decimal" else _SPARK[type_.kind]


def family(type_: LogicalType) -> Family:
    """Return the type's family, such as number or text. Only types of one family can be compared."""
    if type_ == NULL:
        return "null"
    match type_.kind:
        case "bool" | "date" | "bytes" | "list":
            return type_.kind
        case "datetime" | "timestamp":
            return "moment"
        case "string" | "json" | "time":
            return "text"
        case "point" | "geometry":
            return "geometry"
    return "number"


def type_of_cast(to: exp.Expr) -> LogicalType | None:
    """Return the target type of a CAST, or None if that type is not supported."""
    if to.this == exp.DType.DECIMAL:
        numbers = [int(parameter.name) for parameter in to.expressions]
        precision, scale = (*numbers, *(10, 0)[len(numbers) :])
        fits = max(1, scale) <= precision <= MOST_DIGITS
        return LogicalType(kind="decimal", precision=precision, scale=scale) if fits else None
    if to.expressions:
        return None
    return _CASTS.get(to.this)


def literal_type(number: decimal.Decimal) -> LogicalType | None:
    """Return the type of a number literal, or None if it has more than 38 digits."""
    exponent = int(number.as_tuple().exponent)
    if exponent == 0 and abs(number) < 2**63:
        return INT32 if abs(number) < 2**31 else INT64
    scale = max(0, -exponent)
    precision = max(len(number.as_tuple().digits), scale)
    return LogicalType(kind="decimal", precision=precision, scale=scale) if precision <= MOST_DIGITS else None


def _as_decimal(type_: LogicalType) -> LogicalType:
    if type_.kind == "decimal":
        return type_
    return LogicalType(kind="decimal", precision=INTEGERS.get(type_.kind, 20))


def bounded(precision: int, scale: int) -> LogicalType:
    """Return a decimal type limited to 38 digits. As in Spark, decimal places are reduced first, down to six."""
    if precision > MOST_DIGITS:
        whole = precision - scale
        precision, scale = MOST_DIGITS, max(MOST_DIGITS - whole, min(scale, 6))
    return LogicalType(kind="decimal", precision=precision, scale=scale)


def common(a: LogicalType, b: LogicalType) -> LogicalType | None:
    """Return a type that represents all values of both types, or None if there is none.

    Values stay exact, except that floats are as near as a double can be."""
    if a == b or b == NULL:
        return a
    if a == NULL:
        return b
    families = {family(a), family(b)}
    if families == {"text"}:
        return STRING
    if families <= {"date", "moment"}:
        return DATETIME
    if families != {"number"}:
        return None
    if a.kind.startswith("float") or b.kind.startswith("float"):
        return FLOAT64
    if a.kind in INTEGERS and b.kind in INTEGERS:
        return LogicalType(kind=max(a.kind, b.kind, key=_WIDTH.index))
    x, y = _as_decimal(a), _as_decimal(b)
    scale = max(x.scale, y.scale)
    whole = max(x.precision - x.scale, y.precision - y.scale)
    return LogicalType(kind="decimal", precision=whole + scale, scale=scale) if whole + scale <= MOST_DIGITS else None


def comparable(a: LogicalType, b: LogicalType) -> LogicalType:
    """Return the decimal type in which Spark compares exact numbers that have no common type.

    It keeps all digits before the decimal point, so the conversion cannot fail. Places for which 38 digits do not
    suffice are rounded."""
    x, y = _as_decimal(a), _as_decimal(b)
    whole = max(x.precision - x.scale, y.precision - y.scale)
    return LogicalType(kind="decimal", precision=MOST_DIGITS, scale=MOST_DIGITS - whole)


def arithmetic(operator: str, a: LogicalType, b: LogicalType) -> LogicalType | None:
    """Return the type of `a operator b`; None if the operator does not exist for them."""
    if NULL in (a, b) or family(a) != "number" or family(b) != "number":
        return None
    if a.kind.startswith("float") or b.kind.startswith("float"):
        return a if a == b and operator != "try_divide" else FLOAT64
    if a.kind in INTEGERS and b.kind in INTEGERS:
        return FLOAT64 if operator == "try_divide" else common(a, b)
    x, y = _as_decimal(a), _as_decimal(b)
    p1, s1, p2, s2 = x.precision, x.scale, y.precision, y.scale
    match operator:
        case "try_add" | "try_subtract":
            scale = max(s1, s2)
            return bounded(max(p1 - s1, p2 - s2) + scale + 1, scale)
        case "try_multiply":
            return bounded(p1 + p2 + 1, s1 + s2)
        case "try_divide":
            scale = max(6, s1 + p2 + 1)
            return bounded(p1 - s1 + s2 + scale, scale)
    scale = max(s1, s2)
    return bounded(min(p1 - s1, p2 - s2) + scale, scale)
