"""Replace calls by others of the same meaning, before parsing (part of stage 1).

`approx_count_distinct(x)` becomes `count(DISTINCT x)`, and `any_value(x)` becomes `min(x)`: the result must not depend
on the order of the changes. Calls with further arguments stay, and are refused. `sum(x = 1)`, which MySQL has, becomes
`sum(CAST(x = 1 AS INT))`. `percentile_cont(0.2) WITHIN GROUP (ORDER BY x)` becomes `percentile(x, 0.2)`, and
`array_join(collect_list(x), ',')` becomes `coalesce(string_agg(x, ','), '')`."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal

from sqlglot import exp

from joins.query.functions.regular import nth_part
from joins.query.functions.texts import Crc32
from joins.query.parameters import DiscretePercentile

_CONDITIONS = (
    exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ, exp.And, exp.Or, exp.Not, exp.Is, exp.In,
    exp.Between, exp.Like, exp.ILike, exp.RegexpLike, exp.StartsWith, exp.EndsWith, exp.Contains,
)  # fmt: skip


def with_exact(statement: exp.Expr) -> exp.Expr:
    """Replace these calls everywhere in a statement, in place."""
    for node in list(statement.find_all(exp.ApproxDistinct, exp.AnyValue)):
        if any(value is not None for key, value in node.args.items() if key != "this"):
            continue
        if isinstance(node.this, exp.Distinct | exp.HavingMax | exp.IgnoreNulls | exp.Order | exp.Limit):
            continue
        counts = isinstance(node, exp.ApproxDistinct)
        node.replace(exp.Count(this=exp.Distinct(expressions=[node.this])) if counts else exp.Min(this=node.this))
    for node in reversed(list(statement.find_all(exp.Sum, exp.Avg))):
        if isinstance(node.this.unnest(), _CONDITIONS):
            node.set("this", exp.cast(node.this.unnest().copy(), "INT"))
    for node in list(statement.find_all(exp.ArrayAgg)):
        _sorted(node)
    top = exp.Paren(this=statement)
    for kind, form in _FORMS.items():
        for one in reversed(list(top.find_all(kind))):  # inner ones first: a form has copies of its arguments
            if (found := form(one)) is not None:
                one.replace(found)
    statement = top.this
    statement.pop()
    _percentiles(statement)
    _lists(statement)
    return statement


def _sorted(node: exp.ArrayAgg) -> None:
    """Write `array_agg(x ORDER BY x)` as a list, which is sorted."""
    order = node.this
    if isinstance(order, exp.Order) and len(order.expressions) == 1:
        value = order.this.expressions[0] if isinstance(order.this, exp.Distinct) else order.this
        by = order.expressions[0]
        if by.this == value and not by.args.get("desc"):
            once = isinstance(order.this, exp.Distinct)
            node.replace(exp.ArrayUniqueAgg(this=value.copy()) if once else exp.ArrayAgg(this=value.copy()))


def _null(node: exp.Expr) -> exp.Expr:
    return exp.Is(this=node, expression=exp.Null())


def _named(node: exp.Expr) -> exp.Expr | None:
    """Return the form of a call whose name sqlglot does not know. None if it is not known here, either."""
    name, arguments = node.name.lower(), [one.copy() for one in node.expressions]
    if name in ("date_part", "datepart") and len(arguments) == 2 and arguments[0].is_string:
        return exp.Extract(this=exp.var(arguments[0].name.upper()), expression=arguments[1])
    if name in ("get", "try_element_at") and len(arguments) == 2:
        return nth_part(arguments[0], arguments[1], int(name != "get"), safe=True)
    if len(arguments) != 1:
        return None
    match name:
        case "crc32":
            return Crc32(this=arguments[0])
        case "isnull":
            return exp.Paren(this=_null(arguments[0]))
        case "isnotnull":
            return exp.Paren(this=exp.Not(this=_null(arguments[0])))
        case "weekday":  # 0 is Monday
            days = exp.Add(this=exp.DayOfWeek(this=arguments[0]), expression=exp.Literal.number(5))
            return exp.Mod(this=exp.Paren(this=days), expression=exp.Literal.number(7))
    return None


def _decoded(node: exp.Expr) -> exp.Expr | None:
    """Return `decode(x, 1, 'a', 'b')` as a CASE, which takes NULL for equal to NULL."""
    value, *rest = node.expressions
    pairs = zip(rest[::2], rest[1::2], strict=False)
    branches = [
        exp.If(this=exp.NullSafeEQ(this=value.copy(), expression=one.copy()), true=then.copy()) for one, then in pairs
    ]
    return exp.Case(ifs=branches, default=rest[-1].copy() if len(rest) % 2 else None) if branches else None


def _truncated(node: exp.Expr) -> exp.Expr | None:
    """Return `trunc(x, 'MM')` as a date."""
    unit = _TRUNCATED.get(node.args["unit"].name.upper())
    if unit is None:
        return None
    return exp.cast(exp.TimestampTrunc(this=node.this.copy(), unit=exp.var(unit)), "date")


_TRUNCATED = {
    "YEAR": "YEAR", "YYYY": "YEAR", "YY": "YEAR", "QUARTER": "QUARTER", "MONTH": "MONTH", "MON": "MONTH", "MM": "MONTH",
    "WEEK": "WEEK",
}  # fmt: skip
_FORMS: dict[type[exp.Expr], Callable[[exp.Expr], exp.Expr | None]] = {
    exp.RawString: lambda node: exp.Literal.string(node.name),
    exp.Anonymous: _named,
    exp.Bracket: lambda node: (
        nth_part(node.this, node.expressions[0], int(node.args.get("offset") or 0), safe=False)
        if len(node.expressions) == 1
        else None
    ),
    exp.DayOfMonth: lambda node: exp.Day(this=node.this.copy()),
    exp.DateTrunc: _truncated,
    exp.DecodeCase: _decoded,
    exp.NullSafeNEQ: lambda node: exp.Paren(
        this=exp.Not(this=exp.NullSafeEQ(this=node.this.copy(), expression=node.expression.copy()))
    ),
    exp.Nvl2: lambda node: exp.Case(
        ifs=[exp.If(this=exp.Not(this=_null(node.this.copy())), true=node.args["true"].copy())],
        default=node.args["false"].copy() if node.args.get("false") else None,
    ),
    exp.RegexpSubstr: lambda node: exp.Nullif(
        this=exp.RegexpExtract(this=node.this.copy(), expression=node.expression.copy(), group=exp.Literal.number(0)),
        expression=exp.Literal.string(""),
    ),
}


def _percentiles(statement: exp.Expr) -> None:
    """Replace percentiles WITHIN GROUP. Others than of one expression and of a literal stay, and are refused."""
    for node in list(statement.find_all(exp.WithinGroup)):
        function, order = node.this, node.expression
        if not isinstance(function, exp.PercentileCont | exp.PercentileDisc) or not isinstance(order, exp.Order):
            continue
        share, (first, *more) = function.this, order.expressions
        if more or function.expression or not isinstance(share, exp.Literal) or share.is_string:
            continue
        if first.args.get("desc"):
            if isinstance(function, exp.PercentileDisc):
                continue
            share = exp.Literal.number(f"{1 - Decimal(share.name):f}")
        made = DiscretePercentile if isinstance(function, exp.PercentileDisc) else exp.Quantile
        node.replace(made(this=first.this.copy(), quantile=share.copy()))


def _lists(statement: exp.Expr) -> None:
    """Replace functions of collected lists: their text, and their size."""
    for node in list(statement.find_all(exp.ArrayToString, exp.ArraySize)):
        call: exp.Expr = node.this
        while isinstance(call, exp.ArraySort) and not call.args.get("expression"):
            call = call.this
        if not isinstance(call, exp.ArrayAgg | exp.ArrayUniqueAgg) or isinstance(call.this, exp.Distinct | exp.Order):
            continue
        once = isinstance(call, exp.ArrayUniqueAgg)
        value = exp.Distinct(expressions=[call.this.copy()]) if once else call.this.copy()
        if isinstance(node, exp.ArraySize):
            node.replace(exp.Count(this=value))
        elif node.args.get("null") is None:
            text = exp.GroupConcat(this=value, separator=node.expression.copy())
            node.replace(exp.Coalesce(this=text, expressions=[exp.Literal.string("")]))
