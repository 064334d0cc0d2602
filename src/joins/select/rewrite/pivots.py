"""Rewrite PIVOT as groups with FILTER, before parsing (part of stage 1).

    FROM (SELECT a, kind, x FROM t) PIVOT (sum(x) FOR kind IN ('p', 'q'))
      FROM (SELECT _p.a, sum(_p.x) FILTER (WHERE _p.kind = 'p') AS p, … FROM (…) _p GROUP BY _p.a)

The query in FROM must name its columns: those that PIVOT does not use are the groups. As in Spark, a count of no rows
is NULL. What cannot be rewritten stays, and is refused."""

from __future__ import annotations

from sqlglot import exp

from joins.query.aggregates import aggregates_in

_ROWS = "_p"


def with_pivots(statement: exp.Expr) -> exp.Expr:
    """Rewrite every PIVOT of a query in FROM, in place."""
    for source in reversed(list(statement.find_all(exp.Subquery))):
        pivots = source.args.get("pivots") or []
        if len(pivots) == 1 and (query := _groups(source, pivots[0])) is not None:
            alias = pivots[0].args.get("alias") or source.args.get("alias")
            source.replace(exp.Subquery(this=query, alias=alias and alias.copy()))
    return statement


def _groups(source: exp.Subquery, pivot: exp.Pivot) -> exp.Select | None:
    fields, select = pivot.args.get("fields") or [], source.this
    if pivot.args.get("unpivot") or len(fields) != 1 or not isinstance(select, exp.Select) or select.is_star:
        return None
    kind, values = fields[0].this, [one.unalias() for one in fields[0].expressions]
    plain = isinstance(kind, exp.Column) and all(isinstance(one, exp.Literal) for one in values)
    calls = [one.unalias() for one in pivot.expressions]
    names = [item.alias_or_name for item in select.expressions]
    used = {column.name for one in (*calls, kind) for column in one.find_all(exp.Column)}
    if not plain or not all(names) or not used <= {*names} or not all(next(aggregates_in(c), None) is c for c in calls):
        return None
    keys = [exp.column(name, table=_ROWS, quoted=True) for name in names if name not in used]
    if not keys:
        return None
    made = [_of_value(call, exp.EQ(this=_qualified(kind), expression=value)) for value in values for call in calls]
    shown = [exp.alias_(one, name.name, quoted=True) for one, name in zip(made, pivot.args["columns"], strict=True)]
    rows = exp.Subquery(this=select.copy(), alias=exp.TableAlias(this=exp.to_identifier(_ROWS)))
    return exp.select(*(key.copy() for key in keys), *shown).from_(rows).group_by(*keys)


def _of_value(call: exp.Expr, condition: exp.Expr) -> exp.Expr:
    """Return an aggregate of the rows with one of the values."""
    found = exp.Filter(this=_qualified(call), expression=exp.Where(this=condition))
    if not isinstance(call, exp.Count | exp.CountIf):
        return found
    there = exp.GT(this=exp.CountIf(this=condition.copy()), expression=exp.Literal.number(0))
    return exp.Case(ifs=[exp.If(this=there, true=found)])


def _qualified(node: exp.Expr) -> exp.Expr:
    copy = exp.Paren(this=node.copy())
    for column in list(copy.find_all(exp.Column)):
        column.set("table", exp.to_identifier(_ROWS))
    inner: exp.Expr = copy.this
    return inner
