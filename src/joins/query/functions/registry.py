"""Define the functions that queries may call. All others are refused.

Each function must never raise in Spark and must have a known result type. `docs/queries.md` lists the functions, and
a test compares the two lists. Source: Spark SQL's function reference (ANSI mode)."""

from __future__ import annotations

from sqlglot import exp

from joins.query.aggregates import aggregates_in, arguments_of, check_call
from joins.query.expressions import ExpressionCompiler, Function, is_basic
from joins.query.functions.arguments import NUMBER, TEXT, TEXT_ONLY, argument, plain
from joins.query.functions.dates import DATE_FUNCTIONS
from joins.query.functions.likes import LIKE_FUNCTIONS
from joins.query.functions.moments import TemporalFilter, refuse_now, unplaced
from joins.query.functions.regular import REGULAR_FUNCTIONS
from joins.query.functions.spatial import SPATIAL_FUNCTIONS
from joins.query.functions.texts import TEXT_FUNCTIONS
from joins.query.typed import Typed, any_of, escaped, refuse
from joins.query.value_types import (
    BOOL,
    FLOAT64,
    INT32,
    INT64,
    INTEGERS,
    NULL,
    STRING,
    TIME,
    bounded,
    duration_of,
    family,
    spark_type,
    time_of,
)
from joins.query.windows import call_of, windows_in

_ABSOLUTE = 34  # most digits of a decimal for which Spark's abs() is exact; beyond them it may end the query


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
        found = [typed for key in keys if (typed := argument(compiler, node, key, NUMBER)) is not None]
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
    typed = argument(compiler, node, "this", NUMBER)
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
        if node.args.get("to"):
            refuse(node, node.sql("spark"), "date_trunc('day', at)")
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


def _json(compiler: ExpressionCompiler, node: exp.Expr) -> Typed:
    typed = argument(compiler, node, "this", TEXT_ONLY)
    path = node.expression.sql("spark").strip("'").replace("\\'", "'")
    if typed is None or not path.startswith("$"):
        refuse(node, node.sql("spark"), "get_json_object(x, '$.a.b')")
    typed = compiler.cast(typed, STRING) if typed.type == NULL else typed
    return Typed(sql=f"get_json_object({typed.sql}, {escaped(path)})", type=STRING, failed=typed.failed)


def _trim(compiler: ExpressionCompiler, node: exp.Expr) -> Typed:
    if node.args.get("expression") is not None or node.args.get("collation") is not None:
        refuse(node, node.sql("spark"), "trim(x), ltrim(x) or rtrim(x)")
    name = {"LEADING": "ltrim", "TRAILING": "rtrim"}.get(str(node.args.get("position") or ""), "trim")
    typed = argument(compiler, node, "this", TEXT)
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
    typed, fill = argument(compiler, node, "this", TEXT), argument(compiler, node, "fill_pattern", TEXT)
    assert typed is not None  # `this` is always there
    name = "lpad" if node.args.get("is_left") else "rpad"
    filled = f", {fill.sql}" if fill is not None else ""
    failed = any_of(typed.failed, None if fill is None else fill.failed)
    return Typed(sql=f"{name}({typed.sql}, {length.name}{filled})", type=STRING, failed=failed)


FUNCTIONS: dict[type[exp.Expr], Function] = {
    exp.Concat: _texts("concat"),
    exp.DPipe: _texts("concat"),
    exp.ConcatWs: _texts("concat_ws"),
    exp.Upper: plain("upper", STRING, ("this", TEXT)),
    exp.Lower: plain("lower", STRING, ("this", TEXT)),
    exp.Reverse: plain("reverse", STRING, ("this", TEXT)),
    exp.Trim: _trim,
    exp.Length: plain("length", INT32, ("this", TEXT)),
    exp.Substring: plain("substring", STRING, ("this", TEXT), ("start", NUMBER), ("length", NUMBER)),
    exp.Left: plain("left", STRING, ("this", TEXT), ("expression", NUMBER)),
    exp.Right: plain("right", STRING, ("this", TEXT), ("expression", NUMBER)),
    exp.Replace: plain("replace", STRING, ("this", TEXT), ("expression", TEXT), ("replacement", TEXT)),
    exp.Pad: _padded,
    exp.StrPosition: plain("instr", INT32, ("this", TEXT), ("substr", TEXT)),
    exp.Contains: plain("contains", BOOL, ("this", TEXT), ("expression", TEXT)),
    exp.StartsWith: plain("startswith", BOOL, ("this", TEXT), ("expression", TEXT)),
    exp.EndsWith: plain("endswith", BOOL, ("this", TEXT), ("expression", TEXT)),
    exp.MD5: plain("md5", STRING, ("this", TEXT_ONLY)),
    exp.SHA2: plain("sha2", STRING, ("this", TEXT_ONLY), ("length", NUMBER)),
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
    **DATE_FUNCTIONS,
    **SPATIAL_FUNCTIONS,
    **TEXT_FUNCTIONS,
    **REGULAR_FUNCTIONS,
    **LIKE_FUNCTIONS,
    TemporalFilter: unplaced,
}


# The nearest form for functions that are not supported, by their names here and in sqlglot.
_INSTEAD = {
    "now currenttime sysdate utctimestamp": "now() in a condition: WHERE x >= now() - INTERVAL 5 MINUTE",
    "session_window sessionwindow": "window(x, '30 minutes'), or window(x, '1 hour', '15 minutes')",
    "regexpilike similarto": "RLIKE, LIKE, ILIKE, startswith or contains",
    "regexpextractall regexpcount regexpinstr": "regexp_extract(x, '[0-9]+', 0), regexp_replace or RLIKE",
    "xxhash64 hash murmur_hash3": "md5(x), sha1(x), sha2(x, 256) or crc32(x)",
    "split regexpsplit bracket": "split(x, ',')[0], one part per column; explode(split(x, ',')), one row per part",
    "explode posexplode unnest": "explode(split(x, ',')), once in a SELECT that lists its columns",
    "order ordered": "array_agg(x ORDER BY x), sorted by value; string_agg(x, ',') WITHIN GROUP (ORDER BY y)",
}


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
        if not aggregates:
            expected = "QUALIFY, or the window function AS a column of a query in FROM"
            refuse(node, f"{node.sql('spark')} in a condition", expected)
        for part in call_of(node).parts():
            if within := windows_in(part):
                refuse(within[0], "a window function within another one", "the inner one in a query in FROM")
            check_shape(part, aggregates=True)
        return
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
    refuse_now(node)
    parts = (exp.Column, exp.Identifier, exp.Paren, exp.DataType, exp.DataTypeParam, exp.Var, exp.Interval)
    inside = (exp.TsOrDsToDate, exp.TimeStrToTime, exp.JSONPath, exp.JSONPathPart)
    if not (supported(node) or isinstance(node, parts + inside)):
        name = node.name if isinstance(node, exp.Anonymous) else node.sql("spark")
        key = node.name.lower() if isinstance(node, exp.Anonymous) else node.key
        form = next((form for words, form in _INSTEAD.items() if key in words.split()), "")
        refuse(node, f"{name} is not supported", form or "one of the functions in docs/queries.md")
    for child in node.iter_expressions():
        check_shape(child, aggregates=aggregates)


def supported(node: exp.Expr) -> bool:
    """Return whether nodes of this kind can be compiled, if their operands have suitable types."""
    return is_basic(node) or type(node) in FUNCTIONS
