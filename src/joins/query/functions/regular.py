"""Compile functions of regular expressions, and of texts that are split (a part of `joins.query.functions.registry`).

Patterns are literals that `patterns` can read. A longer text than a pattern allows gives NULL and a dead letter."""

from __future__ import annotations

import re
from typing import ClassVar

from sqlglot import exp

from cdc.model.types import LogicalType
from joins.query.expressions import ExpressionCompiler, Function
from joins.query.functions.arguments import TEXT, argument
from joins.query.functions.patterns import BadPattern, Pattern, pattern_of, plain_text
from joins.query.typed import Typed, any_of, escaped, refuse
from joins.query.value_types import BOOL, INT32, STRING

_MOST_PARTS = 1000
_FORM = "a literal pattern such as '^[a-z]+-([0-9]+)$', without repeated groups, look-around and \\\\b"


class NthPart(exp.Expression, exp.Func):
    """The syntax node of `split(this, expression)[place]`. The two are literals: a text and a number from 0.

    `safe`: a missing part is NULL, as of `get`, and no failure."""

    arg_types: ClassVar = {"this": True, "expression": True, "place": True, "safe": False}
    _sql_names: ClassVar = ["NTH_PART"]


class PartCount(exp.Expression, exp.Func):
    """The syntax node of `size(split(this, expression))`; `expression` is a literal text.

    A number greater than `most` is NULL, and a failure."""

    arg_types: ClassVar = {"this": True, "expression": True, "most": False}
    _sql_names: ClassVar = ["PART_COUNT"]


def separator_of(split: exp.Expr) -> str:
    """Return the text by which `split(x, ',')` or `string_to_array(x, ',')` splits. Empty for other expressions."""
    literal = split.expression if isinstance(split, exp.RegexpSplit | exp.StringToArray | exp.Split) else None
    if not isinstance(literal, exp.Literal) or not literal.is_string or split.args.get("limit"):
        return ""
    by = plain_text(literal.name) if isinstance(split, exp.RegexpSplit) else literal.name
    return "" if by is None or "\0" in by else by


def nth_part(split: exp.Expr, place: exp.Expr, first: int, *, safe: bool) -> NthPart | None:
    """Return the form of `split(x, ',')[0]`, where the first part has the number `first`. None for other lists."""
    by, number = separator_of(split), -1
    if isinstance(place, exp.Literal) and place.is_int:
        number = int(place.name) - first
    if not by or not 0 <= number < _MOST_PARTS:
        return None
    made = NthPart(this=split.this.copy(), expression=exp.Literal.string(by), place=exp.Literal.number(number))
    made.set("safe", safe)
    return made


def _pattern(node: exp.Expr) -> tuple[str, Pattern]:
    literal = node.expression
    if not isinstance(literal, exp.Literal) or not literal.is_string or "\0" in literal.name:
        refuse(node, node.sql("spark"), _FORM)
    try:
        return literal.name, pattern_of(literal.name)
    except BadPattern as error:
        refuse(node, f"pattern '{literal.name}' with {error}", _FORM)


def _applied(
    compiler: ExpressionCompiler, node: exp.Expr, name: str, result: LogicalType, pattern: Pattern, *more: str
) -> Typed:
    typed = argument(compiler, node, "this", TEXT)
    assert typed is not None  # `this` is always there
    fits = f"length({typed.sql}) <= {pattern.most}"
    sql = f"(CASE WHEN {fits} THEN {name}({', '.join([typed.sql, *more])}) END)"
    return Typed(sql=sql, type=result, failed=any_of(typed.failed, f"({sql} IS NULL AND {typed.sql} IS NOT NULL)"))


def _refuse_more(node: exp.Expr, *known: str) -> None:
    extra = [key for key, value in node.args.items() if value and key not in ("this", "expression", *known)]
    if extra:
        refuse(node, f"{extra[0]} in {node.sql('spark')}", _FORM)


def _like(compiler: ExpressionCompiler, node: exp.Expr) -> Typed:
    _refuse_more(node)
    text, pattern = _pattern(node)
    return _applied(compiler, node, "rlike", BOOL, pattern, escaped(text))


def _extracted(compiler: ExpressionCompiler, node: exp.Expr) -> Typed:
    _refuse_more(node, "group", "null_if_pos_overflow")
    text, pattern = _pattern(node)
    group = node.args.get("group") or exp.Literal.number(1)
    if not (isinstance(group, exp.Literal) and group.is_int) or int(group.name) > pattern.groups:
        expected = f"a group from 0 to {pattern.groups}, which the pattern has"
        refuse(node, f"group {group.sql('spark')} of '{text}'", expected)
    return _applied(compiler, node, "regexp_extract", STRING, pattern, escaped(text), group.name)


def _replaced(compiler: ExpressionCompiler, node: exp.Expr) -> Typed:
    _refuse_more(node, "replacement")
    text, pattern = _pattern(node)
    by = node.args.get("replacement")
    expected = f"a literal text, in which $1 to ${pattern.groups} are groups" if pattern.groups else "a literal text"
    if not isinstance(by, exp.Literal) or not by.is_string or len(by.name) > 100 or re.search(r"[\\\0]", by.name):
        refuse(node, node.sql("spark"), expected)
    if any(not one[1] or int(one[1]) > min(9, pattern.groups) for one in re.finditer(r"\$(\d*)", by.name)):
        refuse(node, f"{by.sql('spark')} in {node.sql('spark')}", expected)
    return _applied(compiler, node, "regexp_replace", STRING, pattern, escaped(text), escaped(by.name))


def _part(compiler: ExpressionCompiler, node: exp.Expr) -> Typed:
    """Compile part number `place` (from 0) of a text that is split. NULL if there are fewer parts, which is a failure
    unless it is `safe`."""
    typed, by, number = argument(compiler, node, "this", TEXT), node.expression.name, int(node.args["place"].name)
    assert typed is not None  # `this` is always there
    parts = _separators(typed.sql, by)
    sql = f"(CASE WHEN {parts} >= {number} THEN split_part({typed.sql}, {escaped(by)}, {number + 1}) END)"
    failure = None if node.args.get("safe") else f"({parts} < {number})"
    return Typed(sql=sql, type=STRING, failed=any_of(typed.failed, failure))


def _separators(text: str, by: str) -> str:
    return f"(length({text}) - length(replace({text}, {escaped(by)}, ''))) div {len(by)}"


def _part_count(compiler: ExpressionCompiler, node: exp.Expr) -> Typed:
    typed, most = argument(compiler, node, "this", TEXT), node.args.get("most")
    assert typed is not None  # `this` is always there
    count = f"(CAST({_separators(typed.sql, node.expression.name)} AS INT) + 1)"
    if most is None:
        return Typed(sql=count, type=INT32, failed=typed.failed)
    fits = f"{count} <= {most.name}"
    return Typed(sql=f"(CASE WHEN {fits} THEN {count} END)", type=INT32, failed=any_of(typed.failed, f"(NOT {fits})"))


REGULAR_FUNCTIONS: dict[type[exp.Expr], Function] = {
    exp.RegexpLike: _like,
    exp.RegexpExtract: _extracted,
    exp.RegexpReplace: _replaced,
    NthPart: _part,
    PartCount: _part_count,
}
