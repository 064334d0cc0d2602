"""Parse conditions on the time between two rows, such as `b.ts BETWEEN a.ts - INTERVAL 10 MINUTE AND a.ts + …`.

Each condition gives one or two upper bounds of the difference of two columns, in microseconds."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from sqlglot import exp

from joins.query.typed import refuse

_SECONDS = {"WEEK": 604_800, "DAY": 86_400, "HOUR": 3600, "MINUTE": 60, "SECOND": 1}
_MICROS = {unit: seconds * 1_000_000 for unit, seconds in _SECONDS.items()} | {"MILLISECOND": 1000, "MICROSECOND": 1}
_UNITS = "SECOND, MINUTE, HOUR, DAY or WEEK"
FORM = "b.ts BETWEEN a.ts - INTERVAL 10 MINUTE AND a.ts + INTERVAL 1 HOUR"
LONGEST = 10 * 366 * 86_400 * 1_000_000  # microseconds between two rows; a larger bound does not limit the state
# Comparison operators and how each bounds the difference left - right.
_SIGNS: dict[type[exp.Expr], tuple[int, bool]] = {exp.LTE: (1, False), exp.LT: (1, True), exp.GTE: (-1, False),
                                                  exp.GT: (-1, True)}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """An upper bound: `later` - `earlier` is at most `most` microseconds.

    A negative `most` means that `later` is at least that long before `earlier`."""

    later: exp.Column
    earlier: exp.Column
    most: int


def has_interval(node: exp.Expr) -> bool:
    """Return whether a condition contains an INTERVAL."""
    return node.find(exp.Interval) is not None


def bounds_of(node: exp.Expr) -> tuple[Bound, ...]:
    """Return the bounds that a condition sets on the time between rows of two tables. Empty for any other condition.

    Raises Unsupported for an INTERVAL without a fixed length (a month), or one that is not added to a column of the
    other table."""
    node = node.unnest()
    if isinstance(node, exp.Between):
        pairs = [(node.args["low"], node.this, False), (node.this, node.args["high"], False)]
    elif type(node) in _SIGNS:
        sign, strict = _SIGNS[type(node)]
        sides = (node.this, node.expression)
        pairs = [(*(sides if sign > 0 else sides[::-1]), strict)]
    else:
        pairs = []
    found: list[Bound] = []
    for less, more, strict in pairs:
        one, other = _moment(less), _moment(more)
        if one is None or other is None or one[0].table == other[0].table:
            found = []
            break
        # less + a <= more + b  ⇔  less - more <= b - a
        found.append(Bound(later=one[0], earlier=other[0], most=other[1] - one[1] - strict))
    if not found and has_interval(node):
        refuse(node, f"{node.sql('spark')} is no bound of the time between rows of two tables", FORM)
    return tuple(found)


def _moment(node: exp.Expr) -> tuple[exp.Column, int] | None:
    """Parse `column ± INTERVAL …` to the column and the microseconds. None for any other expression."""
    node = node.unnest()
    if isinstance(node, exp.Column):
        return node, 0
    if not isinstance(node, exp.Add | exp.Sub):
        return None
    sides = [node.this.unnest(), node.expression.unnest()]
    if isinstance(node, exp.Add) and isinstance(sides[0], exp.Interval):
        sides.reverse()
    if not isinstance(sides[1], exp.Interval):
        return None
    found = _moment(sides[0])
    if found is None:
        return None
    length = micros_of(sides[1])
    return found[0], found[1] + (length if isinstance(node, exp.Add) else -length)


def micros_of(interval: exp.Interval) -> int:
    """Return the length of an INTERVAL in microseconds. Raises Unsupported if it has no fixed length, as a month, or
    exceeds ten years."""
    written = interval.this
    sign = -1 if isinstance(written, exp.Neg) else 1
    number = written.this if isinstance(written, exp.Neg) else written
    unit = interval.args.get("unit")
    name = "" if unit is None else unit.name.upper().removesuffix("S")
    whole = re.fullmatch(r"\s*(-?\d{1,12})\s*", number.name) if isinstance(number, exp.Literal) else None
    if whole is None or name not in _MICROS:
        refuse(interval, f"{interval.sql('spark')} has no fixed length", f"INTERVAL 10 MINUTE: a number of {_UNITS}")
    length = sign * int(whole[1]) * _MICROS[name]
    if abs(length) > LONGEST:
        refuse(interval, f"{interval.sql('spark')} is too long to keep rows for", "10 years at most")
    return length


def columns_of(bounds: Iterable[Bound]) -> Iterator[exp.Column]:
    """Yield both columns of each bound."""
    for bound in bounds:
        yield bound.later
        yield bound.earlier
