"""Define `window(ts, '5 minutes')`: the start of the time window that contains a datetime, for use in GROUP BY.

Spark's own function returns both ends and belongs to streaming aggregation, which closes windows. Here the start is
an ordinary value. So rows that arrive late, change or are deleted still correct their group. Windows start at
midnight, as in Spark, because their length divides a day."""

from __future__ import annotations

import re
from typing import ClassVar

from sqlglot import exp

from joins.query.expressions import ExpressionCompiler
from joins.query.typed import Typed, refuse
from joins.query.value_types import DATETIME, family

DAY = 86_400
FORM = "window(x, '5 minutes'): seconds, minutes or hours that divide a day"
_SECONDS = {"second": 1, "minute": 60, "hour": 3600, "day": DAY}
_UNITS = {1: "SECOND", 60: "MINUTE", 3600: "HOUR", DAY: "DAY"}


class TimeWindow(exp.Expression, exp.Func):
    """The syntax node of `window(this, expression)`.

    sqlglot would parse the word as a clause, so `joins.select.tokens` renames it first."""

    arg_types: ClassVar = {"this": True, "expression": True, "expressions": False}
    _sql_names: ClassVar = ["WINDOW"]


def seconds_of_text(length: exp.Expr) -> int:
    """Return the seconds of a text such as `'5 minutes'`. 0 for other expressions."""
    text = length.name if isinstance(length, exp.Literal) and length.is_string else ""
    found = re.fullmatch(r"\s*(\d{1,6})\s+(second|minute|hour|day)s?\s*", text, re.IGNORECASE)
    return int(found[1]) * _SECONDS[found[2].lower()] if found else 0


def seconds_of(node: TimeWindow) -> int:
    """Return the length of the windows in seconds. Raises Unsupported for an invalid length."""
    if node.expressions:
        what = f"{node.sql('spark')}, whose spans overlap or begin elsewhere,"
        refuse(node, what, f"{FORM}; or window(x, '1 hour', '5 minutes') in GROUP BY")
    seconds = seconds_of_text(node.expression)
    if seconds == 0 or DAY % seconds:
        expected = FORM if seconds < DAY else "date_trunc('WEEK', x), or another of its units"
        refuse(node, node.sql("spark"), expected)
    return seconds


def window_start(compiler: ExpressionCompiler, node: exp.Expr) -> Typed:
    """Compile `window(…)` to the start of the window as a timestamp. NULL gives NULL."""
    assert isinstance(node, TimeWindow)
    seconds, typed = seconds_of(node), compiler.compile(node.this)
    if family(typed.type) != "moment":
        refuse(node, f"{typed.type} in {node.sql('spark')}", "a DATETIME or TIMESTAMP")
    moment = typed.sql
    if seconds in _UNITS:
        sql = f"CAST(date_trunc('{_UNITS[seconds]}', {moment}) AS TIMESTAMP_NTZ)"
        return Typed(sql=sql, type=DATETIME, failed=typed.failed)
    since = f"((hour({moment}) * 3600 + minute({moment}) * 60 + second({moment})) div {seconds} * {seconds})"
    parts = [f"{since} div 3600", f"{since} % 3600 div 60", f"{since} % 60"]
    clock = ", ':', ".join(f"lpad(CAST({part} AS STRING), 2, '0')" for part in parts)
    day = f"date_format(CAST({moment} AS TIMESTAMP_NTZ), 'yyyy-MM-dd')"
    return Typed(sql=f"CAST(concat({day}, ' ', {clock}) AS TIMESTAMP_NTZ)", type=DATETIME, failed=typed.failed)
