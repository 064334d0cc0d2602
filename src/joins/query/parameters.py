"""Read what a call contains beside its argument: ORDER BY, the separator of a text, the share of a percentile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import ClassVar

from sqlglot import exp

from joins.query.typed import refuse

_PLACES = 9  # decimal places of a percentile's share


class DiscretePercentile(exp.Quantile):
    """The syntax node of `percentile_disc(0.5) WITHIN GROUP (ORDER BY this)`."""

    arg_types: ClassVar = {"this": True, "quantile": True}
    _sql_names: ClassVar = ["PERCENTILE_DISC"]


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedTexts:
    """A call of string_agg: its value, the expressions of its ORDER BY and whether each is descending.

    The value comes last in `order` if it is no expression of it. Without ORDER BY the order is that of the values."""

    value: exp.Expr
    order: tuple[tuple[exp.Expr, bool], ...]
    distinct: bool


def order_of(ordered: Sequence[exp.Expr]) -> tuple[tuple[exp.Expr, bool], ...]:
    """Return the expressions of ORDER BY and whether each is descending, where NULL sorts before all values.

    Another place of NULL is an expression of its own, `x IS NULL`."""
    found: list[tuple[exp.Expr, bool]] = []
    for one in ordered:
        descending, nulls_first = bool(one.args.get("desc")), bool(one.args.get("nulls_first"))
        if nulls_first == descending:  # NULL precedes all values by default, and follows them in descending order
            found.append((exp.Is(this=one.this.copy(), expression=exp.Null()), nulls_first))
        found.append((one.this, descending))
    return tuple(found)


def _is_same(one: exp.Expr, other: exp.Expr) -> bool:
    """Return whether two expressions are equal: names may differ in case, and one may lack its table."""
    if isinstance(one, exp.Column) and isinstance(other, exp.Column):
        tables = {column.table.casefold() for column in (one, other) if column.table}
        return one.name.casefold() == other.name.casefold() and len(tables) < 2
    if type(one) is not type(other) or isinstance(one, exp.Literal):
        return bool(one == other)
    parts, others = list(one.iter_expressions()), list(other.iter_expressions())
    if not parts or len(parts) != len(others):
        return bool(one == other)
    plain = [{key: value for key, value in node.args.items() if not _is_tree(value)} for node in (one, other)]
    return plain[0] == plain[1] and all(map(_is_same, parts, others))


def _is_tree(value: object) -> bool:
    return isinstance(value, exp.Expr) or (isinstance(value, list) and any(isinstance(one, exp.Expr) for one in value))


def joined_texts(function: exp.GroupConcat) -> JoinedTexts:
    """Return the parts of a call of string_agg. Raises Unsupported for one that is not supported."""
    inner, order = function.this, tuple[tuple[exp.Expr, bool], ...]()
    if isinstance(inner, exp.Order):
        inner, order = inner.this, order_of(inner.expressions)
    distinct = isinstance(inner, exp.Distinct)
    values = inner.expressions if distinct else [inner]
    if len(values) != 1 or function.args.get("on_overflow"):
        refuse(function, function.sql("spark"), "string_agg(DISTINCT x, ', '), of one value")
    value = values[0]
    if distinct and order:
        order = tuple(one for one in order if not isinstance(one[0], exp.Is))  # NULL is left out
        if not all(_is_same(node, value) for node, _ in order):
            refuse(function, f"{function.sql('spark')}, whose order is not that of its values", "ORDER BY x, or none")
    return JoinedTexts(value=value, order=order or ((value, False),), distinct=distinct)


def is_distinct(function: exp.Expr) -> bool:
    """Return whether an aggregate function counts each value once."""
    inner = function.this
    return isinstance(inner.this if isinstance(inner, exp.Order) else inner, exp.Distinct)


def parameters_of(function: exp.Expr) -> tuple[str, ...]:
    """Return the literals that an aggregate function computes with, as they are in a plan.

    Raises Unsupported for others than literals."""
    if isinstance(function, exp.GroupConcat):
        separator = function.args.get("separator")
        if separator is None:
            return ("",)
        if not (isinstance(separator, exp.Literal) and separator.is_string):
            refuse(function, function.sql("spark"), "string_agg(x, ', '), a literal text between the values")
        return (separator.name,)
    if isinstance(function, exp.Quantile):
        accuracy = function.args.get("accuracy")
        if accuracy is not None and not (isinstance(accuracy, exp.Literal) and accuracy.is_int):
            refuse(function, function.sql("spark"), "percentile_approx(x, 0.5), which is exact")
        return (_share(function),)
    return ()


def _share(function: exp.Quantile) -> str:
    node = function.args.get("quantile")
    if isinstance(node, exp.Literal) and not node.is_string and "e" not in node.name.lower():
        share = Decimal(node.name)
        if 0 <= share <= 1 and int(share.as_tuple().exponent) >= -_PLACES:
            return f"{share.normalize():f}"
    refuse(function, function.sql("spark"), f"a literal number from 0 to 1 with at most {_PLACES} decimal places")
