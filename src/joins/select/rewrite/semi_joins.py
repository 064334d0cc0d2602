"""Rewrite LEFT SEMI JOIN and LEFT ANTI JOIN as EXISTS and NOT EXISTS, before parsing (part of stage 1).

    FROM a LEFT ANTI JOIN b ON b.x = a.id  →  FROM a WHERE NOT EXISTS (SELECT 1 FROM b WHERE b.x = a.id)

Those by USING stay, and are refused: the columns of the tables are not known here."""

from __future__ import annotations

from sqlglot import exp


def with_semi_joins(statement: exp.Expr) -> exp.Expr:
    """Rewrite every such join with ON, in place."""
    for select in list(statement.find_all(exp.Select)):
        for join in list(select.args.get("joins") or []):
            if join.kind not in ("SEMI", "ANTI") or join.side not in ("", "LEFT") or join.args.get("on") is None:
                continue
            rows = exp.select("1").from_(join.this.copy()).where(join.args["on"].copy())
            exists: exp.Expr = exp.Exists(this=rows)
            if join.kind == "ANTI":
                exists = exp.Not(this=exists)
            select.args["joins"].remove(join)
            select.where(exists, copy=False)
    return statement
