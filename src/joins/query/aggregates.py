"""Define the aggregate functions that a query may call: the state that each needs of a group, and its result type.

`docs/queries.md` lists the functions, and a test compares the two lists. Every function can be retracted: when a row
leaves a group, the result is the same as if the row had never been there. Sources: Spark SQL's function reference.
Where Spark leaves an order open (`collect_list`, ties in `max_by`), the order of the values decides."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeVar

from sqlglot import exp

from cdc.model.types import LogicalType, list_of
from joins.query.expressions import refuse
from joins.query.group import Bag, Function, Result, Total
from joins.query.value_types import FLOAT64, INT64, INTEGERS, MOST_DIGITS, family

T = TypeVar("T")
_INSTEAD: dict[type[exp.Expr], str] = {
    exp.First: "min, max, or max_by(x, moment)",
    exp.Last: "max_by(x, moment)",
    exp.AnyValue: "min or max",
    exp.ApproxDistinct: "count(DISTINCT x), which is exact",
    exp.GroupConcat: "collect_list(x)",
}
_KEPT: tuple[type[exp.Expr], ...] = (
    exp.Count, exp.Sum, exp.Avg, exp.Min, exp.Max, exp.ArgMin, exp.ArgMax, exp.ArrayAgg, exp.ArrayUniqueAgg,
    exp.CountIf, exp.LogicalAnd, exp.LogicalOr,
)  # fmt: skip
_ALL = "count, sum, avg, min, max, max_by, min_by, count_if, bool_and, bool_or, collect_list or collect_set"


def aggregates_in(node: exp.Expr) -> Iterator[exp.Expr]:
    """Yield the calls of aggregate functions in an expression, each with its FILTER. Calls inside a call are not
    yielded."""
    if isinstance(node, exp.AggFunc) or (isinstance(node, exp.Filter) and isinstance(node.this, exp.AggFunc)):
        yield node
        return
    for child in node.iter_expressions():
        yield from aggregates_in(child)


def check_call(call: exp.Expr) -> None:
    """Raise Unsupported for an aggregate function that queries cannot use. Checks all that does not need column
    types."""
    function = call.this if isinstance(call, exp.Filter) else call
    if not isinstance(function, _KEPT):
        expected = next((form for kind, form in _INSTEAD.items() if isinstance(function, kind)), _ALL)
        refuse(call, f"{function.sql('spark')} is not supported", expected)
    if isinstance(function.this, exp.Distinct) and not isinstance(function, exp.Count | exp.Sum):
        plain = isinstance(function, exp.Min | exp.Max)
        expected = "the same without DISTINCT" if plain else "collect_set(x), or sum(DISTINCT x) / count(DISTINCT x)"
        refuse(call, f"DISTINCT in {function.sql('spark')}", expected)
    if isinstance(function, exp.ArgMin | exp.ArgMax) and function.args.get("count"):
        refuse(call, function.sql("spark"), "max_by(x, y)")
    for argument in arguments_of(call):
        if any(aggregates_in(argument)):
            refuse(call, f"an aggregate within {function.sql('spark')}", "the inner one in a table or query of its own")


def arguments_of(call: exp.Expr) -> list[exp.Expr]:
    """Return the expressions over single rows that a call aggregates, in the order that `Keeping.add` expects.

    For example, `max_by(x, y)` has two: first `y`, which decides, then `x`. `count(*)` has none."""
    condition = call.expression.this if isinstance(call, exp.Filter) else None
    function = call.this if isinstance(call, exp.Filter) else call
    found = _arguments(function)
    if condition is None:
        return found
    if not found:  # count(*)
        return [_if(condition, exp.Literal.number(1))]
    # NULL does not count; for max_by(x, y) the deciding value is y, which is first
    return [_if(condition, found[0]), *found[1:]]


def _arguments(function: exp.Expr) -> list[exp.Expr]:
    if isinstance(function, exp.Count):
        inner = function.this
        items = list(inner.expressions) if isinstance(inner, exp.Distinct) else [inner, *function.expressions]
        if isinstance(inner, exp.Distinct):
            return items
        if len(items) > 1:
            there = [exp.Not(this=exp.Is(this=item.copy(), expression=exp.Null())) for item in items]
            return [_if(exp.and_(*there), exp.Literal.number(1))]
        return [] if isinstance(inner, exp.Star | exp.Literal) else items
    if isinstance(function, exp.CountIf):
        return [_if(function.this, exp.Literal.number(1))]
    if isinstance(function, exp.ArgMin | exp.ArgMax):
        return [function.expression, function.this]
    inner = function.this
    if isinstance(inner, exp.Distinct):
        if len(inner.expressions) != 1:
            refuse(function, function.sql("spark"), "DISTINCT of one column")
        return list(inner.expressions)
    return [inner]


def _if(condition: exp.Expr, value: exp.Expr) -> exp.Expr:
    return exp.Case(ifs=[exp.If(this=condition.copy(), true=value.copy())])


_UNORDERED = ("geometry", "list")


@dataclass(slots=True)
class Keeping:
    """Collects the state that the aggregate functions of one query need: totals and bags (see `joins.query.group`).

    Functions over the same argument share a total or bag. `results` has one entry per function."""

    totals: list[Total] = field(default_factory=list)
    bags: list[Bag] = field(default_factory=list)
    results: list[Result] = field(default_factory=list)

    def add(self, call: exp.Expr, arguments: list[tuple[int, LogicalType]]) -> Result:
        """Add a call and return its result. `arguments` has the number and the type of each argument of the call.

        Raises Unsupported for an argument type that the function cannot take."""
        function = call.this if isinstance(call, exp.Filter) else call
        text = call.sql("spark").replace("`", "")
        if not arguments:
            return self._result("count_rows", 0, INT64, text)
        number, type_ = arguments[0]
        distinct = isinstance(function.this, exp.Distinct)
        if isinstance(function, exp.Min | exp.Max | exp.ArrayAgg | exp.ArrayUniqueAgg) and family(type_) in _UNORDERED:
            refuse(call, f"{type_} in {text}", "numbers or text: ST_X(p), ST_Y(p), ST_AsText(g)")
        match function:
            case exp.Count() | exp.CountIf() if not distinct:
                return self._result("count", self._total(number, type_), INT64, text)
            case exp.Count():
                return self._result("count_distinct", self._bag(arguments, len(arguments)), INT64, text)
            case exp.Sum() | exp.Avg():
                if family(type_) != "number":
                    refuse(call, f"{type_} in {text}", "a number: write a CAST")
                if distinct:
                    return self._result("sum_distinct", self._bag(arguments, 1), sum_type(type_), text)
                name: Function = "sum" if isinstance(function, exp.Sum) else "avg"
                wanted = sum_type(type_) if name == "sum" else average_type(type_)
                return self._result(name, self._total(number, type_), wanted, text)
            case exp.LogicalAnd() | exp.LogicalOr():
                if type_.kind != "bool":
                    refuse(call, f"{type_} in {text}", "a condition")
                return self._result(
                    "min" if isinstance(function, exp.LogicalAnd) else "max", self._bag(arguments, 1), type_, text
                )
            case exp.Min() | exp.Max():
                return self._result(
                    "min" if isinstance(function, exp.Min) else "max", self._bag(arguments, 1), type_, text
                )
            case exp.ArgMin() | exp.ArgMax():
                by: Function = "min_by" if isinstance(function, exp.ArgMin) else "max_by"
                return self._result(by, self._bag(arguments, 1), arguments[1][1], text)
        listed = list_of(type_)
        listing: Function = "collect_list" if isinstance(function, exp.ArrayAgg) else "collect_set"
        return self._result(listing, self._bag(arguments, 1), listed, text)

    def _result(self, function: Function, of: int, type_: LogicalType, text: str) -> Result:
        result = Result(function=function, of=of, type=type_, text=text)
        self.results.append(result)
        return result

    def _total(self, number: int, type_: LogicalType) -> int:
        return _place(self.totals, Total(argument=number, type=type_))

    def _bag(self, arguments: list[tuple[int, LogicalType]], needed: int) -> int:
        numbers, types = zip(*arguments, strict=True)
        wanted = Bag(arguments=numbers, types=types, needed=needed, descending=(False,) * len(numbers))
        return _place(self.bags, wanted)


def _place(known: list[T], wanted: T) -> int:
    if wanted not in known:
        known.append(wanted)
    return known.index(wanted)


def sum_type(type_: LogicalType) -> LogicalType:
    """Return the type of a sum, as in Spark."""
    if type_.kind in INTEGERS:
        return INT64
    if type_.kind.startswith("float"):
        return FLOAT64
    precision, scale = _digits(type_)
    return LogicalType(kind="decimal", precision=min(precision + 10, MOST_DIGITS), scale=scale)


def average_type(type_: LogicalType) -> LogicalType:
    """Return the type of an average, as in Spark."""
    if type_.kind in INTEGERS or type_.kind.startswith("float"):
        return FLOAT64
    precision, scale = _digits(type_)
    return LogicalType(kind="decimal", precision=min(precision + 4, MOST_DIGITS), scale=min(scale + 4, MOST_DIGITS))


def _digits(type_: LogicalType) -> tuple[int, int]:
    return (type_.precision, type_.scale) if type_.kind == "decimal" else (20, 0)
