"""Parse ROW_NUMBER() OVER (…) and the condition that limits it (part of stage 1). It selects the first rows per
partition.

    SELECT t.* FROM (SELECT o.*, ROW_NUMBER() OVER (PARTITION BY o.customer_id ORDER BY o.amount DESC) AS n FROM o) t
    WHERE t.n <= 3

Without a limit, a change may renumber a whole partition, and ROW_NUMBER() is a window function as any other
(`joins.select.over.windowed`). With one, at most that many rows change. The limit is a condition of the enclosing
query. It is moved into the subquery with the ROW_NUMBER() (`Ranking.most`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from sqlglot import exp

from joins.query.parameters import order_of
from joins.query.typed import refuse
from joins.query.windows import windows_in
from joins.select.names import same_name
from joins.select.sql import Join, Place, Ranking, Relation, Select, conjuncts, numbered

MOST = 100
HIDDEN = "_n"  # the number in a query that does not select it
_MIRRORED: dict[type[exp.Expr], type[exp.Expr]] = {exp.GT: exp.LT, exp.GTE: exp.LTE, exp.LT: exp.GT, exp.LTE: exp.GTE}


def ranking_in(
    select: exp.Select, names: Sequence[str], place: Callable[[exp.Expr], Place]
) -> tuple[Ranking | None, tuple[exp.Expr, ...]]:
    """Return the ROW_NUMBER() of a query that a limit may follow, and the conditions of QUALIFY that remain.

    It is the query's only window function, and a result column or in QUALIFY, which then sets the limit. None if
    there is no such one. `names` are the names of the columns."""
    qualify = select.args.get("qualify")
    conditions = () if qualify is None else conjuncts(qualify.this)
    plain = [(node.unalias(), names[i], i) for i, node in enumerate(select.expressions)]
    windows = [(one, name, at) for node, name, at in plain for one in windows_in(node)]
    windows += [(node, HIDDEN, len(names)) for one in conditions for node in windows_in(one)]
    if not windows:
        replaced = (column for one in conditions for column in one.find_all(exp.Column) if column.table[:1] == "_")
        if any(replaced):  # `joins.select.rewrite.partitions` has replaced it
            what = "QUALIFY with nothing but aggregates of whole partitions"
            refuse(conditions[0], what, "them as columns of a query in FROM, and WHERE")
        if conditions:
            refuse(conditions[0], "QUALIFY without a window function", "WHERE, or HAVING")
        return None, ()
    window, name, at = windows[0]
    alone = len(windows) == 1 and select.args.get("distinct") is None and _numbers(window)
    if not alone or (name != HIDDEN and plain[at][0] is not window):
        return None, conditions
    partition = tuple(window.args.get("partition_by") or ())
    order = order_of(window.args["order"].expressions)
    ranking = Ranking(partition=partition, order=order, name=name, at=at, place=place(window), window=window)
    for one in conditions:
        limit = _limit_of(one, name, names, "", alone=True)
        if limit is None or not limit[1] or not 0 < limit[0] <= MOST:
            return None, conditions
        ranking = replace(ranking, most=min(limit[0], ranking.most or limit[0]))
    return ranking, ()


def _numbers(window: exp.Window) -> bool:
    """Return whether a window function is a ROW_NUMBER() with ORDER BY."""
    plain = window.args.get("alias") is None and window.args.get("spec") is None
    return isinstance(window.this, exp.RowNumber) and plain and window.args.get("order") is not None


def ranked_by(ranking: Ranking | None) -> tuple[exp.Expr, ...]:
    """Return the PARTITION BY and ORDER BY expressions of a ROW_NUMBER()."""
    return () if ranking is None else (*ranking.partition, *(one for one, _ in ranking.order))


def limited(
    first: Relation, joins: Sequence[Join], where: Sequence[exp.Expr]
) -> tuple[Relation, tuple[Join, ...], tuple[exp.Expr, ...]]:
    """Move conditions such as `t.n <= 3` into the numbered subqueries. Return the relations and the remaining
    conditions.

    An ON condition can limit its own table, a WHERE condition any table. A WHERE condition is kept if rows that lack
    the table would otherwise pass. Raises Unsupported if a limit is too large."""
    alone, full = not joins, any(join.full for join in joins)
    first, gone = _limited(first, where, alone=alone)
    made: list[Join] = []
    for join in joins:
        relation, done = _limited(join.relation, where, alone=alone)
        gone += done if join.inner else []
        on = join.on
        if not join.full:
            relation, done = _limited(relation, on, alone=alone)
            on = tuple(one for one in on if not any(one is other for other in done))
        made.append(replace(join, relation=relation, on=on))
    left = tuple(one for one in where if full or not any(one is other for other in gone))
    return _numbered(first), tuple(replace(one, relation=_numbered(one.relation)) for one in made), left


def _numbered(relation: Relation) -> Relation:
    return relation if relation.query is None else replace(relation, query=numbered(relation.query))


def _limited(relation: Relation, conditions: Iterable[exp.Expr], *, alone: bool) -> tuple[Relation, list[exp.Expr]]:
    """Apply limiting conditions to one relation. Return it, and the conditions that are now redundant.

    `alone`: the relation is the only table, so `n <= 3` needs no table prefix."""
    query = relation.query
    if not isinstance(query, Select) or query.ranking is None:
        return relation, []
    most, done = query.ranking.most, list[exp.Expr]()
    names = [item.name for item in query.items]
    for condition in conditions:
        limit = _limit_of(condition, query.ranking.name, names, relation.alias, alone=alone)
        if limit is not None and limit[0] <= MOST:
            most = _most(condition, limit[0], most)
            done += [condition] if limit[1] else []
    return replace(relation, query=replace(query, ranking=replace(query.ranking, most=most))), done


def _limit_of(
    condition: exp.Expr, name: str, names: Sequence[str], alias: str, *, alone: bool
) -> tuple[int, bool] | None:
    """Return the limit n that a condition sets, and whether it allows all numbers up to n. None if it sets none.
    `name` is the number's name, among the `names` of all columns.

    For example, `n <= 3` gives (3, True), and `n = 3` gives (3, False)."""
    node = condition.unnest()

    def numbers(side: exp.Expr) -> bool:
        side = side.unnest()
        if isinstance(side, exp.Window):
            return name == HIDDEN
        known = (alias, "") if alone else (alias,)
        return isinstance(side, exp.Column) and side.table in known and same_name(names, side.name) == name

    if isinstance(node, exp.Between) and numbers(node.this):
        low, high = _whole(node.args["low"]), _whole(node.args["high"])
        return None if high is None else (high, low is not None and low <= 1)
    if not isinstance(node, exp.EQ | exp.LT | exp.LTE | exp.GT | exp.GTE):
        return None
    kind: type[exp.Expr] = type(node)
    sides = (node.this, node.expression)
    if numbers(sides[1]):
        kind, sides = _MIRRORED.get(kind, kind), sides[::-1]
    limit = _whole(sides[1]) if numbers(sides[0]) else None
    if limit is None or kind in (exp.GT, exp.GTE):
        return None
    return limit - (kind is exp.LT), kind is not exp.EQ or limit == 1


def _most(condition: exp.Expr, most: int, known: int) -> int:
    """Return the smaller of two limits; `known` is 0 if there was none. Raises Unsupported if `most` is out of
    range."""
    if not 0 < most <= MOST:
        refuse(condition, f"the first {most} rows", f"at least 1 and at most {MOST}")
    return min(most, known or most)


def _whole(node: exp.Expr) -> int | None:
    node = node.unnest()
    return int(node.name) if isinstance(node, exp.Literal) and not node.is_string and node.name.isdigit() else None
