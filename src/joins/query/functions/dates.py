"""Functions of dates and times that queries may call (a part of `joins.query.functions.registry`)."""

from __future__ import annotations

import re

from sqlglot import exp

from cdc.model.types import LogicalType
from joins.query.expressions import ExpressionCompiler, Function
from joins.query.functions.arguments import DAY, NUMBER, TEXT_ONLY, argument, plain
from joins.query.functions.elapsed import ELAPSED_FUNCTIONS, Epoch
from joins.query.functions.windows import TimeWindow, window_start
from joins.query.typed import Typed, any_of, escaped, refuse
from joins.query.value_types import DATE, DATETIME, INT32, STRING

PATTERN = r"(yyyy|MM|dd|HH|mm|ss|[-/:. _])+"  # what date_format supports
READ_PATTERN = r"(yyyy|MM|dd|HH|mm|ss|S{1,6}|[-/:. _])+"  # what to_date and to_timestamp support
_PIECE = r"y+|M+|d+|H+|m+|s+|S+|[-/:. _]"
_MYSQL = {"%Y": "yyyy", "%m": "MM", "%d": "dd", "%H": "HH", "%i": "mm", "%s": "ss", "%S": "ss", "%T": "HH:mm:ss"}
_POSTGRES = {"YYYY": "yyyy", "DD": "dd", "HH24": "HH", "MI": "mm", "SS": "ss"}
_UNITS = {"YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND"}
_PARTS: dict[str, type[exp.Expr]] = {
    "YEAR": exp.Year, "QUARTER": exp.Quarter, "MONTH": exp.Month, "DAY": exp.Day, "HOUR": exp.Hour,
    "MINUTE": exp.Minute, "DOW": exp.DayOfWeek, "DAYOFWEEK": exp.DayOfWeek, "DOY": exp.DayOfYear,
    "WEEK": exp.WeekOfYear,
}  # fmt: skip
_MOST_MONTHS = 120_000  # ten thousand years: more months than that may overflow


def _to_date(compiler: ExpressionCompiler, node: exp.Expr) -> Typed:
    if node.args.get("format") is not None:
        return _read_as(compiler, node, "DATE", DATE)
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


def _to_moment(compiler: ExpressionCompiler, node: exp.Expr) -> Typed:
    return _read_as(compiler, node, "TIMESTAMP_NTZ", DATETIME)


def _read_as(compiler: ExpressionCompiler, node: exp.Expr, type_: str, result: LogicalType) -> Typed:
    """Compile `to_date(x, 'dd/MM/yyyy')`. Each letter of the pattern is a digit of the text."""
    typed = argument(compiler, node, "this", TEXT_ONLY)
    written = re.search(r"'(.*)'", exp.StrToTime(this=exp.Null(), format=node.args["format"]).sql("spark"))
    pattern, form = written[1] if written else "", "to_date(x, 'yyyyMMdd'), parts of yyyy MM dd HH mm ss SSS"
    pieces = re.findall(_PIECE, pattern)
    fields = [one for one in pieces if one[0].isalpha()]
    known = {one[0] for one in fields}
    if typed is None or not re.fullmatch(READ_PATTERN, pattern) or len(known) < len(fields) or "y" not in known:
        refuse(node, node.sql("spark"), form)
    signs = "".join(f"[0-9]{{{len(one)}}}" if one[0].isalpha() else f"[{one}]" for one in pieces)
    places = {one[0]: pattern.index(one) + 1 for one in fields}
    parts = {one[0]: f"substring({typed.sql}, {places[one[0]]}, {len(one)})" for one in fields}
    day = [parts["y"], parts.get("M", "'01'"), parts.get("d", "'01'")]
    clock = [parts.get(sign, "'00'") for sign in "Hms"]
    fraction = f", '.', {parts['S']}" if "S" in parts else ""
    dated, timed = ", '-', ".join(day), ", ':', ".join(clock)
    text = f"concat({dated}, ' ', {timed}{fraction})"
    value = f"try_cast({text} AS TIMESTAMP_NTZ)"
    value = value if type_ == "TIMESTAMP_NTZ" else f"try_cast({value} AS {type_})"
    fits = f"length({typed.sql}) = {len(pattern)} AND rlike({typed.sql}, {escaped(f'^{signs}$')})"
    sql = f"(CASE WHEN {fits} AND {parts['y']} <> '0000' THEN {value} END)"
    return Typed(sql=sql, type=result, failed=any_of(typed.failed, f"({sql} IS NULL AND {typed.sql} IS NOT NULL)"))


def _extracted(compiler: ExpressionCompiler, node: exp.Expr) -> Typed:
    part = Epoch if node.name.upper() == "EPOCH" else _PARTS.get(node.name.upper())
    if part is None:
        names = ", ".join(_PARTS)
        refuse(node, node.sql("spark"), f"EXTRACT(YEAR FROM x), or {names}; second(x) for whole seconds; EPOCH")
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
    """Return Spark's pattern for `written`, or an example pattern if there is none."""
    return spark_pattern(written) or "yyyy-MM-dd HH:mm:ss"


def spark_pattern(written: str) -> str | None:
    """Return Spark's pattern for one of MySQL's DATE_FORMAT, or of PostgreSQL's to_char. None if there is none."""
    found = re.sub("%.", lambda sign: _MYSQL.get(sign[0], sign[0]), written)
    if "%" not in written:
        found = re.sub("|".join(_POSTGRES), lambda sign: _POSTGRES[sign[0]], written)
    return found if re.fullmatch(PATTERN, found) else None


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
    exp.TsOrDsAdd: _days("date_add"),
    exp.TimestampTrunc: _truncated,
    exp.TimeToStr: _formatted,
    exp.TsOrDsToDate: _to_date,
    exp.StrToTime: _to_moment,
    TimeWindow: window_start,
    **ELAPSED_FUNCTIONS,
    exp.WeekOfYear: plain("weekofyear", INT32, ("this", DAY)),
    exp.AddMonths: _months_later,
    exp.Extract: _extracted,
}
