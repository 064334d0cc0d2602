"""Define the functions that queries may call. All others are refused.

Each function must never raise in Spark and must have a known result type. `docs/queries.md` lists the functions, and
a test compares the two lists. Source: Spark SQL's function reference (ANSI mode)."""

from __future__ import annotations

import re

from sqlglot import exp

from cdc.model.types import LogicalType
from joins.query.aggregates import aggregates_in, arguments_of, check_call
from joins.query.expressions import ExpressionCompiler, Function, is_basic
from joins.query.spatial import SPATIAL_FUNCTIONS
from joins.query.typed import Typed, any_of, escaped, refuse
from joins.query.value_types import (
    BOOL,
    DATE,
    DATETIME,
    FLOAT64,
    INT32,
    INT64,
    INTEGERS,
    NULL,
    STRING,
    TIME,
    Family,
    bounded,
    duration_of,
    family,
    spark_type,
    time_of,
)
from joins.query.windows import TimeWindow, window_start

PATTERN = r"(yyyy|MM|dd|HH|mm|ss|[-/:. _])+"  # what date_format supports
_MYSQL = {"%Y": "yyyy", "%m": "MM", "%d": "dd", "%H": "HH", "%i": "mm", "%s": "ss", "%S": "ss", "%T": "HH:mm:ss"}
_ABSOLUTE = 34  # most digits of a decimal for which Spark's abs() is exact; beyond them it may end the query
_UNITS = {"YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND"}


def _argument(compiler: ExpressionCompiler, node: exp.Expr, key: str, wanted: tuple[Family, ...]) -> Typed | None:
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
    if wanted == ("text",) and family(typed.type) not in ("bytes", "geometry"):
        return compiler.cast(typed, STRING)
    refuse(node, f"{typed.type} in {node.sql('spark')}", " or ".join(wanted) + ": write a CAST")


def plain(template: str, result: LogicalType, *arguments: tuple[str, tuple[Family, ...]]) -> Function:
    """Return a function that is NULL only if an argument is NULL.

    `template` is Spark SQL with `{0}`, `{1}`, … for the arguments that are given. `arguments` has the name and the
    allowed type families of each."""

    def compile_(compiler: ExpressionCompiler, node: exp.Expr) -> Typed:
        if extra := [k for k, v in node.args.items() if v and k not in dict(arguments) and k not in _FLAGS]:
            refuse(node, f"{extra[0]} in {node.sql('spark')}", template)
        found = [_argument(compiler, node, key, wanted) for key, wanted in arguments]
        there = [
            _counted(typed) if wanted == _NUMBER else typed
            for typed, (_, wanted) in zip(found, arguments, strict=True)
            if typed is not None
        ]
        sql = f"{template}({', '.join(typed.sql for typed in there)})"
        return Typed(sql=sql, type=result, failed=any_of(*(typed.failed for typed in there)))

    return compile_


def _counted(typed: Typed) -> Typed:
    """Cast a number of characters or bits to INT, so that a larger number cannot end the query in Spark."""
    if typed.type == NULL or typed.type.kind in ("int8", "int16", "int32"):
        return typed
    sql = f"try_cast({typed.sql} AS INT)"
    return Typed(sql=sql, type=INT32, failed=any_of(typed.failed, f"({sql} IS NULL AND {typed.sql} IS NOT NULL)"))


_FLAGS = {"safe", "coerce", "typed", "ansi", "only_json_types", "big_int", "binary", "is_left", "zone", "instance"}
_TEXT: tuple[Family, ...] = ("text",)
_NUMBER: tuple[Family, ...] = ("number",)
_DAY: tuple[Family, ...] = ("date", "moment")


def _texts(name: str) -> Function:
    def compile_(compiler: ExpressionCompiler, node: exp.Expr) -> Typed:
        items = node.expressions if node.expressions else [node.this, node.expression]
        found = []
        for item in items:
            typed = compiler.compile(item)
            if family(typed.type) in ("bytes", "geometry"):
                refuse(node, f"{typed.type} in {node.sql('spark')}", "text")
            found.append(compiler.cast(typed, STRING))
        return Typed(
            sql=f"{name}({', '.join(t.sql for t in found)})", type=STRING, failed=any_of(*(t.failed for t in found))
        )

    return compile_


def _extreme(name: str) -> Function:
    def compile_(compiler: ExpressionCompiler, node: exp.Expr) -> Typed:
        items = [node.this, *node.expressions]
        operands = [compiler.compile(item) for item in items]
        timed = compiler.timed(node, list(zip(items, operands, strict=True)))
        if timed is not None:
            return _extreme_time(name, items, operands, timed)
        type_, found = compiler.unified(node, operands)
        return Typed(
            sql=f"{name}({', '.join(t.sql for t in found)})", type=type_, failed=any_of(*(t.failed for t in found))
        )

    return compile_


def _extreme_time(name: str, items: list[exp.Expr], operands: list[Typed], durations: list[Typed]) -> Typed:
    """Compile GREATEST or LEAST of TIME values, and return the result as canonical TIME text."""
    texts = [
        escaped(time_of(duration_of(item.name) or 0)) if isinstance(item, exp.Literal) else operand.sql
        for item, operand in zip(items, operands, strict=True)
    ]
    found = f"{name}({', '.join(duration.sql for duration in durations)})"
    parts = [f"WHEN {d.sql} = {found} THEN {text}" for text, d in zip(texts, durations, strict=True)]
    return Typed(sql=f"CASE {' '.join(parts)} END", type=TIME, failed=any_of(*(typed.failed for typed in operands)))


def _double(name: str) -> Function:
    """Return a function of real numbers. A result of NaN or infinity becomes NULL and counts as a failure."""

    def compile_(compiler: ExpressionCompiler, node: exp.Expr) -> Typed:
        keys = [key for key in ("this", "expression") if node.args.get(key) is not None]
        found = [typed for key in keys if (typed := _argument(compiler, node, key, _NUMBER)) is not None]
        raw = f"{name}({', '.join(f'CAST({t.sql} AS DOUBLE)' for t in found)})"
        sql = f"CASE WHEN abs({raw}) < CAST('Infinity' AS DOUBLE) AND NOT isnan({raw}) THEN {raw} END"
        there = " AND ".join(f"{t.sql} IS NOT NULL" for t in found)
        failed = any_of(*(t.failed for t in found), f"(({sql}) IS NULL AND {there})")
        return Typed(sql=f"({sql})", type=FLOAT64, failed=failed)

    return compile_


def _nullif(compiler: ExpressionCompiler, node: exp.Expr) -> Typed:
    first = compiler.compile(node.this)
    left, right = compiler.pair(node, node.this, node.expression)
    sql = f"CASE WHEN {left.sql} = {right.sql} THEN NULL ELSE {first.sql} END"
    return Typed(sql=sql, type=first.type, failed=any_of(left.failed, right.failed))


def _number(compiler: ExpressionCompiler, node: exp.Expr) -> Typed:
    typed = _argument(compiler, node, "this", _NUMBER)
    assert typed is not None  # `this` is always there
    return typed if typed.type != NULL else compiler.cast(typed, INT32)


def _absolute(compiler: ExpressionCompiler, node: exp.Expr) -> Typed:
    typed = _number(compiler, node)
    if typed.type.kind not in INTEGERS and not (typed.type.kind == "decimal" and typed.type.precision > _ABSOLUTE):
        return Typed(sql=f"abs({typed.sql})", type=typed.type, failed=typed.failed)
    if typed.type.kind == "decimal":
        sql = f"try_cast(replace(CAST({typed.sql} AS STRING), '-', '') AS {spark_type(typed.type)})"
        return Typed(sql=sql, type=typed.type, failed=typed.failed)
    zero = f"CAST(0 AS {spark_type(typed.type)})"
    sql = f"(CASE WHEN {typed.sql} < 0 THEN try_subtract({zero}, {typed.sql}) ELSE {typed.sql} END)"
    return Typed(sql=sql, type=typed.type, failed=any_of(typed.failed, f"({sql} IS NULL AND {typed.sql} IS NOT NULL)"))


def _round(compiler: ExpressionCompiler, node: exp.Expr) -> Typed:
    typed, digits = _number(compiler, node), node.args.get("decimals")
    if digits is not None and not (isinstance(digits, exp.Literal) and digits.is_int):
        refuse(node, node.sql("spark"), "round(x, 2), digits as a number from 0")
    n = 0 if digits is None else int(digits.name)
    if typed.type.kind in INTEGERS:
        return typed
    result = typed.type
    if result.kind == "decimal":
        scale = min(n, result.scale)
        result = bounded(result.precision - result.scale + 1 + scale, scale)
    sql = f"round({typed.sql}, {n})"
    if result.kind == "decimal":
        sql = f"try_cast({sql} AS {spark_type(result)})"
    return Typed(sql=sql, type=result, failed=typed.failed)


def _whole(name: str) -> Function:
    def compile_(compiler: ExpressionCompiler, node: exp.Expr) -> Typed:
        typed = _number(compiler, node)
        if typed.type.kind in INTEGERS:
            return compiler.cast(typed, INT64)
        if typed.type.kind == "uint64":  # a double would round it
            return typed
        if typed.type.kind != "decimal":
            return Typed(sql=f"CAST({name}({typed.sql}) AS DOUBLE)", type=FLOAT64, failed=typed.failed)
        result = bounded(typed.type.precision - typed.type.scale + 1, 0)
        return Typed(sql=f"try_cast({name}({typed.sql}) AS {spark_type(result)})", type=result, failed=typed.failed)

    return compile_


def _to_date(compiler: ExpressionCompiler, node: exp.Expr) -> Typed:
    return compiler.compile(exp.Cast(this=node.this.copy(), to=exp.DataType.build("date")))


def _days(name: str) -> Function:
    def compile_(compiler: ExpressionCompiler, node: exp.Expr) -> Typed:
        unit = node.args.get("unit")
        if unit is not None and unit.name.upper() not in ("DAY", "DAYS"):
            refuse(node, node.sql("spark"), f"{name}(date, days)")
        day, count = _argument(compiler, node, "this", _DAY), _argument(compiler, node, "expression", _NUMBER)
        assert day is not None  # both are always there
        assert count is not None
        if count.type.kind not in ("int8", "int16", "int32"):
            refuse(node, f"{count.type} days in {node.sql('spark')}", "an INT")
        sql = f"{name}(CAST({day.sql} AS DATE), {count.sql})"
        return Typed(sql=sql, type=DATE, failed=any_of(day.failed, count.failed))

    return compile_


def _truncated(compiler: ExpressionCompiler, node: exp.Expr) -> Typed:
    unit, typed = node.args["unit"].name.upper(), _argument(compiler, node, "this", _DAY)
    if unit not in _UNITS or typed is None:
        refuse(node, node.sql("spark"), "date_trunc('DAY', x), or another of " + ", ".join(sorted(_UNITS)))
    sql = f"CAST(date_trunc('{unit}', {typed.sql}) AS TIMESTAMP_NTZ)"
    return Typed(sql=sql, type=DATETIME, failed=typed.failed)


def _formatted(compiler: ExpressionCompiler, node: exp.Expr) -> Typed:
    typed = _argument(compiler, node, "this", _DAY)
    written = re.search(r"'(.*)'", exp.TimeToStr(this=exp.Null(), format=node.args["format"]).sql("spark"))
    pattern = written[1] if written else ""
    if typed is None or not re.fullmatch(PATTERN, pattern):
        refuse(node, node.sql("spark"), "date_format(x, 'yyyy-MM-dd HH:mm:ss') or parts of that")
    sql = f"date_format(CAST({typed.sql} AS TIMESTAMP_NTZ), {escaped(pattern)})"
    return Typed(sql=sql, type=STRING, failed=typed.failed)


def _json(compiler: ExpressionCompiler, node: exp.Expr) -> Typed:
    typed = _argument(compiler, node, "this", _TEXT)
    path = node.expression.sql("spark").strip("'").replace("\\'", "'")
    if typed is None or not path.startswith("$"):
        refuse(node, node.sql("spark"), "get_json_object(x, '$.a.b')")
    return Typed(sql=f"get_json_object({typed.sql}, {escaped(path)})", type=STRING, failed=typed.failed)


def _trim(compiler: ExpressionCompiler, node: exp.Expr) -> Typed:
    if node.args.get("expression") is not None or node.args.get("collation") is not None:
        refuse(node, node.sql("spark"), "trim(x), ltrim(x) or rtrim(x)")
    name = {"LEADING": "ltrim", "TRAILING": "rtrim"}.get(str(node.args.get("position") or ""), "trim")
    typed = _argument(compiler, node, "this", _TEXT)
    assert typed is not None  # `this` is always there
    return Typed(sql=f"{name}({typed.sql})", type=STRING, failed=typed.failed)


def _logarithm(compiler: ExpressionCompiler, node: exp.Expr) -> Typed:
    if not (isinstance(node.this, exp.Literal) and node.this.name == "10") or node.expression is None:
        refuse(node, node.sql("spark"), "ln(x) or log10(x)")
    return _double("log10")(compiler, exp.Sqrt(this=node.expression.copy()))


def _padded(compiler: ExpressionCompiler, node: exp.Expr) -> Typed:
    length = node.expression
    if not (isinstance(length, exp.Literal) and length.is_int and int(length.name) <= 10_000):
        refuse(node, node.sql("spark"), "lpad(x, 10, '0'), a length as a number up to 10000")
    typed, fill = _argument(compiler, node, "this", _TEXT), _argument(compiler, node, "fill_pattern", _TEXT)
    assert typed is not None  # `this` is always there
    name = "lpad" if node.args.get("is_left") else "rpad"
    filled = f", {fill.sql}" if fill is not None else ""
    failed = any_of(typed.failed, None if fill is None else fill.failed)
    return Typed(sql=f"{name}({typed.sql}, {length.name}{filled})", type=STRING, failed=failed)


FUNCTIONS: dict[type[exp.Expr], Function] = {
    exp.Concat: _texts("concat"),
    exp.DPipe: _texts("concat"),
    exp.ConcatWs: _texts("concat_ws"),
    exp.Upper: plain("upper", STRING, ("this", _TEXT)),
    exp.Lower: plain("lower", STRING, ("this", _TEXT)),
    exp.Reverse: plain("reverse", STRING, ("this", _TEXT)),
    exp.Trim: _trim,
    exp.Length: plain("length", INT32, ("this", _TEXT)),
    exp.Substring: plain("substring", STRING, ("this", _TEXT), ("start", _NUMBER), ("length", _NUMBER)),
    exp.Left: plain("left", STRING, ("this", _TEXT), ("expression", _NUMBER)),
    exp.Right: plain("right", STRING, ("this", _TEXT), ("expression", _NUMBER)),
    exp.Replace: plain("replace", STRING, ("this", _TEXT), ("expression", _TEXT), ("replacement", _TEXT)),
    exp.Pad: _padded,
    exp.StrPosition: plain("instr", INT32, ("this", _TEXT), ("substr", _TEXT)),
    exp.Contains: plain("contains", BOOL, ("this", _TEXT), ("expression", _TEXT)),
    exp.StartsWith: plain("startswith", BOOL, ("this", _TEXT), ("expression", _TEXT)),
    exp.EndsWith: plain("endswith", BOOL, ("this", _TEXT), ("expression", _TEXT)),
    exp.MD5: plain("md5", STRING, ("this", _TEXT)),
    exp.SHA2: plain("sha2", STRING, ("this", _TEXT), ("length", _NUMBER)),
    exp.JSONExtractScalar: _json,
    exp.Abs: _absolute,
    exp.Round: _round,
    exp.Floor: _whole("floor"),
    exp.Ceil: _whole("ceil"),
    exp.Sqrt: _double("sqrt"),
    exp.Exp: _double("exp"),
    exp.Ln: _double("ln"),
    exp.Log: _logarithm,
    exp.Pow: _double("power"),
    exp.Greatest: _extreme("greatest"),
    exp.Least: _extreme("least"),
    exp.Nullif: _nullif,
    exp.Year: plain("year", INT32, ("this", _DAY)),
    exp.Quarter: plain("quarter", INT32, ("this", _DAY)),
    exp.Month: plain("month", INT32, ("this", _DAY)),
    exp.Day: plain("day", INT32, ("this", _DAY)),
    exp.DayOfWeek: plain("dayofweek", INT32, ("this", _DAY)),
    exp.DayOfYear: plain("dayofyear", INT32, ("this", _DAY)),
    exp.Hour: plain("hour", INT32, ("this", ("moment",))),
    exp.Minute: plain("minute", INT32, ("this", ("moment",))),
    exp.Second: plain("second", INT32, ("this", ("moment",))),
    exp.LastDay: plain("last_day", DATE, ("this", _DAY)),
    exp.DateDiff: plain("datediff", INT32, ("this", _DAY), ("expression", _DAY)),
    exp.TsOrDsAdd: _days("date_add"),
    exp.TimestampTrunc: _truncated,
    exp.TimeToStr: _formatted,
    exp.TsOrDsToDate: _to_date,
    TimeWindow: window_start,
    **SPATIAL_FUNCTIONS,
}


def pattern_for(written: str) -> str:
    """Return Spark's pattern for MySQL's DATE_FORMAT pattern `written`, or an example pattern if there is none."""
    found = re.sub("%.", lambda sign: _MYSQL.get(sign[0], sign[0]), written)
    return found if re.fullmatch(PATTERN, found) else "yyyy-MM-dd HH:mm:ss"


def _unscalar(node: exp.Expr) -> None:
    """Raise Unsupported for MySQL's JSON functions that return JSON instead of text: `->`, json_extract,
    json_unquote."""
    if isinstance(node, exp.JSONExtract) and type(node) not in FUNCTIONS:
        value, path = node.this.sql("spark"), node.expression.sql("spark").strip("'")
        arrow = node.args.get("only_json_types") is not None
        written = f"{value} -> '{path}'" if arrow else f"json_extract({value}, '{path}')"
        what = f"{written}, whose texts keep their quotes, is not supported"
        refuse(node, what, f"{value} ->> '{path}', or get_json_object({value}, '{path}')")
    if isinstance(node, exp.Anonymous) and node.name.lower() == "json_unquote":
        refuse(
            node, f"{node.name} is not supported", "x ->> '$.a', or get_json_object(x, '$.a'), which give plain text"
        )


def check_shape(node: exp.Expr, *, aggregates: bool = False) -> None:
    """Raise Unsupported for the first unsupported part of an expression. Checks all that does not need column types.

    With `aggregates`, calls of aggregate functions are allowed."""
    if isinstance(node, exp.Window):
        text = f"{node.sql('spark')} within an expression or a condition"
        refuse(node, text, "ROW_NUMBER() OVER (…) AS n as a column of a query in FROM, and WHERE n <= 10 around it")
    call = next(aggregates_in(node), None)
    if call is node:
        if not aggregates:
            refuse(node, f"{node.sql('spark')} where rows are not grouped yet", "HAVING, or a column of the query")
        check_call(node)
        for argument in arguments_of(node):
            check_shape(argument)
        return
    if isinstance(node, exp.Query | exp.Subquery | exp.Exists):
        refuse(node, "a subquery here is not supported", "FROM (SELECT …) name, or WHERE [NOT] EXISTS, IN (SELECT …)")
    _unscalar(node)
    parts = (exp.Column, exp.Identifier, exp.Paren, exp.DataType, exp.DataTypeParam, exp.Var, exp.Interval)
    inside = (exp.TsOrDsToDate, exp.TimeStrToTime, exp.JSONPath, exp.JSONPathPart)
    if not (supported(node) or isinstance(node, parts + inside)):
        name = node.name if isinstance(node, exp.Anonymous) else node.sql("spark")
        refuse(node, f"{name} is not supported", "one of the functions in docs/queries.md")
    for child in node.iter_expressions():
        check_shape(child, aggregates=aggregates)


def supported(node: exp.Expr) -> bool:
    """Return whether nodes of this kind can be compiled, if their operands have suitable types."""
    return is_basic(node) or type(node) in FUNCTIONS
