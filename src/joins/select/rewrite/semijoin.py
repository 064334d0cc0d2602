"""Rewrite EXISTS, NOT EXISTS and IN (SELECT …) as joins with a grouped subquery (part of stage 1).

    EXISTS (SELECT 1 FROM p WHERE p.order_id = o.id AND p.kind = 'card')
      JOIN (SELECT p.order_id AS k0 FROM p WHERE p.kind = 'card' GROUP BY p.order_id) _semi ON _semi.k0 = o.id

Grouping leaves one row per key, so the join adds no rows. It changes only when the first row of a key arrives or the
last one leaves. NOT EXISTS becomes a LEFT JOIN with the condition that nothing matches."""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from joins.query.aggregates import aggregates_in
from joins.query.typed import refuse
from joins.select.names import sources_of
from joins.select.sql import conjuncts


@dataclass(frozen=True, slots=True, kw_only=True)
class Semijoin:
    """A join that replaces a condition with a subquery: `JOIN (query) alias ON …`.

    If `absent` is not empty, it is a LEFT JOIN, and the `absent` conditions require that nothing matches."""

    query: exp.Select
    alias: str
    on: tuple[exp.Expr, ...]
    absent: tuple[exp.Expr, ...]


def semijoin_of(condition: exp.Expr, outer: frozenset[str], alias: str) -> Semijoin | None:
    """Return the join that replaces a WHERE condition with a subquery. None if the condition has no subquery.

    `outer` are the table names of the enclosing query, `alias` is the name for the join. Raises Unsupported for
    subqueries that cannot be rewritten."""
    negated = isinstance(condition, exp.Not)
    predicate = condition.this.unnest() if negated else condition
    if isinstance(predicate, exp.Exists):
        inner = unnested(predicate.this)
        pairs: list[tuple[exp.Expr, exp.Expr]] = []
    elif isinstance(predicate, exp.In) and predicate.args.get("query") is not None:
        inner = unnested(predicate.args["query"])
        must_be_select(inner)
        if len(inner.expressions) != 1 or inner.find(exp.Star) in inner.expressions:
            refuse(predicate, "IN (SELECT …) of several columns", "IN (SELECT x FROM …), one column")
        pairs = [(inner.expressions[0].unalias(), predicate.this.unnest())]
    else:
        return None
    must_be_select(inner)
    found, own = correlated(inner, outer)
    pairs += found
    if not pairs:
        expected = "WHERE inner.x = outer.y within it, with the names of the tables"
        refuse(predicate, "EXISTS without an equality with the outer query", expected)
    for _, theirs in pairs:
        if not isinstance(theirs, exp.Column):
            refuse(theirs, f"{theirs.sql('spark')} compared with a subquery", "a plain column of the outer query")
    on = tuple(
        exp.EQ(this=exp.column(f"k{i}", table=alias, quoted=True), expression=theirs.copy())
        for i, (_, theirs) in enumerate(pairs)
    )
    absent = exp.Is(this=exp.column("k0", table=alias, quoted=True), expression=exp.Null())
    query = _keyed(inner, [mine for mine, _ in pairs], own)
    return Semijoin(query=query, alias=alias, on=on, absent=(absent,) if negated else ())


def unnested(query: exp.Expr) -> exp.Expr:
    """Return a subquery without its parentheses. Raises Unsupported if they have an ORDER BY or LIMIT of their own."""
    while isinstance(query, exp.Subquery | exp.Paren):
        for clause in ("order", "limit", "offset"):
            if query.args.get(clause):
                refuse(query, f"{clause.upper()} after a query in parentheses", "the clause within the parentheses")
        query = query.this
    return query


def must_be_select(inner: exp.Expr) -> None:
    """Raise Unsupported for a subquery that is not a SELECT over tables."""
    if not isinstance(inner, exp.Select) or inner.args.get("from_") is None:
        refuse(inner, "a subquery that is not SELECT … FROM …", "SELECT x FROM source.table")


def correlated(inner: exp.Expr, outer: frozenset[str]) -> tuple[list[tuple[exp.Expr, exp.Expr]], list[exp.Expr]]:
    """Split a subquery's WHERE: equalities with the outer query as (inner side, outer side), and all other
    conditions."""
    names = {node.alias_or_name for node in sources_of(inner)}
    where = inner.args.get("where")
    pairs: list[tuple[exp.Expr, exp.Expr]] = []
    own: list[exp.Expr] = []
    for condition in conjuncts(None if where is None else where.this):
        if not any(column.table in outer - names for column in condition.find_all(exp.Column)):
            own.append(condition)
            continue
        sides = [condition.this.unnest(), condition.expression.unnest()] if isinstance(condition, exp.EQ) else []
        # a column without a table is one of the subquery's tables, if they have it
        inside = [side for side in sides if {c.table for c in side.find_all(exp.Column)} <= {*names, ""}]
        outside = [side for side in sides if {c.table for c in side.find_all(exp.Column)} & (outer - names)]
        if len(inside) != 1 or len(outside) != 1:
            text = condition.sql("spark").replace("`", "")
            refuse(condition, f"{text} between a subquery and its outer query", "inner.x = outer.y, an equality")
        pairs.append((inside[0], outside[0]))
    return pairs, own


def _keyed(inner: exp.Expr, keys: list[exp.Expr], own: list[exp.Expr]) -> exp.Select:
    """Return the subquery with GROUP BY `keys`, so that it has one row per key."""
    if inner.args.get("qualify"):
        refuse(inner, "LIMIT or QUALIFY in a subquery of IN or EXISTS", "JOIN (SELECT … LIMIT 3) name ON name.x = o.x")
    named = [exp.alias_(key.copy(), f"k{i}", quoted=True) for i, key in enumerate(keys)]
    query = inner.copy()
    assert isinstance(query, exp.Select)
    query.set("distinct", None)
    query.set("where", exp.Where(this=exp.and_(*own)) if own else None)
    group = query.args.get("group")
    if group is None and query.args.get("having") is None and not any(map(any, map(aggregates_in, inner.expressions))):
        query.set("expressions", named)
        query.set("group", exp.Group(expressions=[key.copy() for key in keys]))
        return query
    grouped = [] if group is None else [one.sql("spark") for one in group.expressions]
    if grouped != [key.sql("spark") for key in keys]:
        refuse(inner, "a subquery grouped by columns other than those it is compared by", "GROUP BY what it finds")
    query.set("expressions", named)
    return query
