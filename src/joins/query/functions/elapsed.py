"""Functions of the time between two moments, and since 1970 (a part of `joins.query.functions.registry`).

They are composed of functions of single parts of a moment, because Spark's own ones depend on the session's time zone,
or do not exist for TIMESTAMP_NTZ."""

from __future__ import annotations

from typing import ClassVar

from sqlglot import exp

from cdc.model.types import LogicalType
from joins.query.expressions import ExpressionCompiler, Function
from joins.query.functions.arguments import DAY, argument
from joins.query.typed import Typed, any_of, refuse
from joins.query.value_types import FLOAT64, INT32, INT64, NULL

_SECOND = 1_000_000
_MICROS = {
    "MICROSECOND": 1, "MILLISECOND": 1000, "SECOND": _SECOND, "MINUTE": 60 * _SECOND, "HOUR": 3600 * _SECOND,
    "DAY": 86_400 * _SECOND, "WEEK": 7 * 86_400 * _SECOND,
}  # fmt: skip
_MONTHS = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}
_MONTH = 31 * 86_400  # seconds of a month, for months_between
_EPOCH = LogicalType(kind="decimal", precision=20, scale=6)
_FORM = "timestampdiff(HOUR, a, b), or another of " + ", ".join([*_MICROS, *_MONTHS])


class Epoch(exp.Expression, exp.Func):
    """The syntax node of `EXTRACT(EPOCH FROM this)`."""

    arg_types: ClassVar = {"this": True}
    _sql_names: ClassVar = ["EPOCH"]


def _moment(compiler: ExpressionCompiler, node: exp.Expr, key: str) -> Typed:
    typed = argument(compiler, node, key, DAY)
    assert typed is not None  # it is always there
    sql = "CAST(NULL AS TIMESTAMP_NTZ)" if typed.type == NULL else f"CAST({typed.sql} AS TIMESTAMP_NTZ)"
    return Typed(sql=sql, type=typed.type, failed=typed.failed)


def _clock(moment: str) -> str:
    return f"(hour({moment}) * 3600 + minute({moment}) * 60 + second({moment}))"


def _seconds(moment: str) -> str:
    """Return SQL for the whole seconds since 1970, as a BIGINT."""
    days = f"datediff(CAST({moment} AS DATE), DATE'1970-01-01')"
    return f"(CAST({days} AS BIGINT) * CAST(86400 AS BIGINT) + CAST({_clock(moment)} AS BIGINT))"


def _fraction(moment: str) -> str:
    """Return SQL for the six digits of a moment's fraction of a second, as a text."""
    return f"rpad(split_part(CAST({moment} AS STRING), '.', 2), 6, '0')"


def _micros(moment: str) -> str:
    fraction = f"CAST(try_cast({_fraction(moment)} AS INT) AS BIGINT)"
    return f"({_seconds(moment)} * CAST({_SECOND} AS BIGINT) + {fraction})"


def _month_number(moment: str) -> str:
    return f"(year({moment}) * 12 + month({moment}))"


def _unix_timestamp(compiler: ExpressionCompiler, node: exp.Expr) -> Typed:
    written = node.args.get("format")
    if written is not None and "%Y-%m" not in written.name:
        refuse(node, node.sql("spark"), "unix_timestamp(to_timestamp(x, 'dd/MM/yyyy')), of a moment")
    typed = _moment(compiler, node, "this")
    sql = f"({_micros(typed.sql)} div CAST({_SECOND} AS BIGINT))"  # towards zero, as in Spark
    return Typed(sql=sql, type=INT64, failed=typed.failed)


def _epoch(compiler: ExpressionCompiler, node: exp.Expr) -> Typed:
    typed = _moment(compiler, node, "this")
    whole = f"CAST({_seconds(typed.sql)} AS DECIMAL(20,6))"
    fraction = f"try_cast(concat('0.', {_fraction(typed.sql)}) AS DECIMAL(20,6))"
    sql = f"try_cast(try_add({whole}, {fraction}) AS {_EPOCH})"
    return Typed(sql=sql, type=_EPOCH, failed=typed.failed)


def whole_units(compiler: ExpressionCompiler, node: exp.Expr) -> Typed:
    """Compile `timestampdiff(unit, a, b)`: the whole units from a (`expression`) to b (`this`), as a BIGINT."""
    unit = node.args["unit"].name.upper().removesuffix("S")
    later, earlier = _moment(compiler, node, "this"), _moment(compiler, node, "expression")
    failed, (a, b) = any_of(earlier.failed, later.failed), (earlier.sql, later.sql)
    if unit in _MICROS:
        sql = f"(({_micros(b)} - {_micros(a)}) div CAST({_MICROS[unit]} AS BIGINT))"
        return Typed(sql=sql, type=INT64, failed=failed)
    if unit not in _MONTHS:
        refuse(node, node.sql("spark"), _FORM)
    months = f"({_month_number(b)} - {_month_number(a)})"
    into = [f"(day({one}) * 86400 + {_clock(one)})" for one in (a, b)]
    same = f"{into[0]} = {into[1]}"
    less, more = (
        f"({into[1]} {sign} {into[0]} OR ({same} AND {_fraction(b)} {sign} {_fraction(a)}))" for sign in ("<", ">")
    )
    whole = f"CASE WHEN {months} > 0 AND {less} THEN {months} - 1 WHEN {months} < 0 AND {more} THEN {months} + 1 "
    sql = f"(CAST({whole}ELSE {months} END AS BIGINT) div CAST({_MONTHS[unit]} AS BIGINT))"
    return Typed(sql=sql, type=INT64, failed=failed)


def _months_between(compiler: ExpressionCompiler, node: exp.Expr) -> Typed:
    """Compile `months_between(a, b)`: whole months if both are the same day of a month, or the last one. Other days
    count as parts of 31 days, rounded to 8 places."""
    if node.args.get("roundoff") is not None:
        refuse(node, node.sql("spark"), "months_between(a, b), rounded to 8 places")
    one, other = _moment(compiler, node, "this"), _moment(compiler, node, "expression")
    a, b = one.sql, other.sql
    months = f"({_month_number(a)} - {_month_number(b)})"
    last = " AND ".join(f"last_day(CAST({x} AS DATE)) = CAST({x} AS DATE)" for x in (a, b))
    seconds = f"((day({a}) - day({b})) * 86400 + {_clock(a)} - {_clock(b)})"
    part = f"try_divide(CAST({seconds} AS DOUBLE), CAST({_MONTH} AS DOUBLE))"
    exact = f"round(try_add(CAST({months} AS DOUBLE), {part}), 8)"
    sql = f"(CASE WHEN day({a}) = day({b}) OR ({last}) THEN CAST({months} AS DOUBLE) ELSE {exact} END)"
    return Typed(sql=sql, type=FLOAT64, failed=any_of(one.failed, other.failed))


def _days_or_units(compiler: ExpressionCompiler, node: exp.Expr) -> Typed:
    """Compile `datediff(b, a)`, days of the calendar, or `datediff(unit, a, b)`, whole units."""
    if node.args.get("unit") is not None:
        return whole_units(compiler, node)
    later, earlier = argument(compiler, node, "this", DAY), argument(compiler, node, "expression", DAY)
    assert later is not None  # both are always there
    assert earlier is not None
    failed = any_of(later.failed, earlier.failed)
    return Typed(sql=f"datediff({later.sql}, {earlier.sql})", type=INT32, failed=failed)


ELAPSED_FUNCTIONS: dict[type[exp.Expr], Function] = {
    exp.StrToUnix: _unix_timestamp,
    Epoch: _epoch,
    exp.TimestampDiff: whole_units,
    exp.DateDiff: _days_or_units,
    exp.MonthsBetween: _months_between,
}
