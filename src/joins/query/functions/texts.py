"""Compile functions of texts whose other arguments must be literals, so that no value can end the query."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from sqlglot import exp

from joins.query.expressions import ExpressionCompiler, Function
from joins.query.functions.arguments import TEXT, TEXT_ONLY, argument, plain
from joins.query.typed import Typed, escaped, refuse
from joins.query.value_types import INT64, STRING

_MOST = 1000  # repetitions, so that no text can exhaust the memory


class Crc32(exp.Expression, exp.Func):
    """The syntax node of `crc32(text)`."""

    arg_types: ClassVar = {"this": True}
    _sql_names: ClassVar = ["CRC32"]


def _written(name: str, form: str, *literals: tuple[str, Callable[[exp.Literal], bool]]) -> Function:
    """Return a function of a text and of literals that pass a check. `form` is the remedy for others."""

    def compile_(compiler: ExpressionCompiler, node: exp.Expr) -> Typed:
        typed = argument(compiler, node, "this", TEXT)
        assert typed is not None  # `this` is always there
        more = []
        for key, check in literals:
            value = node.args.get(key)
            if not isinstance(value, exp.Literal) or not check(value):
                refuse(node, node.sql("spark"), form)
            more.append(escaped(value.name) if value.is_string else value.name)
        return Typed(sql=f"{name}({', '.join([typed.sql, *more])})", type=STRING, failed=typed.failed)

    return compile_


def _is_text(value: exp.Literal) -> bool:
    return bool(value.is_string) and "\0" not in value.name


def _is_separator(value: exp.Literal) -> bool:
    return _is_text(value) and bool(value.name)


def _is_number(value: exp.Literal) -> bool:
    return value.is_int and 0 < int(value.name) <= _MOST


def _capitals(compiler: ExpressionCompiler, node: exp.Expr) -> Typed:
    typed = argument(compiler, node, "this", TEXT)
    assert typed is not None  # `this` is always there
    return Typed(sql=f"initcap({typed.sql})", type=STRING, failed=typed.failed)


TEXT_FUNCTIONS: dict[type[exp.Expr], Function] = {
    exp.SHA: plain("sha1", STRING, ("this", TEXT_ONLY)),
    Crc32: plain("crc32", INT64, ("this", TEXT_ONLY)),
    exp.Initcap: _capitals,
    exp.Repeat: _written("repeat", f"repeat(x, 3), a number from 1 to {_MOST}", ("times", _is_number)),
    exp.SplitPart: _written(
        "split_part", "split_part(x, '-', 2), a text and a part's number from 1 on",
        ("delimiter", _is_separator), ("part_index", _is_number),
    ),
    exp.Translate: _written(
        "translate", "translate(x, 'ab', 'xy'), of two texts", ("from_", _is_text), ("to", _is_text)
    ),
}  # fmt: skip
