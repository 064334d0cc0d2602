"""Rewrite NOT IN, and EXISTS with an inequality, as conditions on aggregates (part of stage 1).

    x NOT IN (SELECT y FROM …)
      the anti-join of `joins.select.rewrite.semijoin`, and: the list is empty, or neither x nor a y of it is NULL
    EXISTS (SELECT 1 FROM … WHERE a = o.a AND y <> o.x)
      (SELECT min(y) FROM … WHERE a = o.a) <> o.x OR (SELECT max(y) FROM … WHERE a = o.a) <> o.x

`joins.select.rewrite.subqueries` then replaces these subqueries."""

from __future__ import annotations

from sqlglot import exp

from joins.query.aggregates import aggregates_in
from joins.select.names import sources_of
from joins.select.rewrite.semijoin import unnested
from joins.select.sql import conjuncts

# By the comparison of an inner with an outer value: the aggregates of which one must compare so.
_EXTREMES: dict[type[exp.Expr], tuple[type[exp.AggFunc], ...]] = {
    exp.NEQ: (exp.Min, exp.Max), exp.LT: (exp.Min,), exp.LTE: (exp.Min,), exp.GT: (exp.Max,), exp.GTE: (exp.Max,),
}  # fmt: skip
_GROUPED = ("group", "having")
_TURNED: dict[type[exp.Expr], type[exp.Binary]] = {
    exp.NEQ: exp.NEQ, exp.LT: exp.GT, exp.LTE: exp.GTE, exp.GT: exp.LT, exp.GTE: exp.LTE,
}  # fmt: skip


def rewritten(where: exp.Expr, outer: frozenset[str]) -> exp.Expr:
    """Return a WHERE condition with such subqueries rewritten. `outer` are the names of the query's tables."""
    found: list[exp.Expr] = []
    for condition in conjuncts(where):
        negated = isinstance(condition, exp.Not)
        predicate = condition.this.unnest() if negated else condition
        if negated and isinstance(predicate, exp.In) and isinstance(predicate.args.get("query"), exp.Expr):
            found += [condition, *_without_null(predicate)]
        elif isinstance(predicate, exp.Exists):
            found.append(_compared(predicate, outer, negated=negated) or condition)
        else:
            found.append(condition)
    return exp.and_(*(one.copy() for one in found))


def _without_null(predicate: exp.In) -> list[exp.Expr]:
    """Return the conditions of `x NOT IN (…)` apart from the anti-join. Empty for a subquery that it refuses."""
    inner = predicate.args["query"].unnest()
    if not isinstance(inner, exp.Select) or len(inner.expressions) != 1 or inner.find(exp.Star) in inner.expressions:
        return []
    value = inner.expressions[0].unalias()
    query = inner.copy()
    if query.args.get("group") or query.args.get("having") or any(aggregates_in(value)):
        query.set("expressions", [exp.alias_(value.copy(), "y", quoted=True)])
        value = exp.column("y", table="_n", quoted=True)
        query = exp.select("*").from_(exp.Subquery(this=query, alias=exp.TableAlias(this=exp.to_identifier("_n"))))
    query.set("distinct", None)
    rows, values = exp.Count(this=exp.Star()), exp.Count(this=value.copy())
    empty = exp.EQ(this=_value(query, rows), expression=exp.Literal.number(0))
    known = exp.Not(this=exp.Is(this=predicate.this.copy(), expression=exp.Null()))
    whole = exp.EQ(this=_value(query, rows), expression=_value(query, values))
    return [exp.Paren(this=exp.or_(empty, exp.and_(known, whole)))]


def _compared(predicate: exp.Exists, outer: frozenset[str], *, negated: bool) -> exp.Expr | None:
    """Return the condition that replaces EXISTS with one inequality with the outer query. None for others."""
    inner = unnested(predicate.this)
    if not isinstance(inner, exp.Select) or inner.args.get("from_") is None or any(map(inner.args.get, _GROUPED)):
        return None
    if any(any(aggregates_in(one)) for one in inner.expressions):
        return None  # one row, whatever the WHERE finds
    theirs = outer - {node.alias_or_name for node in sources_of(inner)}
    where = inner.args.get("where")
    parts = list(conjuncts(None if where is None else where.this))
    outside = [part for part in parts if any(column.table in theirs for column in part.find_all(exp.Column))]
    unequal = [part for part in outside if type(part) in _EXTREMES]
    if len(unequal) != 1:
        return None
    left, right = unequal[0].this.unnest(), unequal[0].expression.unnest()
    if _uses(left, theirs) == _uses(right, theirs) or (_uses(left, theirs) and _mixes(left, theirs)):
        return None
    kind = type(unequal[0])
    if _uses(left, theirs):
        left, right, kind = right, left, _TURNED[kind]
    if _mixes(right, theirs):
        return None
    query = inner.copy()
    query.set("distinct", None)
    rest = [part.copy() for part in parts if part is not unequal[0]]
    query.set("where", exp.Where(this=exp.and_(*rest)) if rest else None)
    found = [kind(this=_value(query, one(this=left.copy())), expression=right.copy()) for one in _EXTREMES[kind]]
    holds = exp.Coalesce(this=exp.Paren(this=exp.or_(*found)), expressions=[exp.false()])
    return exp.Not(this=holds) if negated else holds


def _uses(node: exp.Expr, tables: frozenset[str]) -> bool:
    return any(column.table in tables for column in node.find_all(exp.Column))


def _mixes(node: exp.Expr, tables: frozenset[str]) -> bool:
    return any(column.table not in tables for column in node.find_all(exp.Column))


def _value(query: exp.Select, item: exp.Expr) -> exp.Subquery:
    copy = query.copy()
    copy.set("expressions", [item])
    return exp.Subquery(this=copy)
