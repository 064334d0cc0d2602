"""Join tables by the value of an expression (part of stage 3): a query of its own computes it.

    a JOIN b ON b.mail = lower(a.mail)
      (SELECT …, lower(mail) AS _key0 FROM a) a JOIN b ON b.mail = a._key0

The query selects the columns that are used. Both sides of an equality may be expressions, one over the joined table and
one over tables before it."""

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
_STRICT = (
    exp.Column, exp.Identifier, exp.Literal, exp.Paren, exp.Add, exp.Sub, exp.Mul, exp.Mod, exp.Neg, exp.Lower,
    exp.Upper, exp.Cast, exp.DataType, exp.DataTypeParam, exp.DPipe, exp.Trim,
)  # fmt: skip
Bind = Callable[[Flat, Place], BoundTree]


def with_computed_keys(
    flat: Flat, join: FlatJoin, before: frozenset[str], bind: Bind, place: Place
) -> tuple[Flat, list[FlatItem]] | None:
    """Return the query in which equalities of expressions between a joined table and those in `before` are equalities
    of columns. None if there are none. `bind` binds the queries that compute them.

    The items, named `alias.column`, are values that only the rows of all tables in `before` together have: those over
    several tables, and those that have a value for a row that an outer join lacks, such as `coalesce(b.y, 0)`."""
    optional = {one.alias for one in flat.joins if not one.inner} | ({*before} if _is_full(flat, before) else set())
    keys = _Keys(flat, join.alias, before, optional)
    found: dict[int, Condition] = {}
    for condition in (*join.on, *(flat.where if join.inner else ())):
        node = condition.expression.unnest()
        if isinstance(node, exp.EQ) and (sides := keys.columns(node.this.unnest(), node.expression.unnest())):
            text = condition.text or text_of_expression(condition.expression)
            equality = exp.EQ(this=sides[0], expression=sides[1])
            found[id(condition)] = Condition(expression=equality, place=condition.place, text=text)
    if not found:
        return None
    made = replace(flat, shapes=dict(flat.shapes), readings=dict(flat.readings))
    made.where = [found.get(id(one), one) for one in flat.where]
    made.joins = [replace(one, on=tuple(found.get(id(c), c) for c in one.on)) for one in flat.joins]
    used = [*keys.front.values()]
    for alias, computed in keys.own.items():
        bound = bind(_query(flat, made, alias, computed, used, place), place)
        made.shapes[alias], made.readings[alias] = bound.rows, bound
    return made, [FlatItem(name=name, expression=node, place=place) for name, node in keys.front.items()]


def _is_full(flat: Flat, before: frozenset[str]) -> bool:
    return any(one.full and one.alias in before for one in flat.joins)


class _Keys:
    """Collects the values by which a table is joined: by alias and column the `own` ones of one table, and those of the
    rows before it, `front`, by `alias.column`."""

    def __init__(self, flat: Flat, joined: str, before: frozenset[str], optional: set[str]) -> None:
        self.flat, self.joined, self.before, self.optional = flat, joined, before, optional
        self.own: dict[str, dict[str, exp.Expr]] = {}
        self.front: dict[str, exp.Expr] = {}

    def columns(self, left: exp.Expr, right: exp.Expr) -> tuple[exp.Expr, exp.Expr] | None:
        """Return the columns that have the values of both sides of an equality. None if it is none between the joined
        table and those before it, or one of two columns."""
        tables = [{column.table for column in side.find_all(exp.Column)} for side in (left, right)]
        if {self.joined} not in tables or all(isinstance(side, exp.Column) for side in (left, right)):
            return None
        other = tables[1] if tables[0] == {self.joined} else tables[0]
        if not other or not other <= self.before:
            return None
        return self._column(left, tables[0]), self._column(right, tables[1])

    def _column(self, side: exp.Expr, tables: set[str]) -> exp.Expr:
        if isinstance(side, exp.Column):
            return side.copy()
        alias = min(tables)
        own = tables == {self.joined} or (len(tables) == 1 and (alias not in self.optional or _is_strict(side)))
        known = self.own.setdefault(alias, {}) if own else self.front
        name = next((name for name, node in known.items() if node == side), None)
        if name is None:
            former = sum(one.startswith(_KEY) for one in self.flat.shapes[alias].places())
            name = f"{_KEY}{former + len(known)}"
            name = name if own else f"{alias}.{name}"
            known[name] = side.copy()
        return exp.column(name.rpartition(".")[2], table=alias, quoted=True)


def _is_strict(node: exp.Expr) -> bool:
    """Return whether an expression is NULL if its columns are, as those of a row that an outer join lacks."""
    return all(isinstance(one, _STRICT) for one in node.walk())


def _query(
    flat: Flat, made: Flat, alias: str, computed: dict[str, exp.Expr], more: list[exp.Expr], place: Place
) -> Flat:
    """Return the query of one table: its keys, the columns that the query and `more` use, and the computed ones."""
    shape = flat.shapes[alias]
    nodes = [*more, *(item.expression for item in made.items)]
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
