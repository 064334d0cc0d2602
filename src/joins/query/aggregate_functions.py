"""Register the aggregate functions: one row per function, from which every other place reads what it needs.

To add a function over an existing accumulator, add a row here and its computation twice: to `joins.steps.results` and
to `kernel/groups/Result.java`. A test compares the three. The compiler, the kernel's program, the oracle of `verify`,
`state inspect` and `explain` need no change. Names are stored in plans and decide their fingerprints, so a name never
changes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from sqlglot import exp

from cdc.model.types import LogicalType, list_of
from joins.query.parameters import DiscretePercentile, is_distinct
from joins.query.value_types import FLOAT64, INT64, INTEGERS, MOST_DIGITS, STRING, family

Accumulator = Literal["rows", "total", "bag"]  # the number of rows, or an accumulator: `joins.query.group`
BagExtra = Literal["", "sum", "list", "set"]  # what a bag stores for the function beside its tuples
Types = Sequence[LogicalType]


@dataclass(frozen=True, slots=True)
class ArgumentRule:
    """The types of a function's first argument; `expected` is the remedy for others."""

    check: Callable[[LogicalType], bool]
    expected: str


@dataclass(frozen=True, slots=True)
class DuckDBForm:
    """An expression of DuckDB with the same result, if a condition on the arguments' types holds (`joins.oracle`).

    `{0}`, `{1}` are the arguments, `{all}` their list, `{there}` the condition that none is NULL, `{type}` the result's
    type, `{last}` the last argument, `{order}` the arguments as ORDER BY, `{turned}` 'ASC' or 'DESC' of the
    first one, `{given}` a literal of the call.
    """

    condition: Literal["always", "ordered", "integers", "short decimals"]
    sql: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AggregateFunction:
    """One aggregate function. `shown` is how users write it; `calls` are sqlglot's expressions of it.

    `reads` is the accumulator from which `finish` computes the result, whose type is `result` of the arguments' types.
    `distinct`: it is the form with DISTINCT. `complete`: a row counts only if no argument is NULL, else only the first
    argument matters. `widens`: it adds up FLOAT arguments as DOUBLE. Without `native`, the oracle computes it with the
    code of the specification.
    """

    name: str
    shown: str
    calls: tuple[type[exp.Expr], ...]
    reads: Accumulator
    finish: str
    result: Callable[[Types], LogicalType]
    keeps: BagExtra = ""
    distinct: bool = False
    complete: bool = False
    widens: bool = False
    accepts: ArgumentRule | None = None
    native: tuple[DuckDBForm, ...] = ()

    @property
    def whole(self) -> bool:
        """Return whether each result reads all values of the bag, and not only its ends or what is stored beside."""
        return self.reads == "bag" and self.finish not in (*_ENDS, *_TALLIES)


_ENDS = ("first", "last")  # values at the ends of a bag, which it stores apart
_TALLIES = ("distinct", "sum of distinct", "average of distinct")


def sum_type(type_: LogicalType) -> LogicalType:
    """Return the type of a sum, as in Spark: bigint of integers, double of floats, a decimal with ten more digits (at
    most 38) of decimals.

    Decimals wider than Spark's gain ten digits, too, so that sums fit."""
    if type_.kind in INTEGERS:
        return INT64
    if type_.kind.startswith("float"):
        return FLOAT64
    precision, scale = _digits(type_)
    most = MOST_DIGITS if precision <= MOST_DIGITS else precision + 10
    return LogicalType(kind="decimal", precision=min(precision + 10, most), scale=scale)


def average_type(type_: LogicalType) -> LogicalType:
    """Return the type of an average, as in Spark. Decimals wider than Spark's gain four decimal places, too."""
    if type_.kind in INTEGERS or type_.kind.startswith("float"):
        return FLOAT64
    precision, scale = _digits(type_)
    most = MOST_DIGITS if precision <= MOST_DIGITS else precision + 4
    return LogicalType(kind="decimal", precision=min(precision + 4, most), scale=min(scale + 4, most))


def _digits(type_: LogicalType) -> tuple[int, int]:
    return (type_.precision, type_.scale) if type_.kind == "decimal" else (20, 0)


def _whole(_: Types) -> LogicalType:
    return INT64


def _last(types: Types) -> LogicalType:
    return types[-1]


def _sum(types: Types) -> LogicalType:
    return sum_type(types[0])


def _average(types: Types) -> LogicalType:
    return average_type(types[0])


def _double(_: Types) -> LogicalType:
    return FLOAT64


def _text(_: Types) -> LogicalType:
    return STRING


def _list(types: Types) -> LogicalType:
    return list_of(types[0])


_NUMBER = ArgumentRule(lambda type_: family(type_) == "number", "a number: write a CAST")
_CONDITION = ArgumentRule(lambda type_: type_.kind == "bool", "a condition")
_ORDERED = ArgumentRule(
    lambda type_: family(type_) not in ("geometry", "list"), "numbers or text: ST_X(p), ST_Y(p), ST_AsText(g)"
)
_BY = "(list({{1}} ORDER BY {{0}} {0}, {{1}} {1}) FILTER (WHERE {{0}} IS NOT NULL))[1]"
_LONGEST = 1_000_000  # bytes of a text as JSON, as `joins.steps.results`
_JOINED = f"(CASE WHEN strlen(to_json({{0}})::VARCHAR) <= {_LONGEST} THEN {{0}} END)"
# DuckDB's DISTINCT needs the order of the texts themselves. `_each` is no name of a column
_ONCE = (
    "array_to_string([_each.b FOR _each IN list_sort(list(DISTINCT {{'a': {0}, 'b': {last}}}) "
    "FILTER (WHERE {last} IS NOT NULL), {turned})], {given})"
)
_EACH = "count(DISTINCT ({all})) FILTER (WHERE {there})"

FUNCTIONS: tuple[AggregateFunction, ...] = (
    AggregateFunction(
        name="count_rows", shown="count(*)", calls=(exp.Count,), reads="rows", finish="rows", result=_whole,
        native=(DuckDBForm("always", "count(*)"),),
    ),
    AggregateFunction(
        name="count", shown="count", calls=(exp.Count, exp.CountIf), reads="total", finish="count", result=_whole,
        native=(DuckDBForm("always", "count({0})"),),
    ),
    AggregateFunction(
        name="sum", shown="sum", calls=(exp.Sum,), reads="total", finish="sum", result=_sum, accepts=_NUMBER,
        widens=True,
        native=(
            DuckDBForm("integers", "TRY_CAST(sum({0}) AS BIGINT)"),
            DuckDBForm("short decimals", "CAST(sum({0}) AS {type})"),
        ),
    ),
    AggregateFunction(
        name="avg", shown="avg", calls=(exp.Avg,), reads="total", finish="average", result=_average, accepts=_NUMBER,
        widens=True,
    ),
    AggregateFunction(
        name="count_distinct", shown="count(DISTINCT x)", calls=(exp.Count,), reads="bag", finish="distinct",
        result=_whole, distinct=True, complete=True, native=(DuckDBForm("ordered", _EACH),),
    ),
    AggregateFunction(
        name="sum_distinct", shown="sum(DISTINCT x)", calls=(exp.Sum,), reads="bag", finish="sum of distinct",
        result=_sum, keeps="sum", distinct=True, accepts=_NUMBER, widens=True,
        native=(DuckDBForm("integers", "TRY_CAST(sum(DISTINCT {0}) AS BIGINT)"),),
    ),
    AggregateFunction(
        name="avg_distinct", shown="avg(DISTINCT x)", calls=(exp.Avg,), reads="bag", finish="average of distinct",
        result=_average, keeps="sum", distinct=True, accepts=_NUMBER, widens=True,
    ),
    AggregateFunction(
        name="min", shown="min", calls=(exp.Min,), reads="bag", finish="first", result=_last, accepts=_ORDERED,
        native=(DuckDBForm("ordered", "min({0})"),),
    ),
    AggregateFunction(
        name="max", shown="max", calls=(exp.Max,), reads="bag", finish="last", result=_last, accepts=_ORDERED,
        native=(DuckDBForm("ordered", "max({0})"),),
    ),
    AggregateFunction(
        name="min_by", shown="min_by", calls=(exp.ArgMin,), reads="bag", finish="first", result=_last,
        native=(DuckDBForm("ordered", _BY.format("NULLS FIRST", "NULLS FIRST")),),
    ),
    AggregateFunction(
        name="max_by", shown="max_by", calls=(exp.ArgMax,), reads="bag", finish="last", result=_last,
        native=(DuckDBForm("ordered", _BY.format("DESC NULLS LAST", "DESC NULLS LAST")),),
    ),
    # a condition is false or true, in this order
    AggregateFunction(
        name="min", shown="bool_and", calls=(exp.LogicalAnd,), reads="bag", finish="first", result=_last,
        accepts=_CONDITION, native=(DuckDBForm("ordered", "min({0})"),),
    ),
    AggregateFunction(
        name="max", shown="bool_or", calls=(exp.LogicalOr,), reads="bag", finish="last", result=_last,
        accepts=_CONDITION, native=(DuckDBForm("ordered", "max({0})"),),
    ),
    AggregateFunction(
        name="collect_list", shown="collect_list", calls=(exp.ArrayAgg,), reads="bag", finish="list", result=_list,
        keeps="list", accepts=_ORDERED,
    ),
    AggregateFunction(
        name="collect_set", shown="collect_set", calls=(exp.ArrayUniqueAgg,), reads="bag", finish="set", result=_list,
        keeps="set", accepts=_ORDERED,
    ),
    AggregateFunction(
        name="mode", shown="mode", calls=(exp.Mode,), reads="bag", finish="most frequent", result=_last,
        accepts=_ORDERED, native=(DuckDBForm("ordered", "mode({0} ORDER BY {0})"),),
    ),
    AggregateFunction(
        name="string_agg", shown="string_agg", calls=(exp.GroupConcat,), reads="bag", finish="joined", result=_text,
        accepts=_ORDERED,
        native=(DuckDBForm("ordered", _JOINED.format("string_agg({last}, {given} ORDER BY {order})")),),
    ),
    AggregateFunction(
        name="string_agg_distinct", shown="string_agg(DISTINCT x)", calls=(exp.GroupConcat,), reads="bag",
        finish="joined once", result=_text, distinct=True, accepts=_ORDERED,
        native=(DuckDBForm("ordered", _JOINED.format(_ONCE)),),
    ),
    # before `percentile`, whose class is the base of this one
    AggregateFunction(
        name="percentile_approx", shown="percentile_approx", calls=(exp.ApproxQuantile,), reads="bag",
        finish="value at a share", result=_last, accepts=_ORDERED,
    ),
    AggregateFunction(
        name="percentile_disc", shown="percentile_disc", calls=(DiscretePercentile,), reads="bag",
        finish="number at a share", result=_double, accepts=_NUMBER, widens=True,
    ),
    AggregateFunction(
        name="percentile", shown="percentile", calls=(exp.Quantile,), reads="bag", finish="percentile", result=_double,
        accepts=_NUMBER, widens=True,
    ),
    AggregateFunction(
        name="median", shown="median", calls=(exp.Median,), reads="bag", finish="median", result=_double,
        accepts=_NUMBER, widens=True,
    ),
    *(
        AggregateFunction(
            name=name, shown=shown, calls=calls, reads="bag", finish=finish, result=_double, accepts=_NUMBER,
            widens=True,
        )
        for name, shown, calls, finish in (
            ("stddev_samp", "stddev", (exp.Stddev, exp.StddevSamp), "deviation of a sample"),
            ("stddev_pop", "stddev_pop", (exp.StddevPop,), "deviation"),
            ("var_samp", "variance", (exp.Variance,), "variance of a sample"),
            ("var_pop", "var_pop", (exp.VariancePop,), "variance"),
        )
    ),
)  # fmt: skip
# By the name in a plan. Functions of one name differ only in the types that they accept.
BY_NAME = {function.name: function for function in FUNCTIONS}
CALLS = tuple({call: None for function in FUNCTIONS for call in function.calls})


def function_of(call: exp.Expr, arguments: int) -> AggregateFunction:
    """Return the row of a call with a number of arguments. KeyError if there is none: `CALLS` lists the known ones."""
    distinct = is_distinct(call)
    for function in FUNCTIONS:
        rows = function.reads == "rows"
        if isinstance(call, function.calls) and function.distinct == distinct and rows == (arguments == 0):
            return function
    raise KeyError(call.sql("spark"))
