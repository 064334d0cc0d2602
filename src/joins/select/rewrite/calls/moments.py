"""Write calls of MySQL and PostgreSQL, and short forms, as calls that the compiler knows, before parsing.

DATE_FORMAT(x, '%Y-%m'), to_char(x, 'YYYY-MM')      date_format(x, 'yyyy-MM')
date_add(x, INTERVAL 3 DAY), timestampadd(DAY, 3, x) x + INTERVAL 3 DAY
EXTRACT(EPOCH FROM x), EXTRACT(ISODOW FROM x)
window(x, '5 minutes').start, window(x, '5 minutes').end
substring_index(x, ',', 1), size(split(x, ',')), array_contains(split(x, ','), 'a')"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import sqlglot
from sqlglot import exp

from joins.query.functions.dates import spark_pattern
from joins.query.functions.regular import PartCount, separator_of
from joins.query.functions.windows import TimeWindow, seconds_of_text


def with_spark_calls(statement: exp.Expr, patterns: Mapping[str, str]) -> exp.Expr:
    """Return a statement in which these calls are replaced. `patterns` are those of `patterns_in`."""
    top = exp.Paren(this=statement)
    for node in reversed(list(top.walk())):  # inner ones first: a form has copies of its arguments
        form = _FORMS.get(type(node))
        if isinstance(node, exp.TimeToStr) and (written := patterns.get(node.args["format"].name)) is not None:
            node.replace(_with_pattern(node.this, written) or node)
        elif form is not None and (found := form(node)) is not None:
            found.meta.update(node.meta)
            node.replace(found)
    inner: exp.Expr = top.this
    inner.pop()
    return inner


def patterns_in(texts: Iterable[str]) -> dict[str, str]:
    """Return the patterns of MySQL among the texts of a query, by the form that sqlglot gives to them."""
    found = {}
    for text in texts:
        if "%" in text and spark_pattern(text) is not None:
            found[_read_as(text).args["format"].name] = text
    return found


def _read_as(pattern: str) -> exp.Expr:
    return sqlglot.parse_one(f"date_format(x, '{pattern}')", dialect="spark")


def _with_pattern(value: exp.Expr, written: str) -> exp.Expr | None:
    pattern = spark_pattern(written)
    if pattern is None:
        return None
    made = _read_as(pattern)
    made.set("this", value.copy())
    return made


def _characters(node: exp.Expr) -> exp.Expr | None:
    written = node.args.get("format")
    return _with_pattern(node.this, written.name) if isinstance(written, exp.Literal) and written.is_string else None


def _moved(node: exp.Expr) -> exp.Expr | None:
    """Return `dateadd(DAY, 3, x)` as `x + INTERVAL 3 DAY`."""
    unit, count = node.args.get("unit"), node.expression
    number = count.this if isinstance(count, exp.Neg) else count
    if unit is None or not isinstance(number, exp.Literal):
        return None
    interval = exp.Interval(this=count.copy(), unit=exp.var(unit.name))
    moment = exp.cast(node.this.copy(), "timestampntz")  # of a date it is a timestamp, too
    return exp.Paren(this=exp.Add(this=moment, expression=interval))


def _shifted(node: exp.Expr) -> exp.Expr | None:
    """Return MySQL's `date_add(x, INTERVAL 3 DAY)` and `date_sub(…)` as sums and differences."""
    count, back = node.expression.unnest(), False
    if isinstance(count, exp.Mul):  # sqlglot writes date_sub as the sum of a product with -1
        count, back = count.this.unnest(), True
    if not isinstance(count, exp.Interval):
        return None
    kind = exp.Sub if back else exp.Add
    return exp.Paren(this=kind(this=node.this.copy(), expression=count.copy()))


def _extracted(node: exp.Expr) -> exp.Expr | None:
    if node.name.upper() not in ("ISODOW", "DAYOFWEEK_ISO"):
        return None
    day = exp.DayOfWeek(this=node.expression.copy())
    days = exp.Paren(this=exp.Add(this=day, expression=exp.Literal.number(5)))
    monday = exp.Mod(this=days, expression=exp.Literal.number(7))
    return exp.Paren(this=exp.Add(this=monday, expression=exp.Literal.number(1)))


def _end_of_window(node: exp.Expr) -> exp.Expr | None:
    window, name = node.this, node.expression.name.lower()
    if not isinstance(window, TimeWindow) or name not in ("start", "end"):
        return None
    if name == "start":
        return window.copy()
    seconds = exp.Interval(this=exp.Literal.number(seconds_of_text(window.expression)), unit=exp.var("SECOND"))
    return exp.Paren(this=exp.Add(this=window.copy(), expression=seconds))


def _first_parts(node: exp.Expr) -> exp.Expr | None:
    by, count = node.args.get("delimiter"), node.args.get("count")
    if not (isinstance(by, exp.Literal) and by.is_string and by.name and count == exp.Literal.number(1)):
        return None
    return exp.SplitPart(this=node.this.copy(), delimiter=by.copy(), part_index=exp.Literal.number(1))


def _size(node: exp.Expr) -> exp.Expr | None:
    by = separator_of(node.this)
    return PartCount(this=node.this.this.copy(), expression=exp.Literal.string(by)) if by else None


def _contained(node: exp.Expr) -> exp.Expr | None:
    """Return `array_contains(split(x, ','), 'a')` as `contains(concat(',', x, ','), ',a,')`."""
    by, value = separator_of(node.this), node.expression
    if not by or not (isinstance(value, exp.Literal) and value.is_string) or by in value.name or len(by) > 1:
        return None
    around = exp.Concat(expressions=[exp.Literal.string(by), node.this.this.copy(), exp.Literal.string(by)])
    return exp.Contains(this=around, expression=exp.Literal.string(f"{by}{value.name}{by}"))


_FORMS: dict[type[exp.Expr], Callable[[exp.Expr], exp.Expr | None]] = {
    exp.ToChar: _characters,
    exp.TimestampAdd: _moved,
    exp.TsOrDsAdd: _shifted,
    exp.Extract: _extracted,
    exp.Dot: _end_of_window,
    exp.SubstringIndex: _first_parts,
    exp.ArraySize: _size,
    exp.ArrayContains: _contained,
}
