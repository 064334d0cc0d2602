"""Compile `moment ± INTERVAL …` and `date ± days` to Spark SQL that never raises.

As in Spark, a date plus days, weeks, months, quarters or years is a date, and plus a shorter unit a timestamp. Adding
months keeps the day of the month, or takes the last one of a shorter month."""

from __future__ import annotations

import re
from collections.abc import Callable

from sqlglot import exp

from joins.query.typed import Typed, any_of, refuse
from joins.query.value_types import DATE, DATETIME, family

FORM = "d + INTERVAL 90 DAY, or MICROSECOND, MILLISECOND, SECOND, MINUTE, HOUR, WEEK, MONTH, QUARTER, YEAR"
_DAY = 86_400_000_000
_MICROS = {"MICROSECOND": 1, "MILLISECOND": 1000, "SECOND": 1_000_000, "MINUTE": 60_000_000, "HOUR": 3_600_000_000,
           "DAY": _DAY, "WEEK": 7 * _DAY}  # fmt: skip
_DAYS = ("int8", "int16", "int32")  # types of a number of days
_MONTHS = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}
_LONGEST = {"micros": 366_000 * _DAY, "months": 12_000}  # a thousand years


def interval_of(node: exp.Interval) -> tuple[int, int, bool]:
    """Return the microseconds and months of an INTERVAL, and whether its unit is a day or longer.

    Raises Unsupported if it is not one whole number with one unit."""
    written, unit = node.this, node.args.get("unit")
    sign = -1 if isinstance(written, exp.Neg) else 1
    number = written.this if isinstance(written, exp.Neg) else written
    whole = re.fullmatch(r"\s*([+-]?\d{1,12})\s*", number.name) if isinstance(number, exp.Literal) else None
    name = "" if not isinstance(unit, exp.Var) else unit.name.upper().removesuffix("S")
    if whole is None or name not in {**_MICROS, **_MONTHS}:
        refuse(node, node.sql("spark"), FORM)
    count = sign * int(whole[1])
    micros, months = count * _MICROS.get(name, 0), count * _MONTHS.get(name, 0)
    if abs(micros) > _LONGEST["micros"] or abs(months) > _LONGEST["months"]:
        refuse(node, f"{node.sql('spark')}, a very long time", "1,000 years at most")
    return micros, months, name in ("DAY", "WEEK", *_MONTHS)


def moved(node: exp.Expr, compile_: Callable[[exp.Expr], Typed]) -> Typed | None:
    """Compile a sum or difference of a moment and an INTERVAL. None for others. Raises Unsupported for other types."""
    left, right = node.this.unnest(), node.expression.unnest()
    if isinstance(left, exp.Interval) and isinstance(node, exp.Add):
        left, right = right, left
    if not isinstance(right, exp.Interval):
        return None
    moment = compile_(left)
    if family(moment.type) not in ("date", "moment") or not isinstance(node, exp.Add | exp.Sub):
        refuse(node, f"{moment.type} in {node.sql('spark')}", "a date or timestamp: CAST(x AS TIMESTAMP) + INTERVAL …")
    micros, months, by_days = interval_of(right)
    sign = 1 if isinstance(node, exp.Add) else -1
    return _plus(moment, sign * micros, sign * months, by_days=by_days)


def days_later(node: exp.Expr, day: Typed, count: Typed) -> Typed | None:
    """Compile the sum or difference of a date and a number of days. None for others."""
    if day.type != DATE or not isinstance(node, exp.Add | exp.Sub) or count.type.kind not in _DAYS:
        return None
    if isinstance(node, exp.Add):
        return Typed(sql=f"date_add({day.sql}, {count.sql})", type=DATE, failed=any_of(day.failed, count.failed))
    number = f"try_subtract(CAST(0 AS INT), {count.sql})"
    failure = f"({number} IS NULL AND {count.sql} IS NOT NULL)"
    return Typed(sql=f"date_add({day.sql}, {number})", type=DATE, failed=any_of(day.failed, count.failed, failure))


def _plus(moment: Typed, micros: int, months: int, *, by_days: bool) -> Typed:
    """Return the moment some time later. Only moments of the years 1 to 9999 are moved, because others may overflow."""
    is_date = moment.type == DATE
    if is_date and by_days and not months:
        return Typed(sql=f"date_add({moment.sql}, {micros // _DAY})", type=DATE, failed=moment.failed)
    start = moment.sql if not is_date or months else f"CAST({moment.sql} AS TIMESTAMP_NTZ)"
    type_ = DATE if is_date and months else DATETIME
    first, last = ("DATE'0001-01-01'", "DATE'9999-12-31'") if type_ == DATE else (
        "TIMESTAMP_NTZ'0001-01-01 00:00:00'", "TIMESTAMP_NTZ'9999-12-31 23:59:59.999999'"
    )  # fmt: skip
    added = f"{start} + INTERVAL {_written(micros, months)}"
    added = f"CAST({added} AS DATE)" if type_ == DATE else added
    sql = f"CASE WHEN {start} >= {first} AND {start} <= {last} THEN {added} END"
    return Typed(sql=sql, type=type_, failed=any_of(moment.failed, f"({sql} IS NULL AND {start} IS NOT NULL)"))


def _written(micros: int, months: int) -> str:
    if months:
        return f"'{months}' MONTH"
    if micros % _DAY == 0:
        return f"'{micros // _DAY}' DAY"
    seconds, fraction = divmod(abs(micros), 1_000_000)
    return f"'{'-' * (micros < 0)}{seconds}{f'.{fraction:06d}' if fraction else ''}' SECOND"
