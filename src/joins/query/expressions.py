"""Compile SQL expressions of a query to Spark SQL that never raises, and determine their types.

Spark 4 follows ANSI SQL: one overflow or invalid cast would end the streaming query. So everything that may fail
compiles to its `try_` form, which returns NULL. `Typed.failed` is a second expression that is true exactly if the
NULL means a failure. Rows where it is true are counted and become dead letters. For example, `a / b` compiles to
`try_divide(a, b)`.

Text is never converted implicitly to a number or date, because only an explicit CAST can report a failure. The
allowed functions are listed in `joins.query.functions.registry`. Others raise Unsupported."""

from __future__ import annotations

import decimal
import math
from collections.abc import Callable, Mapping, Sequence

from sqlglot import exp

from cdc.model.types import LogicalType
from joins.query.casts import cast, moment
from joins.query.intervals import FORM, days_later, moved
from joins.query.typed import Resolve, Typed, any_of, escaped, guarded, refuse
from joins.query.value_types import (
    BOOL,
    FLOAT64,
    INT64,
    INTEGERS,
    NULL,
    STRING,
    TIME,
    arithmetic,
    common,
    comparable,
    duration_of,
    duration_sql,
    family,
    literal_type,
    spark_type,
)

Function = Callable[["ExpressionCompiler", exp.Expr], Typed]
_COMPARISONS: dict[type[exp.Expr], str] = {
    exp.EQ: "=", exp.NEQ: "<>", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">=", exp.NullSafeEQ: "<=>",
}  # fmt: skip
_EQUALITIES = (exp.EQ, exp.NEQ, exp.NullSafeEQ)
_ARITHMETIC: dict[type[exp.Expr], str] = {
    exp.Add: "try_add", exp.Sub: "try_subtract", exp.Mul: "try_multiply", exp.Div: "try_divide", exp.Mod: "try_mod",
    exp.SafeAdd: "try_add", exp.SafeSubtract: "try_subtract", exp.SafeMultiply: "try_multiply",
    exp.SafeDivide: "try_divide",
}  # fmt: skip
_EXACT = {*INTEGERS, "uint64", "decimal"}
_NEGATED = 34  # most digits of a decimal whose negative Spark does not round; beyond them it may end the query
_TRIES = (exp.SafeAdd, exp.SafeSubtract, exp.SafeMultiply, exp.SafeDivide)  # for these, NULL is no failure


class ExpressionCompiler:
    """Compiles the expressions of one query. `functions` is usually `FUNCTIONS` of `joins.query.functions.registry`.

    `resolve` turns a column into a typed expression. It raises Unsupported for an unknown column."""

    def __init__(self, resolve: Resolve, functions: Mapping[type[exp.Expr], Function]) -> None:
        self.resolve, self.functions = resolve, functions

    def compile(self, node: exp.Expr) -> Typed:
        """Compile an expression. Raises Unsupported if a part of it is not supported."""
        kind = type(node)
        if is_basic(node):
            _refuse_ignored(node)
        if isinstance(node, exp.Paren):
            return self.compile(node.this)
        if isinstance(node, exp.Column):
            return self.resolve(node)
        if kind in _COMPARISONS:
            return self._comparison(node)
        if kind in _ARITHMETIC:
            return self._arithmetic(node)
        handler = _HANDLERS.get(kind)
        if handler is not None:
            return handler(self, node)
        function = self.functions.get(kind)
        if function is not None:
            return function(self, node)
        name = node.sql_name() if isinstance(node, exp.Func) and not isinstance(node, exp.Anonymous) else node.name
        refuse(node, f"{name or kind.__name__} is not supported", "one of the functions in docs/queries.md")

    def condition(self, node: exp.Expr) -> Typed:
        """Compile an expression that must be boolean. Raises Unsupported otherwise."""
        typed = self.compile(node)
        if typed.type not in (BOOL, NULL):
            refuse(node, f"{node.sql('spark')} is a {typed.type}", "a condition")
        return typed

    def cast(self, typed: Typed, to: LogicalType) -> Typed:
        """Convert a compiled value to type `to`, which must be wider, so that the conversion cannot fail."""
        if typed.type == to:
            return typed
        return Typed(sql=f"CAST({typed.sql} AS {spark_type(to)})", type=to, failed=typed.failed)

    def unified(self, node: exp.Expr, operands: Sequence[Typed]) -> tuple[LogicalType, list[Typed]]:
        """Return the common type of compiled operands, and the operands converted to it.

        Raises Unsupported, with the position of `node`, if there is no common type."""
        wanted = NULL
        for typed in operands:
            found = common(wanted, typed.type)
            if found is None:
                refuse(node, f"{wanted} and {typed.type} in {node.sql('spark')}", "values of one type: write a CAST")
            wanted = found
        return wanted, [self.cast(typed, wanted) for typed in operands]

    def _comparison(self, node: exp.Expr) -> Typed:
        left, right = self.pair(node, node.this, node.expression)
        if "geometry" in (family(left.type), family(right.type)) and not isinstance(node, _EQUALITIES):
            refuse(node, f"{left.type} in {node.sql('spark')}", "numbers: ST_X(p), ST_Y(p)")
        sql = f"({left.sql} {_COMPARISONS[type(node)]} {right.sql})"
        return Typed(sql=sql, type=BOOL, failed=any_of(left.failed, right.failed))

    def pair(self, node: exp.Expr, first: exp.Expr, second: exp.Expr) -> tuple[Typed, Typed]:
        """Compile both operands of a comparison. A text literal next to a date or time becomes a date or time."""
        left, right = self.compile(first), self.compile(second)
        if (timed := self.timed(node, [(first, left), (second, right)])) is not None:
            return timed[0], timed[1]
        left, right = self.dated(first, left, right.type), self.dated(second, right, left.type)
        if common(left.type, right.type) is None and {left.type.kind, right.type.kind} <= _EXACT:
            left, right = (self.cast(one, comparable(left.type, right.type)) for one in (left, right))
        _, (left, right) = self.unified(node, [left, right])
        return left, right

    def dated(self, node: exp.Expr, typed: Typed, other: LogicalType) -> Typed:
        """Convert a text literal such as '2026-01-31' to the date or time type of the `other` operand.

        Other expressions are returned unchanged."""
        if not (isinstance(node, exp.Literal) and node.is_string) or family(other) not in ("date", "moment"):
            return typed
        return moment(node, node.this, day=family(other) == "date")

    def timed(self, node: exp.Expr, operands: Sequence[tuple[exp.Expr, Typed]]) -> list[Typed] | None:
        """Convert the operands of a comparison to microseconds if one of them is a TIME. Otherwise return None."""
        if not any(typed.type == TIME for _, typed in operands):
            return None
        return [self._duration(node, operand, typed) for operand, typed in operands]

    def _duration(self, node: exp.Expr, operand: exp.Expr, typed: Typed) -> Typed:
        if typed.type == NULL:
            return typed
        if typed.type == TIME:
            return Typed(sql=duration_sql(typed.sql), type=INT64, failed=typed.failed)
        if not (isinstance(operand, exp.Literal) and operand.is_string):
            refuse(node, f"time and {typed.type} in {node.sql('spark')}", "two times, or a text such as '12:30:00'")
        if (duration := duration_of(operand.name)) is None:
            refuse(node, f"'{operand.name}' is no time", "'12:30:00', hours from -838 to 838")
        return Typed(sql=f"CAST({duration} AS BIGINT)", type=INT64)

    def _arithmetic(self, node: exp.Expr) -> Typed:
        if (later := moved(node, self.compile)) is not None:
            return later
        left, right = self.compile(node.this), self.compile(node.expression)
        if (later := days_later(node, left, right)) is not None:
            return later
        name = _ARITHMETIC[type(node)]
        a, b = _alongside(node.this, left.type, right.type), _alongside(node.expression, right.type, left.type)
        result = arithmetic(name, a, b)
        if result is None:
            shown = f"{left.type} and {right.type} in {node.sql('spark')}"
            refuse(node, shown, "numbers; d + 7, d + INTERVAL 7 DAY and datediff(a, b) count days")
        sql = f"{name}({left.sql}, {right.sql})"
        if result.kind in ("decimal", "uint64"):
            sql = f"try_cast({sql} AS {spark_type(result)})"
        failure = f"({sql} IS NULL AND {left.sql} IS NOT NULL AND {right.sql} IS NOT NULL)"
        failures = [left.failed, right.failed, None if isinstance(node, _TRIES) else failure]
        return Typed(sql=sql, type=result, failed=any_of(*failures))


def _alongside(node: exp.Expr, type_: LogicalType, other: LogicalType) -> LogicalType:
    """Return the type of an operand next to one of type `other`.

    An integer literal next to a decimal counts only the digits that are written, as in Spark."""
    literal = node.unnest()
    literal = literal.this if isinstance(literal, exp.Neg) else literal
    plain = isinstance(literal, exp.Literal) and not literal.is_string
    if plain and type_.kind in INTEGERS and other.kind in ("decimal", "uint64"):
        return LogicalType(kind="decimal", precision=len(str(int(literal.name))))
    return type_


def _literal(compiler: ExpressionCompiler, node: exp.Expr) -> Typed:
    if node.is_string:
        return Typed(sql=escaped(node.name), type=STRING)
    if "e" in node.name.lower():
        if math.isinf(double := float(node.name)):
            refuse(node, f"number {node.name}", "a number that a double can hold, at most 1.797e308")
        return Typed(sql=f"CAST({double!r} AS DOUBLE)", type=FLOAT64)
    try:
        number = decimal.Decimal(node.name)
    except decimal.InvalidOperation:
        refuse(node, f"number {node.name}", "digits, such as 12 or 1.50")
    type_ = literal_type(number)
    if type_ is None:
        refuse(node, f"number {node.name}", "at most 38 digits")
    return Typed(sql=f"{number:f}" if type_.kind in INTEGERS else f"CAST('{number:f}' AS {type_})", type=type_)


def _null(compiler: ExpressionCompiler, node: exp.Expr) -> Typed:
    return Typed(sql="NULL", type=NULL)


def _boolean(compiler: ExpressionCompiler, node: exp.Expr) -> Typed:
    return Typed(sql="TRUE" if node.this else "FALSE", type=BOOL)


def _not(compiler: ExpressionCompiler, node: exp.Expr) -> Typed:
    inner = compiler.condition(node.this)
    return Typed(sql=f"(NOT {inner.sql})", type=BOOL, failed=inner.failed)


def _connector(compiler: ExpressionCompiler, node: exp.Expr) -> Typed:
    left, right = compiler.condition(node.this), compiler.condition(node.expression)
    word, decided = ("AND", "FALSE") if isinstance(node, exp.And) else ("OR", "TRUE")
    failed = any_of(left.failed, guarded(f"NOT ({left.sql} <=> {decided})", right.failed))
    return Typed(sql=f"({left.sql} {word} {right.sql})", type=BOOL, failed=failed)


def _is(compiler: ExpressionCompiler, node: exp.Expr) -> Typed:
    inner = compiler.compile(node.this)
    if isinstance(node.expression, exp.Boolean):
        word = "TRUE" if node.expression.this else "FALSE"
        if inner.type != BOOL:
            refuse(node, f"{node.sql('spark')}: not a condition", "IS NULL, or a condition IS TRUE")
        return Typed(sql=f"({inner.sql} <=> {word})", type=BOOL, failed=inner.failed)
    if not isinstance(node.expression, exp.Null):
        refuse(node, node.sql("spark"), "IS NULL, IS TRUE or IS FALSE")
    return Typed(sql=f"({inner.sql} IS NULL)", type=BOOL, failed=inner.failed)


def _in(compiler: ExpressionCompiler, node: exp.Expr) -> Typed:
    items = node.expressions
    if not items:
        refuse(node, node.sql("spark"), "IN (a, b, c), a list of values")
    inner = compiler.compile(node.this)
    found = [compiler.dated(item, compiler.compile(item), inner.type) for item in items]
    timed = compiler.timed(node, list(zip([node.this, *items], [inner, *found], strict=True)))
    first, *others = compiler.unified(node, [inner, *found])[1] if timed is None else timed
    sql = f"({first.sql} IN ({', '.join(typed.sql for typed in others)}))"
    return Typed(sql=sql, type=BOOL, failed=any_of(first.failed, *(typed.failed for typed in others)))


def _between(compiler: ExpressionCompiler, node: exp.Expr) -> Typed:
    low = exp.GTE(this=node.this, expression=node.args["low"])
    high = exp.LTE(this=node.this.copy(), expression=node.args["high"])
    return compiler.compile(exp.And(this=low, expression=high))


def _like(compiler: ExpressionCompiler, node: exp.Expr) -> Typed:
    inner, pattern = compiler.compile(node.this), node.expression
    if not (isinstance(pattern, exp.Literal) and pattern.is_string) or "\\" in pattern.name:
        refuse(node, node.sql("spark"), "LIKE 'a%', a literal without backslashes")
    if family(inner.type) != "text":
        refuse(node, f"{inner.type} in {node.sql('spark')}", "text LIKE 'a%'")
    if isinstance(node, exp.ILike):
        sql = f"(lower({inner.sql}) LIKE lower({escaped(pattern.name)}))"
        return Typed(sql=sql, type=BOOL, failed=inner.failed)
    return Typed(sql=f"({inner.sql} LIKE {escaped(pattern.name)})", type=BOOL, failed=inner.failed)


def _negative(compiler: ExpressionCompiler, node: exp.Expr) -> Typed:
    inner = compiler.compile(node.this)
    if isinstance(node.this, exp.Literal) and not node.this.is_string:
        return Typed(sql=f"(-{inner.sql})", type=inner.type)
    match inner.type.kind:
        case "decimal" if inner.type.precision > _NEGATED:
            text = f"CAST({inner.sql} AS STRING)"
            turned = f"CASE WHEN startswith({text}, '-') THEN substring({text}, 2) ELSE concat('-', {text}) END"
            sql = f"try_cast({turned} AS {spark_type(inner.type)})"
            return Typed(sql=sql, type=inner.type, failed=inner.failed)
        case "decimal" | "uint64" | "float32" if inner.type != NULL:  # these have a negative of the same type
            type_ = LogicalType(kind="decimal", precision=20) if inner.type.kind == "uint64" else inner.type
            return Typed(sql=f"(-{inner.sql})", type=type_, failed=inner.failed)
        case "int8" | "int16":  # 0 is an INT
            sql = f"try_subtract(CAST(0 AS {spark_type(inner.type)}), {inner.sql})"
            failure = f"({sql} IS NULL AND {inner.sql} IS NOT NULL)"
            return Typed(sql=sql, type=inner.type, failed=any_of(inner.failed, failure))
    return compiler.compile(exp.Sub(this=exp.Literal.number(0), expression=node.this))


def _case(compiler: ExpressionCompiler, node: exp.Expr) -> Typed:
    branches = [(branch.this, branch.args["true"]) for branch in node.args["ifs"]]
    if node.this is not None:
        branches = [(exp.EQ(this=node.this.copy(), expression=value.copy()), then) for value, then in branches]
    return _cases(compiler, node, branches, node.args.get("default"))


def _if(compiler: ExpressionCompiler, node: exp.Expr) -> Typed:
    return _cases(compiler, node, [(node.this, node.args["true"])], node.args.get("false"))


def _cases(
    compiler: ExpressionCompiler, node: exp.Expr, branches: list[tuple[exp.Expr, exp.Expr]], default: exp.Expr | None
) -> Typed:
    conditions = [compiler.condition(condition) for condition, _ in branches]
    values = [compiler.compile(then) for _, then in branches]
    otherwise = Typed(sql="NULL", type=NULL) if default is None else compiler.compile(default)
    type_, (*values, otherwise) = compiler.unified(node, [*values, otherwise])
    parts, failures, earlier = [], [], "TRUE"
    for condition, value in zip(conditions, values, strict=True):
        parts.append(f"WHEN {condition.sql} THEN {value.sql}")
        failures.append(guarded(earlier, condition.failed))
        failures.append(guarded(f"{earlier} AND {condition.sql} <=> TRUE", value.failed))
        earlier = f"{earlier} AND NOT ({condition.sql} <=> TRUE)"
    failures.append(guarded(earlier, otherwise.failed))
    sql = f"CASE {' '.join(parts)} ELSE {otherwise.sql} END"
    return Typed(sql=sql, type=type_, failed=any_of(*failures))


def _interval(compiler: ExpressionCompiler, node: exp.Expr) -> Typed:
    refuse(node, f"{node.sql('spark')} without a date", FORM)


def _whole_quotient(compiler: ExpressionCompiler, node: exp.Expr) -> Typed:
    """Compile `a DIV b`, a BIGINT. It is NULL, and a failure, for a division by zero or a quotient beyond BIGINT."""
    left, right = compiler.compile(node.this), compiler.compile(node.expression)
    for operand in (left, right):
        if operand.type.kind not in INTEGERS:
            refuse(node, f"{operand.type} in {node.sql('spark')}", "integers; a / b divides other numbers")
    a, b = (f"CAST({one.sql} AS BIGINT)" for one in (left, right))
    fine = f"{b} <> 0 AND NOT ({a} = CAST('{-(2**63)}' AS BIGINT) AND {b} = -1)"
    sql = f"CASE WHEN {fine} THEN {a} div {b} END"
    failure = f"({sql} IS NULL AND {left.sql} IS NOT NULL AND {right.sql} IS NOT NULL)"
    return Typed(sql=f"({sql})", type=INT64, failed=any_of(left.failed, right.failed, failure))


def _coalesce(compiler: ExpressionCompiler, node: exp.Expr) -> Typed:
    type_, values = compiler.unified(node, [compiler.compile(item) for item in [node.this, *node.expressions]])
    failures, earlier = [], "TRUE"
    for value in values:
        failures.append(guarded(earlier, value.failed))
        earlier = f"{earlier} AND {value.sql} IS NULL"
    return Typed(sql=f"coalesce({', '.join(v.sql for v in values)})", type=type_, failed=any_of(*failures))


def _cast(compiler: ExpressionCompiler, node: exp.Expr) -> Typed:
    return cast(node, compiler.compile)


_HANDLERS: dict[type[exp.Expr], Function] = {
    exp.Literal: _literal,
    exp.Null: _null,
    exp.Boolean: _boolean,
    exp.Not: _not,
    exp.And: _connector,
    exp.Or: _connector,
    exp.Is: _is,
    exp.In: _in,
    exp.Between: _between,
    exp.Like: _like,
    exp.ILike: _like,
    exp.IntDiv: _whole_quotient,
    exp.Interval: _interval,
    exp.Neg: _negative,
    exp.Case: _case,
    exp.If: _if,
    exp.Coalesce: _coalesce,
    exp.Cast: _cast,
    exp.TryCast: _cast,
}


_READ: dict[type[exp.Expr], tuple[str, ...]] = {
    exp.Literal: ("this", "is_string"),
    exp.In: ("this", "expressions", "query"),
    exp.Between: ("this", "low", "high"),
    exp.Interval: ("this", "unit"),
    exp.Case: ("this", "ifs", "default"),
    exp.If: ("this", "true", "false"),
    exp.Coalesce: ("this", "expressions", "is_nvl", "is_null"),
    exp.Cast: ("this", "to", "safe", "requires_string"),
    exp.TryCast: ("this", "to", "safe", "requires_string"),
}  # arguments that the handlers read; for others `this` and `expression`. `typed` and `safe` are marks of sqlglot


def _refuse_ignored(node: exp.Expr) -> None:
    """Refuse a form of an operator with a part that its handler does not read, such as BETWEEN SYMMETRIC."""
    read = _READ.get(type(node), ("this", "expression", "typed", "safe"))
    for name, value in node.args.items():
        if value and name not in read:
            refuse(node, f"{node.sql('spark')}: {name.upper()} is not supported", "the form without it")


def is_basic(node: exp.Expr) -> bool:
    """Return whether a node is a literal, an operator or a form such as CASE, and not a call of a function."""
    return type(node) in _HANDLERS or type(node) in _COMPARISONS or type(node) in _ARITHMETIC
