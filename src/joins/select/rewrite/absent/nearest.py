"""Rewrite subqueries of the first rows for each row as joins with numbered rows, before parsing (part of stage 1).

    SELECT a.id, (SELECT b.x FROM b WHERE b.a_id = a.id ORDER BY b.at LIMIT 1) AS x FROM a
      SELECT a.id, _n0.v AS x FROM a LEFT JOIN (
        SELECT b.a_id AS key0, b.x AS v FROM b QUALIFY ROW_NUMBER() OVER (PARTITION BY b.a_id ORDER BY b.at) <= 1) _n0
      ON _n0.key0 = a.id

`JOIN LATERAL (SELECT … WHERE b.a_id = a.id ORDER BY … LIMIT 3) name ON TRUE` becomes such a join, too; without LIMIT it
is a join of all rows. The equalities name the tables of their columns. What cannot be rewritten stays, and is
refused."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from joins.query.aggregates import aggregates_in
from joins.query.typed import Unsupported
from joins.select.names import sources_of
from joins.select.rewrite.limits import known_order, ordered
from joins.select.rewrite.semijoin import correlated

_ALIAS = "_n"
_CLAUSES = ("group", "having", "qualify", "offset", "distinct", "with_")


def with_nearest(statement: exp.Expr) -> exp.Expr:
    """Rewrite every such subquery, in place."""
    for select in reversed(list(statement.find_all(exp.Select))):
        outer = [one.alias_or_name for one in sources_of(select)]
        for join in list(select.args.get("joins") or ()):
            if isinstance(join.this, exp.Lateral):
                _join(join, outer)
        if select.args.get("group") is None:
            _values(select, outer)
    return statement


def _values(select: exp.Select, outer: Sequence[str]) -> None:
    """Replace the values in a SELECT list by columns of joins."""
    number = 0
    for item in select.expressions:
        for value in list(item.find_all(exp.Subquery)):
            inner = value.this
            if not isinstance(inner, exp.Select) or len(inner.expressions) != 1 or _limit(inner) != "1":
                continue
            if value.find_ancestor(exp.Select) is not select or (made := _keyed(inner, outer, ["v"])) is None:
                continue
            alias = f"{_ALIAS}{number}"
            number += 1
            rows = exp.Subquery(this=made[0], alias=exp.TableAlias(this=exp.to_identifier(alias)))
            select.append("joins", exp.Join(this=rows, side="LEFT", on=_on(alias, made[1])))
            column = exp.column("v", table=alias)
            value.replace(column if not isinstance(value.parent, exp.Select) else exp.alias_(column, "v"))


def _join(join: exp.Join, outer: Sequence[str]) -> None:
    """Replace LATERAL by a join with rows that have a key."""
    lateral, on = join.this, join.args.get("on")
    inner, alias = lateral.this.unnest(), lateral.alias
    if not isinstance(inner, exp.Select) or not alias or join.side not in ("", "LEFT"):
        return
    names = [item.alias_or_name for item in inner.expressions]
    renamed = [one.name for one in lateral.args["alias"].args.get("columns") or ()]
    names = renamed or names
    if (on is not None and on != exp.true()) or not all(names) or len(names) != len(inner.expressions):
        return
    made = _keyed(inner, [name for name in outer if name != alias], names)
    if made is None:
        return
    join.set("this", exp.Subquery(this=made[0], alias=exp.TableAlias(this=exp.to_identifier(alias))))
    join.set("on", _on(alias, made[1]))
    join.set("kind", None)


def _keyed(inner: exp.Select, outer: Sequence[str], names: Sequence[str]) -> tuple[exp.Select, list[exp.Expr]] | None:
    """Return a subquery with the inner sides of its equalities as further columns, and the outer sides. None if it
    has other forms."""
    plain = not any(inner.args.get(key) for key in _CLAUSES) and not inner.is_star
    order, limit = inner.args.get("order"), _limit(inner)
    if not plain or (order is None) != (limit is None) or any(any(aggregates_in(one)) for one in inner.expressions):
        return None
    if order is not None and not known_order(order.expressions, inner):
        return None
    try:
        pairs, own = correlated(inner, frozenset(outer))
    except Unsupported:  # the parser refuses it with its place
        return None
    inside = frozenset(outer) - {one.alias_or_name for one in sources_of(inner)}
    rest = [*inner.expressions, *own, *([] if order is None else order.expressions)]
    if not pairs or any(
        c.table in inside for part in (*rest, *(one for one, _ in pairs)) for c in part.find_all(exp.Column)
    ):
        return None
    query = inner.copy()
    for key in ("order", "limit"):
        query.set(key, None)
    query.set("where", exp.Where(this=exp.and_(*(one.copy() for one in own))) if own else None)
    keys = [exp.alias_(mine.copy(), f"key{i}") for i, (mine, _) in enumerate(pairs)]
    items = [exp.alias_(one.unalias().copy(), name) for one, name in zip(inner.expressions, names, strict=True)]
    query.set("expressions", [*keys, *items])
    if order is not None and limit is not None:
        window = exp.Window(
            this=exp.RowNumber(),
            partition_by=[mine.copy() for mine, _ in pairs],
            order=exp.Order(expressions=[ordered(one, inner) for one in order.expressions]),
        )
        query.set("qualify", exp.Qualify(this=exp.LTE(this=window, expression=exp.Literal.number(limit))))
    return query, [theirs.copy() for _, theirs in pairs]


def _limit(inner: exp.Select) -> str | None:
    limit = inner.args.get("limit")
    value = limit.expression if isinstance(limit, exp.Limit) and not limit.args.get("expressions") else None
    return str(value.name) if isinstance(value, exp.Literal) and value.is_int else None


def _on(alias: str, theirs: Sequence[exp.Expr]) -> exp.Expr:
    return exp.and_(*(exp.EQ(this=exp.column(f"key{i}", table=alias), expression=one) for i, one in enumerate(theirs)))
