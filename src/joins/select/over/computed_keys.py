"""Join tables by the value of an expression (part of stage 3): a query of its own computes it.

    a JOIN b ON b.mail = lower(a.mail)
      (SELECT …, lower(mail) AS _key0 FROM a) a JOIN b ON b.mail = a._key0

The query selects the columns that are used. Both sides of an equality may be expressions, each over one table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from sqlglot import exp

from joins.query.finish import text_of_expression
from joins.select.bound import BoundTree
from joins.select.flat import Condition, Flat, FlatItem, FlatJoin
from joins.select.rows import keys_of
from joins.select.sql import Place

_KEY = "_key"  # internal names begin with "_"
Bind = Callable[[Flat, Place], BoundTree]


def with_computed_keys(flat: Flat, join: FlatJoin, before: frozenset[str], bind: Bind, place: Place) -> Flat | None:
    """Return the query in which equalities of expressions between a joined table and those in `before` are equalities
    of columns. None if there are none. `bind` binds the queries that compute them."""
    values: dict[str, dict[str, exp.Expr]] = {}  # by alias and column
    found: dict[int, Condition] = {}
    for condition in (*join.on, *(flat.where if join.inner else ())):
        node = condition.expression.unnest()
        sides = [node.this.unnest(), node.expression.unnest()] if isinstance(node, exp.EQ) else []
        aliases = [_only(side) for side in sides]
        if join.alias not in aliases or not {*aliases} - {join.alias} <= before or aliases[0] == aliases[1]:
            continue
        if all(isinstance(side, exp.Column) for side in sides):
            continue
        columns = [_column(alias or "", side, values, flat) for alias, side in zip(aliases, sides, strict=True)]
        text = condition.text or text_of_expression(condition.expression)
        equality = exp.EQ(this=columns[0], expression=columns[1])
        found[id(condition)] = Condition(expression=equality, place=condition.place, text=text)
    if not found:
        return None
    made = replace(flat, shapes=dict(flat.shapes), readings=dict(flat.readings))
    made.where = [found.get(id(one), one) for one in flat.where]
    made.joins = [replace(one, on=tuple(found.get(id(c), c) for c in one.on)) for one in flat.joins]
    for alias, computed in values.items():
        bound = bind(_query(flat, made, alias, computed, place), place)
        made.shapes[alias], made.readings[alias] = bound.rows, bound
    return made


def _only(node: exp.Expr) -> str | None:
    """Return the only table that an expression uses. None if there are none or several."""
    aliases = {column.table for column in node.find_all(exp.Column)}
    return aliases.pop() if len(aliases) == 1 else None


def _column(alias: str, side: exp.Expr, values: dict[str, dict[str, exp.Expr]], flat: Flat) -> exp.Expr:
    """Return the column that has the value of one side of an equality."""
    if isinstance(side, exp.Column):
        return side.copy()
    computed = values.setdefault(alias, {})
    name = next((name for name, node in computed.items() if node == side), None)
    if name is None:
        former = sum(one.startswith(_KEY) for one in flat.shapes[alias].places())
        name = f"{_KEY}{former + len(computed)}"
        computed[name] = side.copy()
    return exp.column(name, table=alias, quoted=True)


def _query(flat: Flat, made: Flat, alias: str, computed: dict[str, exp.Expr], place: Place) -> Flat:
    """Return the query of one table: its keys, the columns that the query uses, and the computed ones."""
    shape = flat.shapes[alias]
    nodes = [item.expression for item in made.items]
    nodes += [one.expression for one in (*made.where, *(one for join in made.joins for one in join.on))]
    used = {column.name for node in nodes for column in node.find_all(exp.Column) if column.table == alias}
    used |= {name for key in keys_of(shape) for name in key}
    columns = {name: exp.column(name, table=alias, quoted=True) for name in shape.places() if name in used}
    return Flat(
        relations={alias: flat.relations[alias]},
        shapes={alias: shape},
        readings={alias: flat.readings[alias]} if alias in flat.readings else {},
        first=alias,
        items=[FlatItem(name=n, expression=node, place=place) for n, node in {**columns, **computed}.items()],
    )
