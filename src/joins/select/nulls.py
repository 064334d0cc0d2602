"""Give each NULL in a UNION the type of its column in another query of it (part of stage 3)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NoReturn

from sqlglot import exp

from cdc.model.types import LogicalType
from joins.query.value_types import INTEGERS, MOST_DIGITS, NULL, spark_type
from joins.select.bound import BoundTree
from joins.select.sql import Place, Select

_CASTS = (*INTEGERS, "string", "date", "datetime", "timestamp", "bool", "float32", "float64")


def typed_nulls(
    branches: Sequence[Select], bind: Callable[[Select], BoundTree], refuse: Callable[[Place, str, str], NoReturn]
) -> list[Select]:
    """Return the queries of a UNION with `CAST(NULL AS …)` instead of NULL where another one has a value.

    Calls `refuse` if no CAST has the type of that value. NULLs beside NULLs stay, and are refused later."""
    if not any(_places(select) for select in branches):
        return list(branches)
    types: dict[int, LogicalType] = {}
    for select in branches:
        found = bind(_with(select, dict.fromkeys(_places(select), LogicalType(kind="string"))))
        for at, column in enumerate(found.rows.columns):
            if at not in _places(select) and column.type != NULL:
                types.setdefault(at, column.type)
                if not _is_castable(column.type) and any(at in _places(other) for other in branches):
                    what = f"{column.origin}, a {column.type}, next to NULL in a UNION, or in a FULL JOIN with one key"
                    refuse(select.items[at].place, what, "CAST(… AS STRING); of a list array_join(x, ','), or count(*)")
    return [_with(select, {at: types[at] for at in _places(select) if at in types}) for select in branches]


def _is_castable(type_: LogicalType) -> bool:
    return type_.kind in _CASTS or (type_.kind == "decimal" and type_.precision <= MOST_DIGITS)


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
        if _is_castable(type_):
            items[at] = replace(items[at], expression=exp.cast(exp.Null(), spark_type(type_)))
    return replace(select, items=tuple(items))
