"""Create the Python functions of a query in DuckDB (`joins.oracle.scalars`). `joins.evaluate` computes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping, Sequence
from decimal import Decimal
from inspect import Parameter, Signature
from typing import Any

import duckdb
import pyarrow as pa

from cdc.model.types import Kind, LogicalType
from joins.evaluate.evaluating import prepared
from joins.evaluate.moments import DAY, days_of
from joins.evaluate.unknown import UnknownValue
from joins.oracle.called import Collected, Scalar
from joins.oracle.collected import collected
from joins.oracle.duckdb_types import duckdb_type
from joins.oracle.scalars import ORDER
from joins.query.value_types import MOST_DIGITS, NULL, duration_of, family

_FIRST, _LAST = days_of(1, 1, 1), days_of(9999, 12, 31)
Reasons = MutableMapping[str, str]
_ARROW: dict[Kind, Any] = {
    "bool": pa.bool_(), "int8": pa.int8(), "int16": pa.int16(), "int32": pa.int32(), "int64": pa.int64(),
    "uint64": pa.uint64(), "float32": pa.float32(), "float64": pa.float64(), "date": pa.date32(),
    "datetime": pa.timestamp("us"), "timestamp": pa.timestamp("us"), "bytes": pa.binary(),
}  # fmt: skip


def arrow_type(type_: LogicalType) -> Any:
    """Return the Arrow type for values of a type. Decimals with more digits than DuckDB supports become text."""
    if type_.element is not None:
        return pa.list_(arrow_type(type_.element))
    if type_ == NULL:
        return pa.int32()
    if type_.kind == "decimal":
        return pa.decimal128(type_.precision, type_.scale) if type_.precision <= MOST_DIGITS else pa.string()
    return _ARROW.get(type_.kind, pa.string())


def to_arrow(type_: LogicalType, values: Sequence[Any]) -> Any:
    """Convert values of `joins.evaluate` to an Arrow array. Raises UnknownValue if a value does not fit."""
    try:
        match family(type_.member):
            case "date":
                _within(type_, values, _FIRST, _LAST)
                return _cast(type_, values, pa.int32())
            case "moment":
                _within(type_, values, _FIRST * DAY, (_LAST + 1) * DAY - 1)
                return _cast(type_, values, pa.int64())
        if type_.kind == "uint64":
            values = [None if value is None else int(value) for value in values]
        if type_.member.kind == "decimal" and type_.member.precision > MOST_DIGITS:
            values = [_text(value) for value in values]
        return pa.array(values, arrow_type(type_))
    except (pa.ArrowInvalid, OverflowError) as error:
        raise UnknownValue(f"a value beyond its type: {error}") from None


def _within(type_: LogicalType, values: Sequence[Any], first: int, last: int) -> None:
    if type_.element is None and any(value is not None and not first <= value <= last for value in values):
        raise UnknownValue("a date beyond the years 1 to 9999")


def _cast(type_: LogicalType, values: Sequence[Any], over: Any) -> Any:
    if type_.element is not None:
        return pa.array(values, pa.list_(over)).cast(arrow_type(type_))
    return pa.array(values, over).cast(arrow_type(type_))


def from_arrow(type_: LogicalType, column: Any) -> list[Any]:
    """Convert an Arrow column to values of `joins.evaluate`."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    match family(type_.member):
        case "date":
            column = column.cast(pa.list_(pa.int32()) if type_.element else pa.int32())
        case "moment":
            column = column.cast(pa.list_(pa.int64()) if type_.element else pa.int64())
    found: list[Any] = column.to_pylist()
    member = type_.member
    if member.kind == "uint64" or (member.kind == "decimal" and member.precision > MOST_DIGITS):
        return [_number(value) for value in found]
    return found


def _text(value: Any) -> Any:
    """Convert a decimal that is too wide for DuckDB to text."""
    if isinstance(value, list):
        return [_text(member) for member in value]
    return None if value is None else f"{value:f}"


def _number(value: Any) -> Any:
    """Convert an integer or text from DuckDB to a decimal."""
    if isinstance(value, list):
        return [_number(member) for member in value]
    return None if value is None else Decimal(value)


class Functions:
    """The Python functions that DuckDB calls for a query's expressions, in one DuckDB database.

    `reasons` maps the name of a function to the reason why one of its values is unknown."""

    def __init__(self, database: duckdb.DuckDBPyConnection) -> None:
        self._database = database
        self._known: set[str] = set()
        self.reasons: Reasons = {}

    def register(self, functions: Mapping[str, Scalar | Collected]) -> None:
        """Create the functions that do not exist yet in the database."""
        for name, function in functions.items():
            if name in self._known:
                continue
            self._known.add(name)
            if isinstance(function, Scalar):
                given = [duckdb_type(type_) for type_ in function.types] or ["INTEGER"]
                call = _scalar(function, self.reasons)
                # DuckDB inspects the number of parameters
                names = [Parameter(f"x{i}", Parameter.POSITIONAL_ONLY) for i in range(len(given))]
                call.__signature__ = Signature(names)  # type: ignore[attr-defined]  # any function may have one
            else:
                given, call = [f"{duckdb_type(function.of)}[]"], _collected(function, self.reasons)
            database: Any = self._database  # its type stubs lack the names of types
            database.create_function(
                name, call, given, duckdb_type(function.type), type="arrow", null_handling="special"
            )


def _scalar(function: Scalar, reasons: Reasons) -> Callable[..., Any]:
    def call(*columns: Any) -> Any:
        rows = len(columns[0])
        try:
            if function.reason:
                raise UnknownValue(function.reason)
            if function.sql == ORDER:
                texts = from_arrow(function.types[0], columns[0])
                return pa.array([None if text is None else duration_of(text) for text in texts], pa.int64())
            compute = prepared(function.sql, function.types).of
            values = [from_arrow(type_, column) for type_, column in zip(function.types, columns, strict=False)]
            return to_arrow(function.type, [*map(compute, zip(*values, strict=True) if values else [()] * rows)])
        except UnknownValue as unknown:
            reasons.setdefault(function.name, unknown.reason)
            return pa.nulls(rows, arrow_type(function.type))

    return call


def _collected(function: Collected, reasons: Reasons) -> Callable[[Any], Any]:
    of = LogicalType(kind="list", element=function.of)

    def call(lists: Any) -> Any:
        try:
            if not function.alone:
                raise UnknownValue(f"{function.function} of several values, the first {function.of}")
            compute = collected(function.function, function.of, function.type, function.given)
            return to_arrow(function.type, [compute(values) for values in from_arrow(of, lists)])
        except UnknownValue as unknown:
            reasons.setdefault(function.name, unknown.reason)
            return pa.nulls(len(lists), arrow_type(function.type))

    return call
