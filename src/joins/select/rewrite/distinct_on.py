"""Rewrite `SELECT DISTINCT ON (…)` as the first row of each group, before parsing (see `ranked`).

    SELECT DISTINCT ON (o.a) o.a, o.b FROM o ORDER BY o.a, o.b DESC
      SELECT o.a, o.b FROM o QUALIFY ROW_NUMBER() OVER (PARTITION BY o.a ORDER BY o.b DESC) = 1

ORDER BY must begin with the expressions of ON, as in PostgreSQL. Without further ones the row with the smallest key is
the first."""

from __future__ import annotations

from sqlglot import exp

from joins.select.names import text_of
from joins.select.rewrite.limits import known_order, ordered

_NOT_WITH = ("limit", "offset", "qualify", "group", "having")


def with_distinct_on(statement: exp.Expr) -> exp.Expr:
    """Rewrite every SELECT DISTINCT ON, in place."""
    for select in list(statement.find_all(exp.Select)):
        distinct = select.args.get("distinct")
        on = None if distinct is None else distinct.args.get("on")
        if on is None or any(select.args.get(key) for key in _NOT_WITH):
            continue
        written = select.args["order"].expressions if select.args.get("order") else []
        first = [exp.Ordered(this=one.unnest()) for one in on.expressions or [on]]
        if not known_order([*written, *first], select):
            continue
        parts = [ordered(one, select) for one in first]
        order = [ordered(one, select) for one in written]
        wanted = {text_of(one.this) for one in parts}
        if written and {text_of(one.this) for one in order[: len(wanted)]} != wanted:
            continue
        rest = order[len(wanted) :] or [exp.Ordered(this=parts[0].this.copy(), nulls_first=True)]
        window = exp.Window(
            this=exp.RowNumber(), partition_by=[one.this for one in parts], order=exp.Order(expressions=rest)
        )
        select.set("qualify", exp.Qualify(this=exp.EQ(this=window, expression=exp.Literal.number(1))))
        select.set("distinct", None)
        select.set("order", None)
    return statement


def left_distinct_on(select: exp.Select) -> tuple[exp.Expr, str, str] | None:
    """Return why a SELECT still has DISTINCT ON, for an error: its place, what is wrong, and what would work."""
    distinct = select.args.get("distinct")
    on = None if distinct is None else distinct.args.get("on")
    if on is None:
        return None
    form = "DISTINCT ON (o.x) … ORDER BY o.x, o.y without LIMIT and GROUP BY, which go around FROM (SELECT …) name"
    return on, "DISTINCT ON here is not supported", form
