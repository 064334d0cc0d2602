"""Read MySQL's GROUP_CONCAT, whose clauses sqlglot does not read in Spark's SQL, as string_agg (part of stage 1).

    GROUP_CONCAT(DISTINCT o.x, o.y ORDER BY o.x DESC SEPARATOR ';')
      string_agg(DISTINCT concat(o.x, o.y), ';' ORDER BY o.x DESC)

The text is changed before sqlglot reads it, without moving anything, so that errors keep their places."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

_NAME, _STAND_IN = "group_concat", "texts_joined"  # of equal length
_WORD, _SEPARATOR = "separator", ",_sep_of("  # the second one is not longer, and a bracket follows the text


def with_stand_ins(text: str, tokens: Sequence[Token]) -> str:
    """Return a query in which each GROUP_CONCAT has another name, and SEPARATOR is a call in its last argument."""
    for token, after in pairwise(tokens):
        if token.text.lower() == _NAME and after.token_type == TokenType.L_PAREN:
            text = text[: token.start] + _STAND_IN + text[token.start + len(_STAND_IN) :]
        if token.text.lower() == _WORD and after.token_type == TokenType.STRING and after.start > token.end + 1:
            call = _SEPARATOR + text[after.start : after.end + 1] + ")"
            text = text[: token.start] + call.ljust(after.end + 1 - token.start) + text[after.end + 1 :]
    return text


def with_group_concats(statement: exp.Expr) -> exp.Expr:
    """Replace these calls by string_agg in a statement, in place."""
    for node in list(statement.find_all(exp.Anonymous)):
        if node.name.lower() == _STAND_IN:
            node.replace(_read(node))
    return statement


def _read(node: exp.Anonymous) -> exp.GroupConcat:
    arguments, separator = list(node.expressions), exp.Literal.string(",")
    order, distinct = list[exp.Expr](), False
    if arguments and isinstance(arguments[-1], exp.Order):
        order = list(arguments[-1].expressions)
        arguments[-1] = arguments[-1].this
        if order and _is_separator(order[-1].this):
            separator = order.pop().this.expressions[0]
    if arguments and isinstance(arguments[0], exp.Distinct):
        distinct = True
        arguments[:1] = arguments[0].expressions
    elif arguments and isinstance(arguments[-1], exp.Distinct):
        distinct = True
        arguments[-1:] = arguments[-1].expressions
    if arguments and _is_separator(arguments[-1]):
        separator = arguments.pop().expressions[0]
    value = arguments[0] if len(arguments) == 1 else exp.Concat(expressions=arguments, safe=False, coalesce=False)
    inner: exp.Expr = exp.Distinct(expressions=[value]) if distinct else value
    if order:
        inner = exp.Order(this=inner, expressions=order)
    made = exp.GroupConcat(this=inner, separator=separator)
    made.meta.update(node.meta)
    return made


def _is_separator(node: exp.Expr) -> bool:
    return isinstance(node, exp.Anonymous) and node.name == _SEPARATOR[1:-1]
