"""Split off a LEFT JOIN of many to many whose ON also compares both tables otherwise (part of stage 3).

    a LEFT JOIN b ON b.k = a.k AND b.since <= a.at
      a LEFT JOIN (SELECT a.id AS _l0, b.* FROM a JOIN b ON b.k = a.k AND b.since <= a.at) ON _l0 = a.id

The inner join finds the pairs, and the outer one keeps the rows that have none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from joins.select.bound import BoundPair, BoundTree
from joins.select.flat import Flat, FlatItem
from joins.select.rows import QueryColumn, QueryRows
from joins.select.sql import Place

_LEFT = "_l"  # begins the names of the left row's key among the pairs
Bind = Callable[[Flat, Place], BoundTree]


def with_residuals(left: BoundTree, pairs: Flat, alias: str, place: Place, bind: Bind) -> BoundPair | None:
    """Return the rows of `left`, each with the rows of the table `alias` that `pairs` finds for it, or with NULLs.

    `pairs` joins the tables of `left` with that table, and selects the columns of the latter. None if a row of `left`
    cannot be found by its key, which may be NULL."""
    columns = {column.name: column for column in left.rows.columns}
    key = left.rows.primary_key
    if not key or any(columns[name].nullable for name in key):
        return None
    written = {item.name: item for item in left.flat.items}
    named = [FlatItem(name=f"{_LEFT}{i}", expression=written[n].expression, place=place) for i, n in enumerate(key)]
    right = bind(replace(pairs, items=[*named, *pairs.items]), place)
    if not right.rows.primary_key:
        return None
    own = tuple(f"{alias}.{name}" for name in pairs.shapes[alias].primary_key)
    optional = [replace(column, nullable=True) for column in right.rows.columns]
    return BoundPair(
        left=left,
        right=right,
        keys=tuple((name, f"{_LEFT}{i}") for i, name in enumerate(key)),
        left_stays=True,
        right_stays=False,
        rows=QueryRows(
            columns=(*left.rows.columns, *optional),
            primary_key=(*key, *right.rows.primary_key),
            also=((*key, *own),) if _has(right.rows.columns, own) and own != right.rows.primary_key else (),
        ),
    )


def _has(columns: tuple[QueryColumn, ...], names: tuple[str, ...]) -> bool:
    return bool(names) and {*names} <= {column.name for column in columns}
