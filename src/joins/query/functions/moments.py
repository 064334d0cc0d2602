"""Parse conditions that compare a row with the time, such as `at >= now() - INTERVAL 5 MINUTE` (*temporal filters*).

A condition has the form `value OP moment`: the value is an expression over columns, the moment is `now()` with lengths
of time added, or cut to a unit. So each row satisfies it during one span of time, which its value decides.

Conditions of WHERE, HAVING, QUALIFY and ON that AND joins become a `TemporalFilter` node. `now()` anywhere else stays,
and is refused."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from sqlglot import exp

from joins.query.expressions import ExpressionCompiler
from joins.query.intervals import interval_of
from joins.query.typed import Typed, Unsupported, refuse

FORM = "x >= now() - INTERVAL 5 MINUTE: <, <=, =, >=, > or BETWEEN of an expression of columns and of now()"
NOW = (exp.CurrentTimestamp, exp.CurrentDate, exp.Localtimestamp)
_NAMES = ("now", "localtimestamp")
_DAY = 86_400_000_000
_LENGTHS = {"SECOND": 1_000_000, "MINUTE": 60_000_000, "HOUR": 3_600_000_000, "DAY": _DAY}
_MONTHS = ("MONTH", "QUARTER", "YEAR")
UNITS = (*_LENGTHS, "WEEK", *_MONTHS)
_OPERATORS: dict[type[exp.Expr], str] = {exp.LT: "<", exp.LTE: "<=", exp.EQ: "=", exp.GTE: ">=", exp.GT: ">"}
_TURNED = {"<": ">", "<=": ">=", "=": "=", ">=": "<=", ">": "<"}
_CLAUSES = ("where", "having", "qualify")


class TemporalFilter(exp.Expression, exp.Func):
    """The syntax node of `this operator moment`. The other arguments are literals: the parts of `ClockMoment`, and the
    text in the query."""

    arg_types: ClassVar = {
        "this": True, "operator": True, "unit": True, "before": True, "months": True, "after": True, "text": True,
    }  # fmt: skip
    _sql_names: ClassVar = ["TEMPORAL_FILTER"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockMoment:
    """A moment that follows the time: now, plus `before` microseconds, cut to a `unit` (empty: not cut), plus `months`
    and `after` microseconds. `is_date`: the moment is a date, so a number of days may be added."""

    unit: str = ""
    before: int = 0
    months: int = 0
    after: int = 0
    is_date: bool = False


def with_moments(statement: exp.Expr, now: str = "") -> exp.Expr:
    """Replace the conditions on the time of every SELECT, in place. If `now`, a timestamp, is given, replace `now()` by
    it instead."""
    for call in list(statement.find_all(exp.Anonymous)):
        if call.name.lower() in _NAMES and not call.expressions:
            made = exp.CurrentTimestamp()
            made.meta.update(call.meta)
            call.replace(made)
    if now:
        for node in list(statement.find_all(*NOW)):
            day = isinstance(node, exp.CurrentDate)
            node.replace(exp.cast(exp.Literal.string(now[:10] if day else now), "date" if day else "timestamp"))
    if statement.find(*NOW) is None:
        return statement
    for select in list(statement.find_all(exp.Select)):
        clauses = [select.args.get(key) for key in _CLAUSES]
        for clause in clauses:
            if clause is not None:
                clause.set("this", _replaced(clause.this))
        for join in select.args.get("joins") or ():
            if isinstance(on := join.args.get("on"), exp.Expr):
                join.set("on", _replaced(on))
    return statement


def _replaced(node: exp.Expr) -> exp.Expr:
    inner = node.unnest()
    if isinstance(inner, exp.And):
        return exp.Paren(this=exp.And(this=_replaced(inner.this), expression=_replaced(inner.expression)))
    if inner.find(*NOW) is None:
        return node
    if isinstance(inner, exp.Between) and not inner.args.get("symmetric"):
        low = exp.GTE(this=inner.this.copy(), expression=inner.args["low"].copy())
        high = exp.LTE(this=inner.this.copy(), expression=inner.args["high"].copy())
        sides = [_replaced(low), _replaced(high)]
        if all(side.find(*NOW) is None for side in sides):
            return exp.Paren(this=exp.And(this=sides[0], expression=sides[1]))
        return node
    return _filter_of(inner) or node


def _filter_of(node: exp.Expr) -> TemporalFilter | None:
    """Return a comparison with the time as a filter. None for any other condition."""
    operator = _OPERATORS.get(type(node))
    if operator is None:
        return None
    sides = node.this.unnest(), node.expression.unnest()
    for value, other, sign in ((*sides, operator), (*sides[::-1], _TURNED[operator])):
        found = _days_apart(value, other, sign)
        if found is None and (moment := moment_of(other)) is not None:
            found = value, sign, moment
        if found is not None and found[0].find(*NOW) is None and found[0].find(exp.Column) is not None:
            return _node(*found, text=_said(node))
    return None


def _said(node: exp.Expr) -> str:
    return node.sql("spark").replace("`", "").replace("CURRENT_TIMESTAMP()", "now()")


def _node(value: exp.Expr, operator: str, moment: ClockMoment, *, text: str) -> TemporalFilter:
    numbers = {name: exp.Literal.string(str(getattr(moment, name))) for name in ("before", "months", "after")}
    return TemporalFilter(
        this=value.copy(), operator=exp.Literal.string(operator), unit=exp.Literal.string(moment.unit), **numbers,
        text=exp.Literal.string(text),
    )  # fmt: skip


def parts_of(node: TemporalFilter) -> tuple[str, ClockMoment]:
    """Return the operator and the moment of a filter."""
    before, months, after = (int(node.args[name].name) for name in ("before", "months", "after"))
    return node.args["operator"].name, ClockMoment(
        unit=node.args["unit"].name, before=before, months=months, after=after
    )


def _days_apart(left: exp.Expr, right: exp.Expr, operator: str) -> tuple[exp.Expr, str, ClockMoment] | None:
    """Return `datediff(now(), x) OP days`, or `datediff(x, now()) OP days`, as x, an operator and a moment."""
    days = _whole(right)
    if not isinstance(left, exp.DateDiff) or days is None or left.args.get("unit") is not None:
        return None
    end, start = left.this, left.expression
    if (moment := moment_of(end)) is not None:  # now - x <= days  ⇔  x >= now - days
        cut = _cut(moment, "DAY")
        return None if cut is None else (start, _TURNED[operator], _later(cut, -days * _DAY))
    if (moment := moment_of(start)) is not None and (cut := _cut(moment, "DAY")) is not None:
        return end, operator, _later(cut, days * _DAY)
    return None


def moment_of(node: exp.Expr) -> ClockMoment | None:
    """Return the moment that an expression means. None if it is no supported form of now()."""
    node = node.unnest()
    if isinstance(node, NOW):
        is_date = isinstance(node, exp.CurrentDate)
        return None if node.this else ClockMoment(unit="DAY" if is_date else "", is_date=is_date)
    if isinstance(node, exp.Cast | exp.TsOrDsToDate):  # TryCast is a Cast
        inner = moment_of(node.this)
        kind = "DATE" if isinstance(node, exp.TsOrDsToDate) else node.to.sql("spark").upper()
        if inner is None or node.args.get("format") or kind not in ("DATE", "TIMESTAMP", "TIMESTAMP_NTZ"):
            return None
        cut = _cut(inner, "DAY") if kind == "DATE" else inner
        return None if cut is None else replace(cut, is_date=kind == "DATE")
    if isinstance(node, exp.TimestampTrunc):
        inner = moment_of(node.this)
        unit = node.args["unit"].name.upper()
        cut = None if inner is None or unit not in UNITS else _cut(inner, unit)
        return None if cut is None else replace(cut, is_date=False)
    if isinstance(node, exp.TsOrDsAdd):
        return _days_added(node)
    return _moved(node) if isinstance(node, exp.Add | exp.Sub) else None


def _days_added(node: exp.TsOrDsAdd) -> ClockMoment | None:
    inner, days, unit = moment_of(node.this), _whole(node.expression), node.args.get("unit")
    if inner is None or days is None or (unit is not None and unit.name.upper() not in ("DAY", "DAYS")):
        return None
    cut = _cut(inner, "DAY")
    return None if cut is None else replace(_later(cut, days * _DAY), is_date=True)


def _moved(node: exp.Expr) -> ClockMoment | None:
    """Return `moment ± INTERVAL …`, or `date ± days`."""
    left, right = node.this.unnest(), node.expression.unnest()
    if isinstance(node, exp.Add) and moment_of(left) is None:
        left, right = right, left
    inner, sign = moment_of(left), 1 if isinstance(node, exp.Add) else -1
    if inner is None:
        return None
    if not isinstance(right, exp.Interval):
        days = _whole(right)
        return None if days is None or not inner.is_date else _later(inner, sign * days * _DAY)
    try:
        micros, months, by_days = interval_of(right)
    except Unsupported:
        return None
    moved = _later(inner, sign * micros)
    if months:  # only the first day of a month has the same day in every other month
        if inner.unit not in _MONTHS or inner.after:
            return None
        moved = replace(moved, months=inner.months + sign * months)
    return replace(moved, is_date=inner.is_date and by_days)


def _later(moment: ClockMoment, micros: int) -> ClockMoment:
    if moment.unit:
        return replace(moment, after=moment.after + micros)
    return replace(moment, before=moment.before + micros)


def _cut(moment: ClockMoment, unit: str) -> ClockMoment | None:
    """Return a moment cut to a unit. None if that is no single cut."""
    if not moment.unit:
        return replace(moment, unit=unit)
    own, other = UNITS.index(moment.unit), UNITS.index(unit)
    if moment.unit in _LENGTHS and other >= own:  # a shift by whole units may come before the cut
        if moment.after % _LENGTHS[moment.unit]:
            return None
        return replace(moment, unit=unit, before=moment.before + moment.after, after=0)
    if unit in _LENGTHS:  # the moment is at the start of a longer unit already
        return None if moment.after % _LENGTHS[unit] else moment
    if moment.unit in _MONTHS and unit in _MONTHS and other >= own and not (moment.months or moment.after):
        return replace(moment, unit=unit)
    return moment if moment.unit == unit and not (moment.months or moment.after) else None


def _whole(node: exp.Expr) -> int | None:
    """Return the value of an integer literal, which may be negative. None for other expressions."""
    node = node.unnest()
    if isinstance(node, exp.Neg):
        inner = _whole(node.this)
        return None if inner is None else -inner
    if isinstance(node, exp.Mul):  # sqlglot writes date_sub(x, 7) as an addition of 7 * -1
        factors = [_whole(node.this), _whole(node.expression)]
        return None if None in factors else factors[0] * factors[1]  # type: ignore[operator]  # neither is None
    return int(node.name) if isinstance(node, exp.Literal) and node.is_int and len(node.name) < 7 else None


def refuse_now(node: exp.Expr) -> None:
    """Raise Unsupported for now() that is not part of a supported condition, with the nearest form."""
    if not isinstance(node, NOW):
        return
    name = "current_date" if isinstance(node, exp.CurrentDate) else "now()"
    above = _ancestors(node)
    compared = [one for one in above if isinstance(one, (*_OPERATORS, exp.NEQ, exp.NullSafeEQ, exp.Between))]
    if any(isinstance(one, exp.Or | exp.Not | exp.Case | exp.If | exp.In) for one in above):
        refuse(
            node,
            f"{name} within OR, NOT, IN, CASE or FILTER",
            f"AND of such conditions, each {FORM}; or UNION of queries",
        )
    months = [one for part in above if (one := part.find(exp.Interval)) is not None and _is_of_months(one)]
    if months and compared:
        text = months[0].sql("spark")
        expected = f"x + {text} >= now(), INTERVAL 30 DAY, or date_trunc('MONTH', now()) - {text}"
        refuse(node, f"{name} with {text}, which has no fixed length", expected)
    if compared:
        refuse(node, f"{name} in {_said(compared[-1])}", FORM)
    refuse(node, f"{name} as a value, which changes without a change of a row", f"a condition: WHERE {FORM}")


def _ancestors(node: exp.Expr) -> list[exp.Expr]:
    """Return the expressions around a node, the outermost last, up to a clause or a column of the SELECT list."""
    found: list[exp.Expr] = []
    parent = node.parent
    while isinstance(parent, exp.Condition) and not isinstance(parent, exp.Alias | exp.Query):
        found.append(parent)
        parent = parent.parent
    return found


def _is_of_months(node: exp.Interval) -> bool:
    try:
        return bool(interval_of(node)[1])
    except Unsupported:
        return False


def unplaced(compiler: ExpressionCompiler, node: exp.Expr) -> Typed:
    """Raise Unsupported: a temporal filter is no value, but decides which rows there are."""
    refuse(node, f"{node.args['text'].name} here", "it in WHERE, or in ON as a condition on the joined table alone")
