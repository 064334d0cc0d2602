"""Replace calls by others of the same meaning, before parsing (part of stage 1).

`approx_count_distinct(x)` becomes `count(DISTINCT x)`, and `any_value(x)` becomes `min(x)`: the result must not depend
on the order of the changes. Calls with further arguments stay, and are refused. `sum(x = 1)`, which MySQL has, becomes
`sum(CAST(x = 1 AS INT))`."""

from __future__ import annotations

from sqlglot import exp

_CONDITIONS = (
    exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ, exp.And, exp.Or, exp.Not, exp.Is, exp.In,
    exp.Between, exp.Like, exp.ILike,
)  # fmt: skip


def with_exact(statement: exp.Expr) -> exp.Expr:
    """Replace these calls everywhere in a statement, in place."""
    for node in list(statement.find_all(exp.ApproxDistinct, exp.AnyValue)):
        if any(value is not None for key, value in node.args.items() if key != "this"):
            continue
        if isinstance(node.this, exp.Distinct | exp.HavingMax | exp.IgnoreNulls | exp.Order | exp.Limit):
            continue
        counts = isinstance(node, exp.ApproxDistinct)
        node.replace(exp.Count(this=exp.Distinct(expressions=[node.this])) if counts else exp.Min(this=node.this))
    for node in list(statement.find_all(exp.Sum, exp.Avg)):
        if isinstance(node.this.unnest(), _CONDITIONS):
            node.set("this", exp.cast(node.this.unnest().copy(), "INT"))
    return statement
