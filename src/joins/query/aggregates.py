"""Read calls of aggregate functions (`joins.query.aggregate_functions`): what each needs of a group's rows.

`docs/queries.md` lists the functions, and a test compares the two lists. Every function can be retracted: when a row
leaves a group, the result is the same as if the row had never been there. Sources: Spark SQL's function reference.
Where Spark leaves an order open (`collect_list`, ties in `max_by`), the order of the values decides."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

from sqlglot import exp

from cdc.model.types import LogicalType
from joins.query.aggregate_functions import CALLS, FUNCTIONS, function_of
from joins.query.group import Bag, Result, Total
from joins.query.parameters import is_distinct, joined_texts, parameters_of
from joins.query.typed import refuse

T = TypeVar("T")
_INSTEAD: dict[type[exp.Expr], str] = {
    exp.First: "min, max, or max_by(x, moment)",
    exp.Last: "max_by(x, moment)",
    exp.AnyValue: "min or max",
    exp.ApproxDistinct: "count(DISTINCT x), which is exact",
    exp.PercentileCont: "percentile_cont(0.5) WITHIN GROUP (ORDER BY x), or percentile(x, 0.5)",
    exp.PercentileDisc: "percentile_disc(0.5) WITHIN GROUP (ORDER BY x)",
}
_SHOWN = [function.shown for function in FUNCTIONS if "(" not in function.shown] + ["count_if"]
_WITH_DISTINCT = [function for function in FUNCTIONS if function.distinct]
_DISTINCT = tuple(call for function in _WITH_DISTINCT for call in function.calls)
_INSTEAD_OF_DISTINCT = " or ".join(["collect_set(x)", *(function.shown for function in _WITH_DISTINCT)])
_ALL = f"{', '.join(_SHOWN[:-1])} or {_SHOWN[-1]}"


def aggregates_in(node: exp.Expr) -> Iterator[exp.Expr]:
    """Yield the calls of aggregate functions in an expression, each with its FILTER. Calls inside a call are not
    yielded. The function of a window is no call: it reads rows that are grouped already."""
    if isinstance(node, exp.Window):
        yield from _within(node)
        return
    if isinstance(node, exp.AggFunc) or (isinstance(node, exp.Filter) and isinstance(node.this, exp.AggFunc)):
        yield node
        return
    for child in node.iter_expressions():
        yield from aggregates_in(child)


def _within(window: exp.Window) -> Iterator[exp.Expr]:
    inner = window.this
    while isinstance(inner, exp.IgnoreNulls | exp.RespectNulls):
        inner = inner.this
    read = [inner.this, inner.expression] if isinstance(inner, exp.Filter) else [inner]
    for child in (*(one for call in read for one in call.iter_expressions()), *window.iter_expressions()):
        if child is not window.this:
            yield from aggregates_in(child)


def check_call(call: exp.Expr, *, over: bool = False) -> None:
    """Raise Unsupported for an aggregate function that queries cannot use. Checks all that does not need column
    types. The arguments of one `over` a window may be aggregates of groups."""
    function = call.this if isinstance(call, exp.Filter) else call
    if not isinstance(function, CALLS):
        expected = next((form for kind, form in _INSTEAD.items() if isinstance(function, kind)), _ALL)
        refuse(call, f"{function.sql('spark')} is not supported", expected)
    if is_distinct(function) and not isinstance(function, _DISTINCT):
        plain = isinstance(function, exp.Min | exp.Max)
        expected = "the same without DISTINCT" if plain else _INSTEAD_OF_DISTINCT
        refuse(call, f"DISTINCT in {function.sql('spark')}", expected)
    if isinstance(function, exp.ArgMin | exp.ArgMax) and function.args.get("count"):
        refuse(call, function.sql("spark"), "max_by(x, y)")
    parameters_of(function)
    for argument in arguments_of(call):
        if (query := argument.find(exp.Query)) is not None:
            expected = "the value as a column of a query in FROM, whose rows are aggregated"
            refuse(query, f"a subquery within {function.sql('spark')}", expected)
        if any(aggregates_in(argument)) and not over:
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
    # NULL does not count; for max_by(x, y) the deciding value is y, which is first, and for string_agg it is the last
    if isinstance(function, exp.GroupConcat):
        return [*found[:-1], _if(condition, found[-1])]
    return [_if(condition, found[0]), *found[1:]]


def widens(call: exp.Expr) -> bool:
    """Return whether a call adds up its argument, so that a FLOAT is read as `widened`."""
    function = call.this if isinstance(call, exp.Filter) else call
    return next((row.widens for row in FUNCTIONS if isinstance(function, row.calls)), False)


def widened(argument: exp.Expr, type_: LogicalType) -> exp.Expr:
    """Return the argument of a sum: a FLOAT as the DOUBLE of its four bytes, others as they are.

    The text of a FLOAT (1.1) is another number than its four bytes (1.10000002384…), which conditions compare."""
    return exp.Cast(this=argument.copy(), to=exp.DataType.build("double")) if type_.kind == "float32" else argument


def read_by(call: exp.Expr, type_of: Callable[[exp.Expr], LogicalType]) -> list[exp.Expr]:
    """Return the arguments of a call in the types in which it reads them. `type_of` returns that of an expression.

    Sums read FLOATs as DOUBLEs, and string_agg reads texts, which have the order of the values that they show."""
    found = arguments_of(call)
    if found and widens(call):
        return [widened(found[0], type_of(found[0])), *found[1:]]
    function = call.this if isinstance(call, exp.Filter) else call
    if not isinstance(function, exp.GroupConcat) or type_of(found[-1]).kind == "string":
        return found
    ordered = len(found) == len(joined_texts(function).order)  # the value itself is the last to order by
    return [*(found if ordered else found[:-1]), exp.cast(found[-1].copy(), "string")]


def _arguments(function: exp.Expr) -> list[exp.Expr]:
    if isinstance(function, exp.Count):
        inner = function.this
        items = list(inner.expressions) if isinstance(inner, exp.Distinct) else [inner, *function.expressions]
        if isinstance(inner, exp.Distinct):
            return items
        if len(items) > 1:
            # in parentheses: verify's oracle writes it as text, and NOT binds less than IS NULL
            held = [item.copy() if isinstance(item, exp.Column) else exp.Paren(this=item.copy()) for item in items]
            there = [exp.Not(this=exp.Is(this=item, expression=exp.Null())) for item in held]
            return [_if(exp.and_(*there), exp.Literal.number(1))]
        return [] if isinstance(inner, exp.Star | exp.Literal) else items
    if isinstance(function, exp.CountIf):
        return [_if(function.this, exp.Literal.number(1))]
    if isinstance(function, exp.ArgMin | exp.ArgMax):
        return [function.expression, function.this]
    if isinstance(function, exp.GroupConcat):
        texts = joined_texts(function)
        order = [node for node, _ in texts.order]
        return order if order[-1].sql() == texts.value.sql() else [*order, texts.value]
    inner = function.this
    if isinstance(inner, exp.Distinct):
        if len(inner.expressions) != 1:
            refuse(function, function.sql("spark"), "DISTINCT of one column")
        return list(inner.expressions)
    return [inner]


def _if(condition: exp.Expr, value: exp.Expr) -> exp.Expr:
    return exp.Case(ifs=[exp.If(this=condition.copy(), true=value.copy())])


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
        row, types = function_of(function, len(arguments)), [type_ for _, type_ in arguments]
        for type_ in types if isinstance(function, exp.GroupConcat) else types[:1]:
            if row.accepts is not None and not row.accepts.check(type_):
                refuse(call, f"{type_} in {text}", row.accepts.expected)
        of = 0
        if row.reads == "total":
            of = _place(self.totals, Total(argument=arguments[0][0], type=types[0]))
        elif row.reads == "bag":
            of = self._bag(arguments, len(arguments) if row.complete else 1, function)
        given = parameters_of(function)
        result = Result(function=row.name, of=of, type=row.result(types), text=text, given=given)
        self.results.append(result)
        return result

    def _bag(self, arguments: list[tuple[int, LogicalType]], needed: int, function: exp.Expr) -> int:
        numbers, types = zip(*arguments, strict=True)
        turned = [False] * len(numbers)
        if isinstance(function, exp.GroupConcat):
            order = joined_texts(function).order
            turned[: len(order)] = [descending for _, descending in order]
            needed = 1 if len(numbers) == 1 else 0  # a row counts if its last value is not NULL
        wanted = Bag(arguments=numbers, types=types, needed=needed, descending=tuple(turned))
        return _place(self.bags, wanted)


def _place(known: list[T], wanted: T) -> int:
    if wanted not in known:
        known.append(wanted)
    return known.index(wanted)
