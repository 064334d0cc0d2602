"""Compile a query's expressions over flat columns to those of a plan: computed columns and conditions in Spark SQL."""

from __future__ import annotations

from sqlglot import exp

from cdc.model.types import LogicalType
from joins.query.expressions import ExpressionCompiler, Resolve, Typed, Unsupported, any_of
from joins.query.functions import FUNCTIONS
from joins.query.nodes import Expression
from joins.query.value_types import MOST_DIGITS


def compiled(node: exp.Expr, resolve: Resolve, *, condition: bool = False) -> Typed:
    """Return an expression in Spark SQL with its type; Unsupported if it is not supported."""
    compiler = ExpressionCompiler(resolve, FUNCTIONS)
    return compiler.condition(node) if condition else compiler.compile(node)


def value(column: exp.Column, index: int, type_: LogicalType) -> Typed:
    """Return a column in an expression; Spark, unlike MySQL, has no numbers of more than 38 digits."""
    if type_.kind == "decimal" and type_.precision > MOST_DIGITS:
        what = f"{column.sql('spark')} is {type_}: expressions have at most {MOST_DIGITS} digits"
        expected = f"the plain column, which is kept whole, or one of {MOST_DIGITS} digits or fewer"
        raise Unsupported(column, what, expected)
    if type_.kind == "list":
        raise Unsupported(column, f"a {type_} in an expression", "the plain collect_list(x) AS name")
    return Typed(sql=f"{{{index}}}", type=type_)


def text_of_expression(node: exp.Expr) -> str:
    """Return an expression as readable text; equal for equal expressions."""
    return node.sql("spark").replace("`", "")


def condition_of(typed: Typed, node: exp.Expr, text: str = "") -> Expression:
    """Return a compiled condition, to be joined by AND; `text` is the original text if it differs."""
    said = text or text_of_expression(node)
    said = f"({said})" if isinstance(node, exp.Or) else said
    return Expression(sql=typed.sql, failed=typed.failed, type=typed.type, text=said)


def all_of(conditions: list[Expression]) -> Expression | None:
    """Return the conjunction of conditions; None if there are none."""
    if not conditions:
        return None
    failed, earlier = [], "TRUE"
    for one in conditions:
        if one.failed is not None:
            failed.append(f"({earlier} AND {one.failed})")
        earlier += f" AND NOT ({one.sql} <=> FALSE)"
    return Expression(
        sql=" AND ".join(f"({one.sql})" for one in conditions),
        failed=any_of(*failed),
        type=conditions[0].type,
        text=" AND ".join(one.text for one in conditions),
    )
