"""Parse ROW_NUMBER() OVER (…) and the condition that limits it (part of stage 1). It selects the first rows per
partition.

    SELECT t.* FROM (SELECT o.*, ROW_NUMBER() OVER (PARTITION BY o.customer_id ORDER BY o.amount DESC) AS n FROM o) t
    WHERE t.n <= 3

Without a limit, each change would renumber a whole partition. With one, at most that many rows change. The limit is
a condition of the enclosing query. It is moved into the subquery with the ROW_NUMBER() (`Ranking.most`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from sqlglot import exp

from joins.query.typed import refuse
from joins.select.names import same_name
from joins.select.sql import Join, Place, Ranking, Relation, Select, conjuncts

MOST = 100
FORM = "ROW_NUMBER() OVER (PARTITION BY a.x ORDER BY a.y DESC) AS n"
WHOLE = "sum(a.x) OVER (PARTITION BY a.y), of one or two plain columns of one table, without ORDER BY and DISTINCT"
AROUND = "SELECT t.x, t.n FROM (SELECT …) t WHERE t.n <= 10"
HIDDEN = "_n"  # the number in a query that does not select it
_MIRRORED: dict[type[exp.Expr], type[exp.Expr]] = {exp.GT: exp.LT, exp.GTE: exp.LTE, exp.LT: exp.GT, exp.LTE: exp.GTE}


def ranking_in(select: exp.Select, names: Sequence[str], place: Callable[[exp.Expr], Place]) -> Ranking | None:
    """Return the ROW_NUMBER() of a query, from its result columns or from QUALIFY, which also sets the limit.

    Returns None if there is none. Raises Unsupported for other window functions. `names` are the names of the
    columns."""
    windows = [(node.unalias(), names[i], i) for i, node in enumerate(select.expressions)]
    windows = [one for one in windows if isinstance(one[0], exp.Window)]
    qualify = select.args.get("qualify")
    conditions = () if qualify is None else conjuncts(qualify.this)
    windows += [(node, HIDDEN, len(names)) for one in conditions for node in one.find_all(exp.Window)]
    if not windows:
        if conditions:
            refuse(conditions[0], "QUALIFY without ROW_NUMBER()", "WHERE, or HAVING")
        return None
    (window, name, at), *others = windows
    assert isinstance(window, exp.Window)
    if others:
        refuse(others[0][0], "a second window in one query", "a query in FROM for each")
    if select.args.get("distinct") is not None:
        refuse(window, "DISTINCT together with ROW_NUMBER()", "DISTINCT in a query in FROM")
    ranking = _ranking_of(window, name, at, place(window))
    for one in conditions:
        limit = _limit_of(one, name, "", alone=True)
        if limit is None or not limit[1]:
            refuse(one, f"QUALIFY {one.sql('spark')}", AROUND)
        ranking = replace(ranking, most=_most(one, limit[0], ranking.most))
    return ranking


def _ranking_of(window: exp.Window, name: str, at: int, place: Place) -> Ranking:
    """Convert one window expression, without its limit. Raises Unsupported for all but ROW_NUMBER() with ORDER BY."""
    if not isinstance(window.this, exp.RowNumber):
        what = f"{window.this.sql('spark')} OVER (…) is not supported"
        refuse(window, what, f"{FORM}, and around it {AROUND}; or {WHOLE}")
    if window.args.get("alias") is not None:
        refuse(window, f"ROW_NUMBER() OVER {window.args['alias'].name}, a window with a name", FORM)
    if window.args.get("spec") is not None:
        refuse(window, "a frame of ROW_NUMBER()", FORM)
    order = window.args.get("order")
    if order is None:
        refuse(window, "ROW_NUMBER() without ORDER BY", FORM)
    found: list[tuple[exp.Expr, bool]] = []
    for one in order.expressions:
        descending, nulls_first = bool(one.args.get("desc")), bool(one.args.get("nulls_first"))
        if nulls_first == descending:  # NULL precedes all values by default, and follows them in descending order
            found.append((exp.Is(this=one.this.copy(), expression=exp.Null()), nulls_first))
        found.append((one.this, descending))
    partition = tuple(window.args.get("partition_by") or ())
    return Ranking(partition=partition, order=tuple(found), name=name, at=at, place=place)


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
    return first, tuple(made), left


def _limited(relation: Relation, conditions: Iterable[exp.Expr], *, alone: bool) -> tuple[Relation, list[exp.Expr]]:
    """Apply limiting conditions to one relation. Return it, and the conditions that are now redundant.

    `alone`: the relation is the only table, so `n <= 3` needs no table prefix."""
    query = relation.query
    if not isinstance(query, Select) or query.ranking is None:
        return relation, []
    most, done = query.ranking.most, list[exp.Expr]()
    for condition in conditions:
        limit = _limit_of(condition, query.ranking.name, relation.alias, alone=alone)
        if limit is not None:
            most = _most(condition, limit[0], most)
            done += [condition] if limit[1] else []
    return replace(relation, query=replace(query, ranking=replace(query.ranking, most=most))), done


def _limit_of(condition: exp.Expr, name: str, alias: str, *, alone: bool) -> tuple[int, bool] | None:
    """Return the limit n that a condition sets, and whether it allows all numbers up to n. None if it sets none.

    For example, `n <= 3` gives (3, True), and `n = 3` gives (3, False)."""
    node = condition.unnest()

    def numbers(side: exp.Expr) -> bool:
        side = side.unnest()
        if isinstance(side, exp.Window):
            return name == HIDDEN
        known = (alias, "") if alone else (alias,)
        return isinstance(side, exp.Column) and side.table in known and same_name([name], side.name) is not None

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
