"""Rewrite EXCEPT and INTERSECT as groups of a UNION ALL, before parsing (part of stage 1).

    SELECT a.id FROM a EXCEPT SELECT b.a_id FROM b
      SELECT _r.id FROM (SELECT _q.id, 1 AS side FROM (SELECT a.id FROM a) _q
                         UNION ALL SELECT _q.id, 2 AS side FROM (SELECT b.a_id AS id FROM b) _q) _r
      GROUP BY _r.id HAVING count_if(_r.side = 1) > 0 AND count_if(_r.side = 2) = 0

Groups take NULLs for equal, as EXCEPT and INTERSECT do. Those with ALL, and those of `*`, whose columns are not known
here, stay and are refused. `x IN (a UNION b)` becomes `x IN (SELECT y FROM (a UNION b) _q)`."""

from __future__ import annotations

from sqlglot import exp

_SIDE = "side"


def with_sets(statement: exp.Expr) -> exp.Expr:
    """Return a statement in which every EXCEPT and INTERSECT is rewritten."""
    top = exp.Paren(this=statement)
    for node in reversed(list(top.find_all(exp.Except, exp.Intersect))):  # inner ones first
        names, others = _names(node.this), _names(node.expression)
        if not names or others is None or len(names) != len(others) or not all(names) or len({*names}) != len(names):
            continue
        if not node.args.get("distinct") or any(node.args.get(key) for key in ("order", "limit")):
            continue
        found = _groups(node, names)
        found.set("with_", node.args.get("with_"))
        node.replace(found)
    for listed in list(top.find_all(exp.In)):
        asked = listed.args.get("query")
        names = _names(asked) if asked is not None and isinstance(asked.unnest(), exp.Union) else None
        if asked is not None and names is not None and len(names) == 1 and names[0]:
            column = exp.column(names[0], table="_q", quoted=True)
            listed.set("query", exp.Subquery(this=exp.select(column).from_(_named(asked.unnest().copy(), "_q"))))
    inner: exp.Expr = top.this
    inner.pop()
    return inner


def _groups(node: exp.Expr, names: list[str]) -> exp.Select:
    side = _SIDE
    while side in names:
        side += "_"
    both = exp.union(
        _marked(node.this, names, side, 1), _marked(node.expression, names, side, 2), distinct=False, copy=False
    )
    columns = [exp.column(name, table="_r", quoted=True) for name in names]
    counts = [
        exp.CountIf(this=exp.EQ(this=exp.column(side, table="_r"), expression=exp.Literal.number(number)))
        for number in (1, 2)
    ]
    zero = exp.Literal.number(0)
    there = exp.GT(this=counts[0], expression=zero)
    other: type[exp.Binary] = exp.GT if isinstance(node, exp.Intersect) else exp.EQ
    query = exp.select(*(column.copy() for column in columns)).from_(_named(both, "_r"))
    return query.group_by(*columns).having(exp.and_(there, other(this=counts[1], expression=zero.copy())))


def _marked(query: exp.Expr, names: list[str], side: str, number: int) -> exp.Select:
    """Return the rows of one side, under the names of the result, and with the number of the side."""
    inner = query.unnest().copy()
    first = inner
    while isinstance(first, exp.SetOperation):
        first = first.this.unnest()
    items = [item.unalias() for item in first.expressions]
    first.set("expressions", [exp.alias_(item, name, quoted=True) for item, name in zip(items, names, strict=True)])
    columns = [exp.column(name, table="_q", quoted=True) for name in names]
    return exp.select(*columns, exp.alias_(exp.Literal.number(number), side)).from_(_named(inner, "_q"))


def _named(query: exp.Expr, alias: str) -> exp.Subquery:
    return exp.Subquery(this=query, alias=exp.TableAlias(this=exp.to_identifier(alias)))


def _names(query: exp.Expr) -> list[str] | None:
    """Return the names of the columns of a query, empty for those without one. None if there is a `*`."""
    query = query.unnest()
    while isinstance(query, exp.SetOperation):
        query = query.this.unnest()
    if not isinstance(query, exp.Select):
        return None
    names = [item.alias_or_name for item in query.expressions]
    starred = any(isinstance(item, exp.Star) or isinstance(item.this, exp.Star) for item in query.expressions)
    return None if starred else names
