"""Split a many-to-many join off a query (part of stage 3). The remaining query reads the pairs of that join.

The tables before the join become a query of their own, and so does the joined table. Later tables are joined to the
pairs. Example: in `a JOIN b ON b.k = a.k LEFT JOIN c ON c.id = b.c_id`, where `k` is no key, `a` and `b` form pairs,
and each pair looks up `c`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from cdc.topology.topology import Topology
from joins.query.finish import text_of_expression
from joins.query.nodes import EVERY
from joins.select.bound import BoundInterval, BoundPair, BoundTemporal, BoundTree
from joins.select.connected import factored
from joins.select.flat import Condition, Flat, FlatItem, FlatJoin
from joins.select.over.computed_keys import with_computed_keys
from joins.select.over.residuals import with_residuals
from joins.select.rows import QueryColumn, QueryRows, keys_of
from joins.select.sql import Place, Relation, refuse
from joins.select.tree import Meeting, build_trees, meetings, why_no_tree

PAIRS = "_pair"  # prefix of the name that replaces the tables that meet
FRONT = "_rows"  # the same for tables before one that is joined by a value that only their rows have
Bind = Callable[[Flat, Place], BoundTree]


@dataclass(frozen=True, slots=True)
class QueryCut:
    """A query's joins, split at a many-to-many join (`join`): `front` are those before it, `behind` those after it."""

    front: list[FlatJoin]
    join: FlatJoin
    behind: list[FlatJoin]


def paired(topology: Topology, flat: Flat, place: Place, bind: Bind, *, lookups: bool = False) -> Flat:
    """Return the query with its first many-to-many join replaced by a relation of pairs, or with computed columns in
    place of the expressions by which its tables meet.

    With `lookups`, a join whose equalities cover a key together, some of them of expressions or of several tables, is
    one of many to one: the tables before it become one relation. Raises TopologyError if that is impossible. `bind`
    binds the two sides."""
    flat = _in_order(flat)
    cut = _cut(topology, flat)
    left = frozenset([flat.first, *(join.alias for join in cut.front)])
    met = meetings(topology, flat, cut.join.alias, left)
    if not met and not cut.join.cross:
        flat, cut = _moved(flat, cut, left)
        met = meetings(topology, flat, cut.join.alias, left)
    rest = [one for one in cut.join.on if not any(one is meeting.condition for meeting in met)]
    keyed = lookups and not cut.join.full
    if not cut.join.cross and (not met or keyed or _needs_keys(cut.join, rest)):
        computed = with_computed_keys(flat, cut.join, left, bind, place)
        if computed is not None:
            flat, items = computed
            return _over_front(flat, len(cut.front), left, items, bind, place) if items else flat
        if not met and (parts := _factored(flat.where)) is not None:
            return replace(flat, where=parts)
        if not met:
            why_no_tree(topology, flat)
    if keyed and cut.front and _finds_one(flat, cut.join, met):
        return _over_front(flat, len(cut.front), left, [], bind, place)
    outer = not (cut.join.inner or cut.join.full)
    mixed = [one for one in rest if outer and aliases_in(one.expression) != {cut.join.alias}]
    to_right = [] if mixed else _right_conditions(topology, cut.join, rest)
    to_left: list[Condition] = []
    where = [one for one in flat.where if not any(one is meeting.condition for meeting in met)]
    if cut.join.inner:
        where += rest
    if not cut.join.full:
        to_left = [one for one in where if aliases_in(one.expression) <= left and aliases_in(one.expression)]
        if cut.join.inner:
            to_right += [one for one in where if aliases_in(one.expression) == {cut.join.alias}]
        where = [one for one in where if not any(one is other for other in (*to_left, *to_right))]
    wanted = columns_used(flat, cut)
    every = [] if met else [FlatItem(name=EVERY, expression=exp.Literal.number(1), place=place)]
    sides = (
        side_of(flat, flat.first, cut.front, to_left, wanted, bind, place, every),
        side_of(flat, cut.join.alias, [], to_right, wanted, bind, place, every),
    )
    for side, alias in zip(sides, (flat.first, cut.join.alias), strict=True):
        if not side.rows.primary_key:
            what = f"{alias} has no primary key, and is joined many to many"
            refuse(topology, flat.relations[alias].place, what, "rows of a table that has one")
    pair = _pair(sides, met, cut.join)
    if mixed:
        whole = _part(flat, flat.first, [*cut.front, replace(cut.join, inner=True)])
        whole.where, whole.items = to_left, _items(whole, [cut.join.alias], wanted, place)
        matched = with_residuals(sides[0], whole, cut.join.alias, place, bind)
        if matched is None:
            _right_conditions(topology, cut.join, rest)
        pair = matched or pair
    _check_ids(topology, pair, cut.join, place)
    name = f"{PAIRS}{len(flat.readings)}"
    return over(flat, name, pair, cut, where, left | {cut.join.alias}, place)


def _factored(where: Sequence[Condition]) -> list[Condition] | None:
    """Return the conditions of WHERE with what all alternatives of an OR share apart. None if there is no such OR."""
    found: list[Condition] = []
    for one in where:
        parts = factored([one.expression])
        split = len(parts) > 1 or parts[0] is not one.expression
        found += [Condition(expression=part, place=one.place) for part in parts] if split else [one]
    return found if any(one is not other for one, other in zip(found, where, strict=False)) else None


def _needs_keys(join: FlatJoin, rest: Iterable[Condition]) -> bool:
    """Return whether an outer join has an equality of expressions: unlike WHERE, it must decide what matches."""
    used = (aliases_in(one.expression) for one in rest if isinstance(one.expression.unnest(), exp.EQ))
    return not join.inner and any(join.alias in tables and len(tables) > 1 for tables in used)


def _over_front(flat: Flat, joins: int, left: frozenset[str], items: list[FlatItem], bind: Bind, place: Place) -> Flat:
    """Return the query with its first tables, as many as `joins` and one, replaced by a relation of their rows, which
    also has `items`."""
    cut = QueryCut(flat.joins[:joins], flat.joins[joins], flat.joins[joins:])
    front = side_of(flat, flat.first, cut.front, [], columns_used(flat, cut), bind, place, items)
    return over(flat, f"{FRONT}{len(flat.readings)}", front, cut, flat.where, left, place)


def _finds_one(flat: Flat, join: FlatJoin, met: list[Meeting]) -> bool:
    """Return whether equalities with several tables, and with literals, together contain a key of the joined table."""
    equal = [one.expression.unnest() for one in (*join.on, *(flat.where if join.inner else ()))]
    sides = [{one.this.unnest(), one.expression.unnest()} for one in equal if isinstance(one, exp.EQ)]
    fixed = {
        side.name
        for both in sides
        for side in both
        if isinstance(side, exp.Column) and side.table == join.alias and any(isinstance(o, exp.Literal) for o in both)
    }
    known = {one.column for one in met} | fixed
    return any(key and {*key} <= known for key in keys_of(flat.shapes[join.alias]))


def _in_order(flat: Flat) -> Flat:
    """Reorder inner joins so that each has, if possible, an equality with a table before it.

    FROM may list tables in any order. A condition that uses later tables moves to WHERE."""
    if any(join.full for join in flat.joins):
        return flat
    asked = [*flat.where, *(one for join in flat.joins if join.inner for one in join.on)]
    waiting, entered, joins, where = [*flat.joins], {flat.first}, list[FlatJoin](), list(flat.where)
    while waiting:
        # an inner join may move before others: its conditions on those are checked on the whole rows
        able = [join for join in waiting if join.inner and _meets(join, entered, asked)]
        join = able[0] if waiting[0].inner and able else waiting[0]
        waiting = [one for one in waiting if one is not join]
        entered.add(join.alias)
        late = [one for one in join.on if join.inner and not aliases_in(one.expression) <= entered]
        on = tuple(one for one in join.on if not any(one is other for other in late))
        joins.append(replace(join, on=on))
        where += late
    return replace(flat, joins=joins, where=where)


def _moved(flat: Flat, cut: QueryCut, left: frozenset[str]) -> tuple[Flat, QueryCut]:
    """Move the conditions of later inner joins that connect the two sides to the join between them.

    For example, `FROM a, b JOIN c ON c.id = b.x AND a.y = b.z` joins a with b."""
    if not cut.join.inner:
        return flat, cut
    sides = {*left, cut.join.alias}
    asked = [one for join in cut.behind if join.inner for one in join.on]
    moved = [one for one in asked if cut.join.alias in (used := aliases_in(one.expression)) and used <= sides]
    behind = [
        replace(join, on=tuple(one for one in join.on if not any(one is other for other in moved)))
        for join in cut.behind
    ]
    cut = QueryCut(cut.front, replace(cut.join, on=(*cut.join.on, *moved)), behind)
    return replace(flat, joins=[*cut.front, cut.join, *behind]), cut


def _meets(join: FlatJoin, entered: set[str], asked: list[Condition]) -> bool:
    """Return whether an equality connects the joined table with the tables in `entered`."""
    equal = (one.expression.unnest() for one in asked)
    others = (aliases_in(one) for one in equal if isinstance(one, exp.EQ))
    return any(join.alias in tables and tables - {join.alias} <= entered for tables in others if len(tables) > 1)


def _cut(topology: Topology, flat: Flat) -> QueryCut:
    """Split the query at its last FULL JOIN, or without one at its first many-to-many join.

    The left side of a FULL JOIN includes all joins before it, so the last one must be split off first."""
    for i, join in reversed([*enumerate(flat.joins)]):
        if join.full:
            return QueryCut(flat.joins[:i], join, flat.joins[i + 1 :])
    for i, join in enumerate(flat.joins):
        front = _part(flat, flat.first, flat.joins[: i + 1])
        if not build_trees(topology, front):
            if join.single:
                expected = "an aggregate such as max(x), or equalities with the whole key of its table"
                refuse(topology, flat.relations[join.alias].place, "a subquery of single rows as a value", expected)
            return QueryCut(flat.joins[:i], join, flat.joins[i + 1 :])
    why_no_tree(topology, flat)


def _part(flat: Flat, first: str, joins: list[FlatJoin]) -> Flat:
    """Return a flat query of `first` and the joined tables, with the WHERE conditions that use only these."""
    names = dict.fromkeys([first, *(join.alias for join in joins)])  # in order, so that the plan is the same every time
    return Flat(
        relations={name: flat.relations[name] for name in names},
        shapes={name: flat.shapes[name] for name in names},
        readings={name: flat.readings[name] for name in names if name in flat.readings},
        first=first,
        joins=joins,
        where=[one for one in flat.where if aliases_in(one.expression) <= names.keys()],
    )


def _right_conditions(topology: Topology, join: FlatJoin, rest: list[Condition]) -> list[Condition]:
    """Return the ON conditions of an outer join that filter the joined table.

    Raises TopologyError if they use other tables, or if the join is a FULL JOIN."""
    if join.inner:
        return []
    for condition in rest:
        if join.full or aliases_in(condition.expression) != {join.alias}:
            text = condition.text or text_of_expression(condition.expression)
            kind = "FULL" if join.full else "LEFT"
            what = f"ON {text} in a {kind} JOIN of many to many is not supported yet"
            refuse(topology, condition.place, what, "equalities, or (SELECT … WHERE …) in the table's place")
    return rest


def aliases_in(node: exp.Expr) -> set[str]:
    """Return the aliases of the tables that an expression uses."""
    return {column.table for column in node.find_all(exp.Column)}


def columns_used(flat: Flat, cut: QueryCut) -> dict[str, set[str]]:
    """Return, by alias, the columns of each table that the query uses, and the key of each table."""
    used = {alias: set(shape.primary_key) for alias, shape in flat.shapes.items()}
    conditions = [*flat.where, *(one for join in (*cut.front, cut.join, *cut.behind) for one in join.on)]
    for node in (*(item.expression for item in flat.items), *(one.expression for one in conditions)):
        for column in node.find_all(exp.Column):
            used[column.table].add(column.name)
    return used


def side_of(
    flat: Flat,
    first: str,
    joins: list[FlatJoin],
    where: Iterable[Condition],
    wanted: dict[str, set[str]],
    bind: Bind,
    place: Place,
    more: Sequence[FlatItem] = (),
) -> BoundTree:
    """Bind one side of a split join: a query of `first` and `joins` that selects their `wanted` columns, and `more`.

    The columns are named `alias.column`."""
    side = _part(flat, first, joins)
    side.where = list(where)
    side.items = [*_items(side, side.relations, wanted, place), *more]
    return bind(side, place)


def _items(flat: Flat, aliases: Iterable[str], wanted: dict[str, set[str]], place: Place) -> list[FlatItem]:
    return [
        FlatItem(name=f"{alias}.{name}", expression=_column(alias, name), place=place)
        for alias in aliases
        for name in flat.shapes[alias].places()
        if name in wanted[alias]
    ]


def _pair(sides: tuple[BoundTree, BoundTree], met: list[Meeting], join: FlatJoin) -> BoundPair:
    left, right = sides
    left_stays, right_stays = not join.inner, join.full
    keys = tuple((".".join(one.other), f"{join.alias}.{one.column}") for one in met) or ((EVERY, EVERY),)
    columns = [may_lack(column, right_stays) for column in left.rows.columns]
    columns += [may_lack(column, left_stays) for column in right.rows.columns]
    if join.inner:
        equal = {name for pair in keys for name in pair}
        columns = [replace(column, nullable=column.nullable and column.name not in equal) for column in columns]
    columns = [column for column in columns if column.name != EVERY]
    rows = QueryRows(columns=tuple(columns), primary_key=(*left.rows.primary_key, *right.rows.primary_key))
    return BoundPair(left=left, right=right, keys=keys, left_stays=left_stays, right_stays=right_stays, rows=rows)


def _check_ids(topology: Topology, pair: BoundPair, join: FlatJoin, place: Place) -> None:
    """Raise TopologyError for a FULL JOIN in which every key column of both sides is nullable.

    Unmatched rows of the two sides could then have the same id, which consists of NULLs."""
    nullable = {column.name for side in (pair.left, pair.right) for column in side.rows.columns if column.nullable}
    if pair.left_stays and pair.right_stays and nullable >= {*pair.left.rows.primary_key, *pair.right.rows.primary_key}:
        named = " and ".join(column.origin for column in pair.rows.columns if column.name in pair.rows.primary_key)
        what = f"no key of a FULL JOIN's rows: {named} may all be NULL in two of them"
        refuse(topology, join.on[0].place if join.on else place, what, "WHERE … IS NOT NULL below one of its sides")


def may_lack(column: QueryColumn, lacking: bool) -> QueryColumn:
    """Return the column, as nullable if `lacking`."""
    return QueryColumn(
        name=column.name,
        type=column.type,
        nullable=column.nullable or lacking,
        origin=column.origin,
        members=column.members,
    )


def over(
    flat: Flat,
    alias: str,
    pair: BoundPair | BoundInterval | BoundTree | BoundTemporal,
    cut: QueryCut,
    where: list[Condition],
    inside: frozenset[str],
    place: Place,
) -> Flat:
    """Return the query with the joined tables replaced by the relation of pairs, called `alias`.

    `inside` are the aliases of the replaced tables, and `where` the conditions that remain."""

    def moved(node: exp.Expr) -> exp.Expr:
        copy = exp.Paren(this=node.copy())
        for column in list(copy.find_all(exp.Column)):
            if column.table in inside:
                column.replace(_column(alias, f"{column.table}.{column.name}"))
        inner: exp.Expr = copy.this
        return inner

    def moved_condition(condition: Condition) -> Condition:
        text = condition.text or text_of_expression(condition.expression)
        return Condition(expression=moved(condition.expression), place=condition.place, text=text)

    outside = [name for name in flat.relations if name not in inside]
    return Flat(
        relations={
            alias: Relation(alias=alias, table_id=None, view=None, place=place),
            **{name: flat.relations[name] for name in outside},
        },
        shapes={alias: pair.rows, **{name: flat.shapes[name] for name in outside}},
        readings={alias: pair, **{name: flat.readings[name] for name in outside if name in flat.readings}},
        first=alias,
        joins=[replace(join, on=tuple(map(moved_condition, join.on))) for join in cut.behind],
        where=list(map(moved_condition, where)),
        items=[
            FlatItem(
                name=item.name,
                expression=moved(item.expression),
                place=item.place,
                text=item.text or text_of_expression(item.expression),
            )
            for item in flat.items
        ],
    )


def _column(alias: str, name: str) -> exp.Expr:
    return exp.column(name, table=alias, quoted=True)
