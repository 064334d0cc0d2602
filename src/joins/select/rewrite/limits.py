"""Rewrite `ORDER BY … LIMIT n` as the first n rows of ROW_NUMBER(), before parsing (see `ranked`).

    SELECT o.id, o.amount FROM o ORDER BY amount DESC LIMIT 10
      SELECT o.id, o.amount FROM o QUALIFY ROW_NUMBER() OVER (ORDER BY o.amount DESC) <= 10
    SELECT o.id, o.amount FROM o ORDER BY amount DESC LIMIT 10 OFFSET 5
      SELECT q.id, q.amount FROM (SELECT o.id, o.amount, ROW_NUMBER() OVER (ORDER BY o.amount DESC) AS place FROM o) q
      WHERE q.place BETWEEN 6 AND 15

An ORDER BY without LIMIT selects no rows, and is left out. A LIMIT without ORDER BY stays and is refused."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from joins.select.names import same_name

_ROWS, _PLACE = "_q", "place"  # names of the numbered rows, and of their numbers


def without_orders(statement: exp.Expr) -> exp.Expr:
    """Leave out every ORDER BY that selects no rows, in place."""
    for query in statement.find_all(exp.Select, exp.SetOperation):
        if unused_order(query):
            query.set("order", None)
    return statement


def unused_order(query: exp.Expr) -> list[exp.Expr]:
    """Return the entries of a query's ORDER BY if it selects no rows. Empty if it does, or if there is none."""
    distinct, order = query.args.get("distinct"), query.args.get("order")
    on = isinstance(distinct, exp.Distinct) and distinct.args.get("on") is not None
    selects = query.args.get("limit") or query.args.get("offset") or on
    return [] if order is None or selects else [one.this for one in order.expressions]


def with_limits(statement: exp.Expr) -> exp.Expr:
    """Return a statement in which every SELECT that has ORDER BY and LIMIT is rewritten."""
    top = exp.Paren(this=statement)
    for select in reversed(list(top.find_all(exp.Select))):  # the inner ones first: OFFSET copies its SELECT
        order, limit, offset = (select.args.get(key) for key in ("order", "limit", "offset"))
        if order is None or not isinstance(limit, exp.Limit) or select.args.get("qualify"):
            continue
        if select.args.get("distinct") is not None:  # the limit is for distinct rows
            continue
        if limit.args.get("expressions") or not known_order(order.expressions, select):
            continue
        window = exp.Window(
            this=exp.RowNumber(), order=exp.Order(expressions=[ordered(one, select) for one in order.expressions])
        )
        if offset is None:
            select.set("qualify", exp.Qualify(this=exp.LTE(this=window, expression=limit.expression.copy())))
        elif (later := _later(select, window, limit.expression, offset.expression)) is None:
            continue
        else:
            select.replace(later)
        for key in ("order", "limit", "offset"):
            select.set(key, None)
    inner: exp.Expr = top.this
    inner.pop()
    return inner


def _later(select: exp.Select, window: exp.Window, limit: exp.Expr, offset: exp.Expr) -> exp.Select | None:
    """Return a query for the rows after the first ones. None if it cannot name its columns."""
    names = [item.alias_or_name for item in select.expressions]
    whole = all(isinstance(one, exp.Literal) and one.is_int for one in (limit, offset))
    if not whole or select.is_star or not all(names) or len({*names}) != len(names) or select.args.get("distinct"):
        return None
    place = _PLACE
    while place in names:
        place += "_"
    first = int(offset.name)
    low, high = exp.Literal.number(first + 1), exp.Literal.number(first + int(limit.name))
    inner = select.copy()
    for key in ("order", "limit", "offset", "with_"):
        inner.set(key, None)
    inner.append("expressions", exp.alias_(window, place))
    rows = exp.Subquery(this=inner, alias=exp.TableAlias(this=exp.to_identifier(_ROWS)))
    where = exp.Between(this=exp.column(place, table=_ROWS), low=low, high=high)
    found = exp.select(*(exp.column(name, table=_ROWS, quoted=True) for name in names)).from_(rows).where(where)
    found.set("with_", select.args.get("with_"))
    return found


def known_order(entries: Sequence[exp.Expr], select: exp.Select) -> bool:
    """Return whether no entry of an ORDER BY is a literal, other than the number of a result column."""
    return all(_is_known(one.this, select) for one in entries)


def _is_known(node: exp.Expr, select: exp.Select) -> bool:
    if not (isinstance(node, exp.Literal) and node.is_int):
        return not isinstance(node, exp.Literal)
    return 0 < int(node.name) <= len(select.expressions) and not select.is_star


def ordered(one: exp.Expr, select: exp.Select) -> exp.Expr:
    """Return an entry of ORDER BY, in which a name or a number of a result column is replaced by its expression."""
    copy, node = one.copy(), one.this
    if isinstance(node, exp.Literal):
        copy.set("this", select.expressions[int(node.name) - 1].unalias().copy())
        return copy
    named = {item.alias_or_name: item.unalias() for item in select.expressions if item.alias_or_name != "*"}
    for column in list(copy.find_all(exp.Column)):
        # within an aggregate, a name is a column of the tables
        name = None if column.table else same_name(named, column.name)
        if name is not None and column.find_ancestor(exp.AggFunc) is None:
            value = named[name].copy()
            column.replace(value if column is copy.this else exp.Paren(this=value))
    return copy
