"""Rewrite LEFT SEMI JOIN and LEFT ANTI JOIN as EXISTS and NOT EXISTS, before parsing (part of stage 1).

    FROM a LEFT ANTI JOIN b ON b.x = a.id
      FROM a WHERE NOT EXISTS (SELECT 1 FROM b WHERE b.x = a.id)
    FROM a LEFT ANTI JOIN b ON b.x = a.id RIGHT JOIN c ON c.id = a.id
      FROM (SELECT * FROM a WHERE NOT EXISTS (SELECT 1 FROM b WHERE b.x = a.id)) a RIGHT JOIN c ON c.id = a.id

A RIGHT or FULL JOIN after it adds rows, which the condition must not remove. Joins by USING stay, and are refused: the
columns of the tables are not known here. So do those with a column without its table: EXISTS looks for it in the inner
table first."""

from __future__ import annotations

from sqlglot import exp


def with_semi_joins(statement: exp.Expr) -> exp.Expr:
    """Rewrite every such join with ON, in place."""
    for select in list(statement.find_all(exp.Select)):
        for join in list(select.args.get("joins") or []):
            if join.kind not in ("SEMI", "ANTI") or join.side not in ("", "LEFT") or join.args.get("on") is None:
                continue
            if any(not column.table for column in join.args["on"].find_all(exp.Column)):
                continue
            _rewrite(select, join)
    return statement


def _rewrite(select: exp.Select, join: exp.Join) -> None:
    joins = select.args["joins"]
    at = next(i for i, one in enumerate(joins) if one is join)
    rows = exp.select("1").from_(join.this.copy()).where(join.args["on"].copy())
    exists: exp.Expr = exp.Exists(this=rows)
    if join.kind == "ANTI":
        exists = exp.Not(this=exists)
    if not any(one.side in ("RIGHT", "FULL") for one in joins[at + 1 :]):
        select.where(exists, copy=False)
    elif (table := _filtered(select, joins[:at], join)) is not None:
        kept = exp.select("*").from_(table.copy()).where(exists)
        table.replace(exp.Subquery(this=kept, alias=exp.TableAlias(this=exp.to_identifier(table.alias_or_name))))
    else:
        return
    del joins[at]


def _filtered(select: exp.Select, before: list[exp.Join], join: exp.Join) -> exp.Expr | None:
    """Return the only table before a join that its ON names. None if a condition on it alone means something else."""
    source = select.args.get("from_")
    if source is None or any(one.side in ("RIGHT", "FULL") for one in before):
        return None
    inner = [source.this, *(one.this for one in before if one.side == "" and one.kind not in ("SEMI", "ANTI"))]
    named = {column.table.casefold() for column in join.args["on"].find_all(exp.Column)}
    known = [one for one in (source.this, *(one.this for one in before)) if one.alias_or_name.casefold() in named]
    found: exp.Expr | None = known[0] if len(known) == 1 and any(known[0] is one for one in inner) else None
    return found
