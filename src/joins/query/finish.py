"""Compile expressions of a query to the expressions of a plan: computed columns, and conditions, in Spark SQL.

`resolve` arguments map a column to its number in the joined row and to its type. Example: `o.amount * 2`, with
`o.amount` as value 3 of a joined row, becomes Spark SQL over `{3}`."""

from __future__ import annotations

from sqlglot import exp

from cdc.model.types import LogicalType
from joins.query.expressions import ExpressionCompiler
from joins.query.functions.registry import FUNCTIONS
from joins.query.nodes import Expression
from joins.query.typed import Resolve, Typed, Unsupported, any_of
from joins.query.value_types import MOST_DIGITS


def compiled(node: exp.Expr, resolve: Resolve, *, condition: bool = False) -> Typed:
    """Compile an expression with all supported functions. With `condition`, it must be boolean. Raises Unsupported."""
    compiler = ExpressionCompiler(resolve, FUNCTIONS)
    return compiler.condition(node) if condition else compiler.compile(node)


def value(column: exp.Column, index: int, type_: LogicalType) -> Typed:
    """Return the typed expression for a column that is value number `index` of a joined row.

    Raises Unsupported for types that Spark cannot compute with, such as a decimal of more than 38 digits."""
    if type_.kind == "decimal" and type_.precision > MOST_DIGITS:
        what = f"{column.sql('spark')} is {type_}: expressions have at most {MOST_DIGITS} digits"
        expected = f"the plain column, which is kept whole, or one of {MOST_DIGITS} digits or fewer"
        raise Unsupported(column, what, expected)
    if type_.kind == "list":
        raise Unsupported(column, f"a {type_} in an expression", "the plain collect_list(x) AS name")
    return Typed(sql=f"{{{index}}}", type=type_)


def text_of_expression(node: exp.Expr) -> str:
    """Return an expression as normalized SQL text. Equal expressions have equal texts."""
    return node.sql("spark").replace("`", "")


def condition_of(typed: Typed, node: exp.Expr, text: str = "") -> Expression:
    """Return a compiled condition for use in a plan. `text` is the text in the query, if it differs from `node`."""
    said = text or text_of_expression(node)
    said = f"({said})" if isinstance(node, exp.Or) else said
    return Expression(sql=typed.sql, failed=typed.failed, type=typed.type, text=said)


def all_of(conditions: list[Expression]) -> Expression | None:
    """Join conditions by AND. Return None if the list is empty."""
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
