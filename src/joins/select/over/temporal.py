"""Split conditions on the time off a query (part of stage 3): a query of its own has the rows that satisfy them now.

    SELECT o.id, c.name FROM orders o JOIN customers c ON … WHERE o.at >= now() - INTERVAL 1 DAY
      SELECT o.id, c.name FROM (live rows of orders) o JOIN customers c ON …

If a condition uses one table whose rows are needed, the query reads this table alone, with the other conditions on it.
So the state of the joins has live rows only. Otherwise it reads all tables of the query."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from sqlglot import exp

from cdc.topology.topology import Topology
from joins.query.functions.moments import TemporalFilter, parts_of
from joins.query.group import TimeBound
from joins.query.value_types import family
from joins.select.bound import BoundTemporal, BoundTree
from joins.select.flat import Condition, Flat, FlatItem, FlatJoin
from joins.select.pairing import PAIRS, QueryCut, aliases_in, columns_used, over
from joins.select.rows import keys_of
from joins.select.sql import Place, refuse

_VALUE = "_now"  # internal names begin with "_"
Bind = Callable[[Flat, Place], BoundTree]


def temporal(topology: Topology, flat: Flat, place: Place, bind: Bind) -> Flat | None:
    """Return the query with its conditions on the time replaced by queries of live rows. None without such a
    condition. `bind` binds these queries."""
    joins = [(join, one) for join in flat.joins for one in join.on if _is_temporal(one)]
    found = [one for one in flat.where if _is_temporal(one)]
    if not joins and not found:
        return None
    for join, one in joins:
        if join.inner:
            found.append(one)
        elif join.full or aliases_in(one.expression) != {join.alias}:
            kind = "FULL" if join.full else "LEFT"
            what = f"ON {_text(one)} in a {kind} JOIN"
            expected = f"a condition on {join.alias} alone, or (SELECT … WHERE …) in the table's place"
            refuse(topology, one.place, what, expected)
    made = replace(
        flat,
        shapes=dict(flat.shapes),
        readings=dict(flat.readings),
        joins=[replace(join, on=tuple(one for one in join.on if not _is_temporal(one))) for join in flat.joins],
        where=[one for one in flat.where if not _is_temporal(one)],
    )
    for join in flat.joins:
        if own := [one for one in join.on if not join.inner and _is_temporal(one)]:
            _read_live(topology, made, join.alias, own, found, place, bind)
    rest = list[Condition]()
    for alias in dict.fromkeys(flat.relations):
        own = [one for one in found if aliases_in(one.expression) == {alias}]
        if own and _is_needed(flat, alias):
            _read_live(topology, made, alias, own, found, place, bind)
        else:
            rest += own
    rest += [one for one in found if len(aliases_in(one.expression)) > 1]
    return _of_all(topology, made, rest, place, bind) if rest else made


def _is_temporal(condition: Condition) -> bool:
    return isinstance(condition.expression.unnest(), TemporalFilter)


def _text(condition: Condition) -> str:
    text: str = condition.expression.unnest().args["text"].name
    return text


def _is_needed(flat: Flat, alias: str) -> bool:
    """Return whether each row of the result has a row of a table: no outer join may lack it."""
    full = any(join.full for join in flat.joins)
    return not full and all(join.inner for join in flat.joins if join.alias == alias)


def _read_live(
    topology: Topology,
    made: Flat,
    alias: str,
    conditions: Sequence[Condition],
    others: Sequence[Condition],
    place: Place,
    bind: Bind,
) -> None:
    """Replace one table of a query by its live rows, in place. Conditions on this table alone move to its query.

    `others` are conditions on the time that may still need columns of it."""
    needed = _is_needed(made, alias)
    moved = [one for one in made.where if needed and aliases_in(one.expression) == {alias}]
    used = columns_used(made, QueryCut([], FlatJoin(alias="", inner=True, on=()), made.joins))
    shape = made.shapes[alias]
    later = {column.name for one in others for column in one.expression.find_all(exp.Column) if column.table == alias}
    wanted = {*used[alias], *later, *(name for key in keys_of(shape) for name in key)}
    inner = Flat(
        relations={alias: made.relations[alias]},
        shapes={alias: shape},
        readings={alias: made.readings[alias]} if alias in made.readings else {},
        first=alias,
        where=moved,
        items=[
            FlatItem(name=name, expression=exp.column(name, table=alias, quoted=True), place=place)
            for name in shape.places()
            if name in wanted
        ],
    )
    live = _live(topology, inner, conditions, place, bind)
    made.shapes[alias], made.readings[alias] = live.rows, live
    made.where = [one for one in made.where if not any(one is other for other in moved)]


def _of_all(topology: Topology, made: Flat, conditions: Sequence[Condition], place: Place, bind: Bind) -> Flat:
    """Return the query over the live rows of all its tables together."""
    used = columns_used(made, QueryCut([], FlatJoin(alias="", inner=True, on=()), made.joins))
    items = [
        FlatItem(name=f"{alias}.{name}", expression=exp.column(name, table=alias, quoted=True), place=place)
        for alias in made.relations
        for name in made.shapes[alias].places()
        if name in used[alias]
    ]
    live = _live(topology, replace(made, items=items, where=list(made.where)), conditions, place, bind)
    cut = QueryCut([], FlatJoin(alias="", inner=True, on=()), [])
    return over(made, f"{PAIRS}{len(made.readings)}", live, cut, [], frozenset(made.relations), place)


def _live(topology: Topology, inner: Flat, conditions: Sequence[Condition], place: Place, bind: Bind) -> BoundTemporal:
    """Return the rows of a query that satisfy conditions on the time."""
    names: dict[str, str] = {}
    bounds, items = list[TimeBound](), list(inner.items)
    for one in conditions:
        node = one.expression.unnest()
        assert isinstance(node, TemporalFilter)
        operator, moment = parts_of(node)
        text = node.this.sql()
        if text not in names:
            names[text] = f"{_VALUE}{len(names)}"
            items.append(FlatItem(name=names[text], expression=node.this.copy(), place=one.place))
            known = exp.Not(this=exp.Is(this=node.this.copy(), expression=exp.Null()))
            inner.where.append(Condition(expression=known, place=one.place))
        bounds.append(
            TimeBound(
                value=list(names).index(text), operator=operator, unit=moment.unit, before=moment.before,
                months=moment.months, after=moment.after, text=_text(one),
            )
        )  # fmt: skip
    inner.items = items
    tree = bind(inner, place)
    columns = {column.name: column for column in tree.rows.columns}
    for one in conditions:
        value = columns[names[one.expression.unnest().this.sql()]]
        if family(value.type) not in ("date", "moment"):
            what = f"{value.origin}, a {value.type}, is compared with the time"
            refuse(topology, one.place, what, "a date or timestamp: CAST(x AS TIMESTAMP)")
    if not tree.rows.primary_key:
        what = "rows that a condition on the time selects have no key"
        refuse(topology, place, what, "the key of the table among the columns of the query in FROM")
    return BoundTemporal(inner=tree, values=tuple(names.values()), bounds=tuple(bounds), rows=tree.rows)
