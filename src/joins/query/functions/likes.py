"""Compile LIKE and ILIKE with ESCAPE (a part of `joins.query.functions.registry`).

The compiled pattern has backslashes in place of the sign of the query, which may be any character."""

from __future__ import annotations

from sqlglot import exp

from joins.query.expressions import ExpressionCompiler, Function
from joins.query.typed import Typed, escaped, refuse
from joins.query.value_types import BOOL, family


def _escaped(compiler: ExpressionCompiler, node: exp.Expr) -> Typed:
    like, form = node.this, "x LIKE 'a!%' ESCAPE '!', where a sign escapes %, _ or itself"
    pattern, sign = like.expression, node.expression
    literals = all(isinstance(one, exp.Literal) and one.is_string for one in (pattern, sign))
    if not isinstance(like, exp.Like | exp.ILike) or not literals or len(sign.name) != 1 or sign.name in "%_":
        refuse(node, node.sql("spark"), form)
    inner = compiler.compile(like.this)
    if family(inner.type) != "text":
        refuse(node, f"{inner.type} in {node.sql('spark')}", "text LIKE 'a!%' ESCAPE '!'")
    text, at = "", 0
    while at < len(pattern.name):
        one = pattern.name[at]
        if one == sign.name:
            at += 1
            one = pattern.name[at : at + 1]
            if one not in ("%", "_", sign.name):
                refuse(node, node.sql("spark"), form)
            text += "\\" + one if one in "%_\\" else one
        else:
            text += "\\\\" if one == "\\" else one
        at += 1
    if isinstance(like, exp.ILike):
        return Typed(sql=f"(lower({inner.sql}) LIKE lower({escaped(text)}))", type=BOOL, failed=inner.failed)
    return Typed(sql=f"({inner.sql} LIKE {escaped(text)})", type=BOOL, failed=inner.failed)


LIKE_FUNCTIONS: dict[type[exp.Expr], Function] = {exp.Escape: _escaped}
