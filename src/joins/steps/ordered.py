"""Order the values in a bag by their meaning, not by their texts; the kernel uses the same order.

Numbers are in numeric order, texts in the order of their UTF-8 bytes, dates and datetimes by time, TIME by duration,
binary values by bytes, and false before true. NULL comes first. `descending` reverses the order of a value, with
NULL."""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import total_ordering
from typing import Any

import orjson

from cdc.model.types import Canonical, LogicalType
from joins.query.group import Bag
from joins.query.value_types import duration_of, family

Order = Callable[[Sequence[Canonical]], Any]
_NULL = (0,)


@total_ordering
class _Turned:
    """A sort key with the reverse order."""

    __slots__ = ("key",)

    def __init__(self, key: Any) -> None:
        self.key = key

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Turned) and self.key == other.key

    def __lt__(self, other: _Turned) -> bool:
        return bool(other.key < self.key)

    __hash__ = None  # type: ignore[assignment]  # keys are compared, nothing else


def order_of(bag: Bag) -> Order:
    """Return the sort key of a bag's tuples. Two tuples have equal keys only if they are equal."""
    each = [_key(type_) for type_ in bag.types]
    turned = bag.descending

    def key(values: Sequence[Canonical]) -> Any:
        keys = (_NULL if value is None else (1, of(value)) for of, value in zip(each, values, strict=True))
        return tuple(_Turned(one) if turns else one for one, turns in zip(keys, turned, strict=True))

    return key


def _key(type_: LogicalType) -> Callable[[Any], Any]:
    if type_.kind == "decimal":
        return Decimal
    if type_.kind == "time":
        return _duration
    if type_.kind.startswith("float"):
        return _double
    if type_.kind == "list":  # no query needs the order of lists, so any order will do
        return orjson.dumps
    match family(type_):
        case "text" | "geometry":
            return _utf8
        case "moment":  # compare the fraction as a number: "…00Z" precedes "…00.5Z"
            return _instant
        case "bytes":
            return base64.b64decode
    return _same


def _double(value: float | str) -> tuple[bool, float]:
    """Return the sort key of a number: -infinity first, then numbers, infinity, and NaN last, as in Spark."""
    number = float(value)
    return (True, 0.0) if math.isnan(number) else (False, number)


def _duration(text: str) -> int:
    found = duration_of(text)
    assert found is not None, text
    return found


def _utf8(text: str) -> bytes:
    return text.encode()


def _instant(text: str) -> str:
    return text.removesuffix("Z")


def _same(value: Any) -> Any:
    return value
