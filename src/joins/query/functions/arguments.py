"""Compile the arguments of functions, and the functions that pass them to Spark as they are."""

from __future__ import annotations

from sqlglot import exp

from cdc.model.types import LogicalType
from joins.query.expressions import ExpressionCompiler, Function
from joins.query.typed import Typed, any_of, refuse
from joins.query.value_types import DATE, DATETIME, INT32, NULL, STRING, Family, family

_FLAGS = {"safe", "coerce", "typed", "ansi", "only_json_types", "big_int", "binary", "is_left", "zone", "instance"}
TEXT: tuple[Family, ...] = ("text",)
TEXT_ONLY: tuple[Family, ...] = ("text", "null")  # most functions also take other types, and cast them
NUMBER: tuple[Family, ...] = ("number",)
DAY: tuple[Family, ...] = ("date", "moment")


def argument(compiler: ExpressionCompiler, node: exp.Expr, key: str, wanted: tuple[Family, ...]) -> Typed | None:
    """Compile an argument of a function. None if it is absent. Raises Unsupported if its type is of another family."""
    value = node.args.get(key)
    if value is None:
        return None
    if isinstance(value, exp.TsOrDsToDate | exp.TimeStrToTime):  # sqlglot's wrapper of date functions' arguments
        value = value.this
    if value is None:
        refuse(node, f"{node.sql('spark')}, which lacks an argument", "all of its arguments")
    typed = compiler.compile(value)
    if "date" in wanted and "text" not in wanted:
        typed = compiler.dated(value, typed, DATETIME if "moment" in wanted and len(value.name) > 10 else DATE)
    if family(typed.type) in (*wanted, "null"):
        return typed
    if wanted == TEXT and family(typed.type) not in ("bytes", "geometry"):
        return compiler.cast(typed, STRING)
    expected = "a text: CAST(… AS STRING)" if wanted == TEXT_ONLY else " or ".join(wanted) + ": write a CAST"
    refuse(node, f"{typed.type} in {node.sql('spark')}", expected)


def plain(template: str, result: LogicalType, *arguments: tuple[str, tuple[Family, ...]]) -> Function:
    """Return a function that is NULL only if an argument is NULL.

    `template` is Spark SQL with `{0}`, `{1}`, … for the arguments that are given. `arguments` has the name and the
    allowed type families of each."""

    def compile_(compiler: ExpressionCompiler, node: exp.Expr) -> Typed:
        if extra := [k for k, v in node.args.items() if v and k not in dict(arguments) and k not in _FLAGS]:
            refuse(node, f"{extra[0]} in {node.sql('spark')}", template)
        found = [argument(compiler, node, key, wanted) for key, wanted in arguments]
        there = [
            counted(typed) if wanted == NUMBER else typed
            for typed, (_, wanted) in zip(found, arguments, strict=True)
            if typed is not None
        ]
        sql = f"{template}({', '.join(typed.sql for typed in there)})"
        return Typed(sql=sql, type=result, failed=any_of(*(typed.failed for typed in there)))

    return compile_


def counted(typed: Typed) -> Typed:
    """Cast a number of characters or bits to INT, so that a larger number cannot end the query in Spark."""
    if typed.type == NULL or typed.type.kind in ("int8", "int16", "int32"):
        return typed
    sql = f"try_cast({typed.sql} AS INT)"
    return Typed(sql=sql, type=INT32, failed=any_of(typed.failed, f"({sql} IS NULL AND {typed.sql} IS NOT NULL)"))
