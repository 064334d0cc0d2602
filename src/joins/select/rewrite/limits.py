"""Rewrite `ORDER BY … LIMIT n` as the first n rows of ROW_NUMBER(), before parsing (see `ranked`).

    SELECT o.id, o.amount FROM o ORDER BY amount DESC LIMIT 10
      SELECT o.id, o.amount FROM o QUALIFY ROW_NUMBER() OVER (ORDER BY o.amount DESC) <= 10

A LIMIT without ORDER BY, an ORDER BY without LIMIT, and OFFSET stay, and are refused."""

from __future__ import annotations

from sqlglot import exp


def with_limits(statement: exp.Expr) -> exp.Expr:
    """Rewrite every SELECT that has ORDER BY and LIMIT, in place."""
    for select in list(statement.find_all(exp.Select)):
        order, limit = select.args.get("order"), select.args.get("limit")
        if order is None or not isinstance(limit, exp.Limit) or select.args.get("offset") or select.args.get("qualify"):
            continue
        if limit.args.get("expressions") or not all(_is_known(one.this, select) for one in order.expressions):
            continue
        ordered = [_ordered(one, select) for one in order.expressions]
        window = exp.Window(this=exp.RowNumber(), order=exp.Order(expressions=ordered))
        select.set("qualify", exp.Qualify(this=exp.LTE(this=window, expression=limit.expression.copy())))
        select.set("order", None)
        select.set("limit", None)
    return statement


def _is_known(node: exp.Expr, select: exp.Select) -> bool:
    """Return whether an entry of ORDER BY is no number, or the number of a result column."""
    if not (isinstance(node, exp.Literal) and node.is_int):
        return not isinstance(node, exp.Literal)
    return 0 < int(node.name) <= len(select.expressions) and not select.is_star


def _ordered(one: exp.Expr, select: exp.Select) -> exp.Expr:
    """Return an entry of ORDER BY, in which a name or a number of a result column is replaced by its expression."""
    copy, node = one.copy(), one.this
    if isinstance(node, exp.Literal):
        copy.set("this", select.expressions[int(node.name) - 1].unalias().copy())
        return copy
    named = {item.alias_or_name: item.unalias() for item in select.expressions if item.alias_or_name != "*"}
    for column in list(copy.find_all(exp.Column)):
        # within an aggregate, a name is a column of the tables
        if not column.table and column.name in named and column.find_ancestor(exp.AggFunc) is None:
            value = named[column.name].copy()
            column.replace(value if column is copy.this else exp.Paren(this=value))
    return copy
