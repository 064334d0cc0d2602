"""Turn a compiled expression into a Python function of the values that it reads.

Values are None, bool, int, Decimal, float, str or bytes. Dates are days, and datetimes are microseconds, since 1970
UTC.

The function returns what Spark computes, or raises `UnknownValue`. Unsupported expressions raise it when they are
prepared, unsupported values when they are evaluated. Powers and logarithms may differ in the last digit between
libraries. So a result that depends on that digit is unknown, too."""

from __future__ import annotations

from decimal import Decimal
from functools import lru_cache
from typing import Any

from cdc.model.types import LogicalType, parse_type
from joins.evaluate import moments
from joins.evaluate.calls import FORMS
from joins.evaluate.casting import converter
from joins.evaluate.conditions import among, case
from joins.evaluate.prepared import Prepared, Values, constant, exactly
from joins.evaluate.reading import Syntax, read
from joins.evaluate.unknown import UnknownValue
from joins.query.value_types import BOOL, DATE, DATETIME, INTEGERS, NULL, STRING, family, literal_type

_SPARK_TYPES = {
    "BOOLEAN": "bool", "TINYINT": "int8", "SMALLINT": "int16", "INT": "int32", "BIGINT": "int64", "FLOAT": "float32",
    "DOUBLE": "float64", "DATE": "date", "TIMESTAMP_NTZ": "datetime", "TIMESTAMP": "timestamp",
    "STRING": "string", "BINARY": "bytes",
}  # fmt: skip


@lru_cache(maxsize=4096)
def prepared(sql: str, types: tuple[LogicalType, ...]) -> Prepared:
    """Return the function that evaluates a compiled expression over a row's values, whose types are `types`.

    Raises UnknownValue if the expression is not supported."""
    return _prepare(read(sql), types)


def _prepare(tree: Syntax, types: tuple[LogicalType, ...]) -> Prepared:
    match tree.kind:
        case "value":
            at = int(tree.name)
            return Prepared(lambda values: values[at], types[at])
        case "null":
            return Prepared(lambda _: None, NULL)
        case "true" | "false":
            return constant(tree.kind == "true", BOOL)
        case "text":
            return constant(tree.name, STRING)
        case "number":
            return _literal(tree.name)
        case "date":
            return constant(moments.date_of(tree.name), DATE)
        case "moment":
            return constant(moments.moment_of(tree.name), DATETIME)
    if tree.kind == "call" and tree.parts and tree.parts[-1].kind == "interval":
        return _later(_prepare(tree.parts[0], types), tree.parts[-1].name)
    parts = [_prepare(part, types) for part in tree.parts]
    match tree.kind:
        case "cast":
            return _cast(parts[0], _type(tree.name))
        case "case":
            return case(parts)
        case "in":
            return among(parts)
    form = FORMS.get(tree.name)
    if form is None:
        raise UnknownValue(f"{tree.name}() is not known")
    return form(parts)


def _later(part: Prepared, interval: str) -> Prepared:
    """Return `part` plus an interval, which is a number and a unit: `90 DAY`."""
    number, _, unit = interval.partition(" ")
    move = moments.mover(Decimal(number), unit, day=part.type.kind == "date")

    def later(values: Values) -> Any:
        value = part.of(values)
        return None if value is None else move(value)

    return Prepared(later, part.type)


def _literal(text: str) -> Prepared:
    number = Decimal(text)
    type_ = literal_type(number)
    if type_ is None or "e" in text.lower():
        raise UnknownValue(f"the number {text}")
    if type_.kind not in INTEGERS:
        return constant(number, type_)
    whole_ = int(text)
    return Prepared(lambda _: whole_, type_, digits=len(text))


def _type(name: str) -> LogicalType:
    if name.startswith("DECIMAL("):
        return parse_type(name.lower())
    if name not in _SPARK_TYPES:
        raise UnknownValue(f"the type {name}")
    return parse_type(_SPARK_TYPES[name])


def _cast(part: Prepared, to: LogicalType) -> Prepared:
    if part.near and family(to) == "number" and to.kind == "float64":
        return part
    convert, of = exactly(part, converter(part.type, to)), part.of

    def cast(values: Values) -> Any:
        value = of(values)
        return None if value is None else convert(value)

    return Prepared(cast, to)
