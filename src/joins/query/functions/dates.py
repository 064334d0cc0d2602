"""Functions of dates and times that queries may call (a part of `joins.query.functions.registry`)."""

from __future__ import annotations

import re

from sqlglot import exp

from joins.query.expressions import ExpressionCompiler, Function
from joins.query.functions.arguments import DAY, NUMBER, argument, plain
from joins.query.functions.windows import TimeWindow, window_start
from joins.query.typed import Typed, any_of, escaped, refuse
from joins.query.value_types import DATE, DATETIME, INT32, STRING

PATTERN = r"(yyyy|MM|dd|HH|mm|ss|[-/:. _])+"  # what date_format supports
_MYSQL = {"%Y": "yyyy", "%m": "MM", "%d": "dd", "%H": "HH", "%i": "mm", "%s": "ss", "%S": "ss", "%T": "HH:mm:ss"}
_UNITS = {"YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND"}
_PARTS: dict[str, type[exp.Expr]] = {
    "YEAR": exp.Year, "QUARTER": exp.Quarter, "MONTH": exp.Month, "DAY": exp.Day, "HOUR": exp.Hour,
    "MINUTE": exp.Minute, "DOW": exp.DayOfWeek, "DAYOFWEEK": exp.DayOfWeek, "DOY": exp.DayOfYear,
    "WEEK": exp.WeekOfYear,
}  # fmt: skip
_MOST_MONTHS = 120_000  # ten thousand years: more months than that may overflow


def _to_date(compiler: ExpressionCompiler, node: exp.Expr) -> Typed:
    return compiler.compile(exp.Cast(this=node.this.copy(), to=exp.DataType.build("date")))


def _day_and_count(compiler: ExpressionCompiler, node: exp.Expr, unit: str) -> tuple[Typed, Typed]:
    """Compile the arguments of a function that adds a number of days or months (`unit`) to a date."""
    day, count = argument(compiler, node, "this", DAY), argument(compiler, node, "expression", NUMBER)
    assert day is not None  # both are always there
    assert count is not None
    if count.type.kind not in ("int8", "int16", "int32"):
        refuse(node, f"{count.type} {unit} in {node.sql('spark')}", "an INT")
    return day, count


def _days(name: str) -> Function:
    def compile_(compiler: ExpressionCompiler, node: exp.Expr) -> Typed:
        unit = node.args.get("unit")
        if unit is not None and unit.name.upper() not in ("DAY", "DAYS"):
            refuse(node, node.sql("spark"), f"{name}(date, days)")
        day, count = _day_and_count(compiler, node, "days")
        sql = f"{name}(CAST({day.sql} AS DATE), {count.sql})"
        return Typed(sql=sql, type=DATE, failed=any_of(day.failed, count.failed))

    return compile_


def _truncated(compiler: ExpressionCompiler, node: exp.Expr) -> Typed:
    unit, typed = node.args["unit"].name.upper(), argument(compiler, node, "this", DAY)
    if unit not in _UNITS or typed is None:
        refuse(node, node.sql("spark"), "date_trunc('DAY', x), or another of " + ", ".join(sorted(_UNITS)))
    sql = f"CAST(date_trunc('{unit}', {typed.sql}) AS TIMESTAMP_NTZ)"
    return Typed(sql=sql, type=DATETIME, failed=typed.failed)


def _formatted(compiler: ExpressionCompiler, node: exp.Expr) -> Typed:
    typed = argument(compiler, node, "this", DAY)
    written = re.search(r"'(.*)'", exp.TimeToStr(this=exp.Null(), format=node.args["format"]).sql("spark"))
    pattern = written[1] if written else ""
    if typed is None or not re.fullmatch(PATTERN, pattern):
        refuse(node, node.sql("spark"), "date_format(x, 'yyyy-MM-dd HH:mm:ss') or parts of that")
    sql = f"date_format(CAST({typed.sql} AS TIMESTAMP_NTZ), {escaped(pattern)})"
    return Typed(sql=sql, type=STRING, failed=typed.failed)


def _extracted(compiler: ExpressionCompiler, node: exp.Expr) -> Typed:
    part = _PARTS.get(node.name.upper())
    if part is None:
        names = ", ".join(_PARTS)
        refuse(node, node.sql("spark"), f"EXTRACT(YEAR FROM x), or {names}; second(x) for whole seconds")
    return DATE_FUNCTIONS[part](compiler, part(this=node.expression.copy()))


def _months_later(compiler: ExpressionCompiler, node: exp.Expr) -> Typed:
    day, count = _day_and_count(compiler, node, "months")
    since = f"CAST({day.sql} AS DATE)"
    near = f"{since} >= DATE'0001-01-01' AND {since} <= DATE'9999-12-31'"
    few = f"{count.sql} >= {-_MOST_MONTHS} AND {count.sql} <= {_MOST_MONTHS}"
    sql = f"CASE WHEN {few} AND {near} THEN add_months({since}, {count.sql}) END"
    failure = f"({sql} IS NULL AND {day.sql} IS NOT NULL AND {count.sql} IS NOT NULL)"
    return Typed(sql=f"({sql})", type=DATE, failed=any_of(day.failed, count.failed, failure))


def pattern_for(written: str) -> str:
    """Return Spark's pattern for MySQL's DATE_FORMAT pattern `written`, or an example pattern if there is none."""
    found = re.sub("%.", lambda sign: _MYSQL.get(sign[0], sign[0]), written)
    return found if re.fullmatch(PATTERN, found) else "yyyy-MM-dd HH:mm:ss"


DATE_FUNCTIONS: dict[type[exp.Expr], Function] = {
    exp.Year: plain("year", INT32, ("this", DAY)),
    exp.Quarter: plain("quarter", INT32, ("this", DAY)),
    exp.Month: plain("month", INT32, ("this", DAY)),
    exp.Day: plain("day", INT32, ("this", DAY)),
    exp.DayOfWeek: plain("dayofweek", INT32, ("this", DAY)),
    exp.DayOfYear: plain("dayofyear", INT32, ("this", DAY)),
    exp.Hour: plain("hour", INT32, ("this", ("moment",))),
    exp.Minute: plain("minute", INT32, ("this", ("moment",))),
    exp.Second: plain("second", INT32, ("this", ("moment",))),
    exp.LastDay: plain("last_day", DATE, ("this", DAY)),
    exp.DateDiff: plain("datediff", INT32, ("this", DAY), ("expression", DAY)),
    exp.TsOrDsAdd: _days("date_add"),
    exp.TimestampTrunc: _truncated,
    exp.TimeToStr: _formatted,
    exp.TsOrDsToDate: _to_date,
    TimeWindow: window_start,
    exp.WeekOfYear: plain("weekofyear", INT32, ("this", DAY)),
    exp.AddMonths: _months_later,
    exp.Extract: _extracted,
}
