"""Give each NULL in a UNION the type of its column in another query of it (part of stage 3)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from sqlglot import exp

from cdc.model.types import LogicalType
from joins.query.value_types import INTEGERS, MOST_DIGITS, NULL, spark_type
from joins.select.bound import BoundTree
from joins.select.sql import Select

_CASTS = (*INTEGERS, "string", "date", "datetime", "timestamp", "bool", "float32", "float64")


def typed_nulls(branches: Sequence[Select], bind: Callable[[Select], BoundTree]) -> list[Select]:
    """Return the queries of a UNION with `CAST(NULL AS …)` instead of NULL where another one has a value.

    Others stay, and are refused."""
    if not any(_places(select) for select in branches):
        return list(branches)
    types: dict[int, LogicalType] = {}
    for select in branches:
        found = bind(_with(select, dict.fromkeys(_places(select), LogicalType(kind="string"))))
        for at, column in enumerate(found.rows.columns):
            if at not in _places(select) and column.type != NULL:
                types.setdefault(at, column.type)
    return [_with(select, {at: types[at] for at in _places(select) if at in types}) for select in branches]


def _places(select: Select) -> list[int]:
    if any(item.star is not None for item in select.items):
        return []
    return [
        at
        for at, item in enumerate(select.items)
        if item.expression is not None and isinstance(item.expression.unnest(), exp.Null)
    ]


def _with(select: Select, types: dict[int, LogicalType]) -> Select:
    items = list(select.items)
    for at, type_ in types.items():
        if type_.kind in _CASTS or (type_.kind == "decimal" and type_.precision <= MOST_DIGITS):
            items[at] = replace(items[at], expression=exp.cast(exp.Null(), spark_type(type_)))
    return replace(select, items=tuple(items))
