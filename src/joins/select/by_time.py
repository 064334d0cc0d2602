"""Split a join by time off a query (part of stage 3). Spark computes its pairs, which the remaining query reads.

A join by time joins two append-only tables, and its ON condition bounds the difference of their times. So a row must
be kept only for a limited time. Example: `JOIN clicks c ON c.ad = v.ad AND c.ts BETWEEN v.ts AND v.ts + INTERVAL 10
MINUTE`. The join precedes every other step: other tables are joined to the pairs, and groups are groups of pairs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sqlglot import exp

from cdc.model.schema import TableSchema
from cdc.topology.topology import Topology
from joins.query.finish import compiled, text_of_expression, value
from joins.query.timed import Bound, bounds_of, columns_of, has_interval
from joins.query.typed import Typed, Unsupported
from joins.query.value_types import family
from joins.select.bound import BoundInterval
from joins.select.flat import Condition, Flat, FlatJoin
from joins.select.pairing import PAIRS, Bind, QueryCut, aliases_in, columns_used, may_lack, over, side_of
from joins.select.rows import QueryRows
from joins.select.sql import Place, refuse
from joins.select.tree import meetings, why_no_tree


@dataclass(frozen=True, slots=True)
class _Timed:
    """A join by time: the join, its conditions on times, and the bounds that these define."""

    join: FlatJoin
    conditions: list[Condition]
    bounds: list[Bound]


def by_time(topology: Topology, flat: Flat, place: Place, bind: Bind) -> Flat | None:
    """Return the query with its join by time replaced by a relation of pairs. None if it has no join by time.

    A join is by time if one of its tables is append-only and a condition on both contains an INTERVAL, or if two
    append-only tables bound each other's times from both sides. `bind` binds the two sides. Raises TopologyError for an
    invalid join by time."""
    for number, join in enumerate(flat.joins):
        timed = _timed(topology, flat, join)
        if timed is not None and _is_meant(topology, flat, timed):
            return _over_pairs(topology, flat, number, timed, place, bind)
    return None


def _timed(topology: Topology, flat: Flat, join: FlatJoin) -> _Timed | None:
    """Return a join's time conditions, and its further conditions on the same two columns, as bounds. None without
    any."""
    found: list[tuple[Condition, tuple[Bound, ...]]] = []
    before = {flat.first, *(one.alias for one in flat.joins[: flat.joins.index(join)])}
    for condition in (*join.on, *(flat.where if join.inner else ())):
        tables = aliases_in(condition.expression)
        if join.alias not in tables or not tables <= {join.alias, *before}:
            continue
        if has_interval(condition.expression) and not _may_measure(topology, flat, tables):
            continue
        try:
            bounds = bounds_of(condition.expression)
        except Unsupported as error:
            refuse(topology, condition.place, error.what.replace("`", ""), error.expected)
        if bounds and (has_interval(condition.expression) or _are_moments(flat, bounds)):
            found.append((condition, bounds))
    measuring = [one for one in found if has_interval(one[0].expression)]
    compared = next((_columns(bounds) for _, bounds in (*measuring, *found)), set())
    found = [one for one in found if one in measuring or _columns(one[1]) == compared]
    return _Timed(join, [one for one, _ in found], [bound for _, some in found for bound in some]) if found else None


def _may_measure(topology: Topology, flat: Flat, tables: set[str]) -> bool:
    """Return whether a condition with an INTERVAL may join by time. Others are ordinary conditions."""
    return len(tables) > 1 and any(_lateness(topology, flat, name) is not None for name in tables)


def _columns(bounds: Iterable[Bound]) -> set[tuple[str, str]]:
    return {(column.table, column.name) for column in columns_of(bounds)}


def _are_moments(flat: Flat, bounds: tuple[Bound, ...]) -> bool:
    columns = [flat.shapes[table].column(name) for table, name in _columns(bounds)]
    return all(column is not None and family(column.type) == "moment" for column in columns)


def _is_meant(topology: Topology, flat: Flat, timed: _Timed) -> bool:
    if any(has_interval(condition.expression) for condition in timed.conditions):
        return True
    names = [flat.first, timed.join.alias]
    kept = all(_lateness(topology, flat, name) is not None for name in names)
    here = [one for one in timed.bounds if {one.later.table, one.earlier.table} == {*names}]
    return kept and {one.later.table for one in here} == {*names}


def _lateness(topology: Topology, flat: Flat, alias: str) -> float | None:
    shape = flat.shapes[alias]
    return topology.lateness(shape.table_id) if isinstance(shape, TableSchema) else None


def _over_pairs(topology: Topology, flat: Flat, number: int, timed: _Timed, place: Place, bind: Bind) -> Flat:
    join, at = timed.join, timed.conditions[0].place
    if number > 0:
        expected = f"FROM {timed.bounds[0].earlier.table} JOIN {join.alias} ON … first, the others after it"
        refuse(topology, at, f"{join.alias} is joined by time after another join", expected)
    if join.full:
        refuse(topology, at, "a FULL JOIN by time", "a LEFT JOIN, or UNION ALL of two of them")
    sides = (flat.first, join.alias)
    lateness = tuple(_milliseconds(topology, flat, alias, at) for alias in sides)
    times, earliest, latest = _range(topology, flat, timed, at)
    met = meetings(topology, flat, join.alias, frozenset([flat.first]))
    if not met:
        why_no_tree(topology, flat)
    used = [*timed.conditions, *(one.condition for one in met)]
    rest = [one for one in join.on if not any(one is other for other in used)]
    where = [one for one in flat.where if not any(one is other for other in used)]
    if join.inner:
        where += rest
    side_conditions = {flat.first: [one for one in where if _is_of(flat, one, flat.first)], join.alias: rest}
    if join.inner:
        side_conditions[join.alias] = [one for one in where if _is_of(flat, one, join.alias)]
        where = [one for one in where if not any(one is other for other in side_conditions[join.alias])]
    elif hidden := [one for one in rest if not _is_of(flat, one, join.alias)]:
        what = f"ON {text_of_expression(hidden[0].expression)} in a LEFT JOIN by time is not supported yet"
        expected = f"equalities, times, and conditions on {join.alias} alone that cannot fail"
        refuse(topology, hidden[0].place, what, expected)
    where = [one for one in where if not any(one is other for other in side_conditions[flat.first])]
    cut = QueryCut([], join, flat.joins[1:])
    wanted = columns_used(flat, cut)
    left, right = (side_of(flat, alias, [], side_conditions[alias], wanted, bind, place) for alias in sides)
    for side, alias in ((left, flat.first), (right, join.alias)):
        if not side.rows.primary_key:
            what = f"{alias} has no primary key, and is joined by time"
            refuse(topology, flat.relations[alias].place, what, "rows of a table that has one")
    columns = (*left.rows.columns, *(may_lack(column, not join.inner) for column in right.rows.columns))
    pairs = BoundInterval(
        left=left,
        right=right,
        keys=tuple((".".join(one.other), f"{join.alias}.{one.column}") for one in met),
        times=times,
        earliest=earliest,
        latest=latest,
        left_stays=not join.inner,
        lateness=(lateness[0], lateness[1]),
        rows=QueryRows(columns=columns, primary_key=(*left.rows.primary_key, *right.rows.primary_key)),
        place=at,
    )
    return over(flat, f"{PAIRS}{len(flat.readings)}", pairs, cut, where, frozenset(sides), place)


def _milliseconds(topology: Topology, flat: Flat, alias: str, place: Place) -> int:
    found = _lateness(topology, flat, alias)
    if found is not None:
        return round(1000 * found)
    shape = flat.shapes[alias]
    if not isinstance(shape, TableSchema):
        refuse(
            topology, place, f"{alias}, the rows of a query, is joined by time", "a captured table that is append_only"
        )
    table = shape.table_id
    what = f"{alias} is joined by time, and the rows of {table} may change"
    form = f"{{append_only: true, watermark: 10m}} for {table.table} under sources.{table.source}.tables"
    refuse(topology, place, what, f"{form}, if they are only inserted")


def _range(topology: Topology, flat: Flat, timed: _Timed, place: Place) -> tuple[tuple[str, str], int, int]:
    """Return the time columns of the left and right side, and the least and greatest difference in microseconds.

    The difference is the right time minus the left time."""
    first, alias = flat.first, timed.join.alias
    times = {column.table: column for column in columns_of(timed.bounds)}
    columns = _columns(timed.bounds)
    if len(columns) > 2:
        more = ", ".join(sorted(f"{table}.{name}" for table, name in columns))
        refuse(
            topology,
            place,
            f"a join by more times than one of each side: {more}",
            f"bounds of {first} and {alias} by one",
        )
    for table, name in sorted(columns):
        column = flat.shapes[table].column(name)
        assert column is not None  # joins.select.flatten refuses unknown columns
        if family(column.type) != "moment":
            refuse(
                topology, place, f"{table}.{name}, a {column.type}, as the time of a join", "a DATETIME or TIMESTAMP"
            )
    behind = [bound.most for bound in timed.bounds if bound.later.table == alias]
    before = [bound.most for bound in timed.bounds if bound.later.table == first]
    left, right = (f"{name}.{times[name].name}" for name in (first, alias))
    if not behind or not before:
        missing = f"{right} <= {left} + INTERVAL 1 HOUR" if not behind else f"{right} >= {left} - INTERVAL 10 MINUTE"
        refuse(topology, place, "a join by time with one bound, which keeps rows forever", f"AND {missing}")
    if -min(before) > min(behind):
        refuse(topology, place, f"no {alias} lies between these times", "the earlier bound first")
    return (left, right), -min(before), min(behind)


def _is_of(flat: Flat, condition: Condition, alias: str) -> bool:
    """Return whether a condition uses columns of one table only and cannot fail.

    Such a condition can filter rows before the join. Others run after the join, where a failure becomes a dead
    letter."""
    if aliases_in(condition.expression) != {alias}:
        return False
    shape = flat.shapes[alias]

    def resolve(column: exp.Column) -> Typed:
        found = shape.column(column.name)
        assert found is not None  # joins.select.flatten refuses unknown columns
        return value(column, 0, found.type)

    try:
        return compiled(condition.expression, resolve, condition=True).failed is None
    except Unsupported:  # reported where it is finally compiled
        return False
