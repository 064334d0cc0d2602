"""Replace aggregate functions that leave their result open by exact ones, before parsing (part of stage 1).

`approx_count_distinct(x)` becomes `count(DISTINCT x)`, and `any_value(x)` becomes `min(x)`: the result must not depend
on the order of the changes. Calls with further arguments stay, and are refused."""

from __future__ import annotations

from sqlglot import exp


def with_exact(statement: exp.Expr) -> exp.Expr:
    """Replace these calls everywhere in a statement, in place."""
    for node in list(statement.find_all(exp.ApproxDistinct, exp.AnyValue)):
        if any(value is not None for key, value in node.args.items() if key != "this"):
            continue
        if isinstance(node.this, exp.Distinct | exp.HavingMax | exp.IgnoreNulls | exp.Order | exp.Limit):
            continue
        counts = isinstance(node, exp.ApproxDistinct)
        node.replace(exp.Count(this=exp.Distinct(expressions=[node.this])) if counts else exp.Min(this=node.this))
    return statement
