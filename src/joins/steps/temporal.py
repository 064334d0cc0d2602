"""Keep the rows that satisfy conditions on the time, and delete each when its time is over.

Each row has a span of time: from the moment at which all of its conditions are true to the moment at which one is no
longer. The step stores the rows whose span is not over, and visits a row when its span begins or ends, although no
change of it comes. The clock is a value of the batch, so a repeated batch decides alike. It never goes back."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from cdc.model.types import Canonical
from joins.query.group import Temporal, TimeBound
from joins.runtime.records import DIM_GONE, DIM_PUT, ROW_GONE, ROW_PUT, SINK, Message, values_of

_DAY = 86_400_000_000
_LENGTHS = {"SECOND": 1_000_000, "MINUTE": 60_000_000, "HOUR": 3_600_000_000, "DAY": _DAY, "WEEK": 7 * _DAY}
_MONTHS = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}
_MONDAY = 4 * _DAY  # 1970-01-05
_EPOCH = dt.datetime(1970, 1, 1)
NEVER = 1 << 62  # microseconds: a span that begins or ends there does not begin or end


@dataclass(frozen=True, slots=True)
class TemporalState:
    """A stored row: its payload, and whether it was emitted. `due` (ms) is when the step must visit it, or None."""

    payload: bytes
    shown: bool
    due: int | None


def temporal_step(
    step: Temporal, target: int, k: bytes, state: TemporalState | None, messages: Iterable[Message], clock_ms: int
) -> tuple[TemporalState | None, list[Message]]:
    """Process a batch for one row: its messages, or none if only time has passed. Return its new state, and the
    messages for `target`.

    The newest message wins; of two with one version, the one with the greater payload."""
    newest = max(messages, key=lambda one: (one.v, one.p), default=None)
    if newest is not None:
        payload = newest.p if newest.op in (ROW_PUT, DIM_PUT) else None
    else:
        payload = None if state is None else state.payload
    shown, now = state is not None and state.shown, clock_ms * 1000
    start, end = (NEVER, NEVER) if payload is None else span_of(step.bounds, values_of(payload))
    is_live, out = start <= now < end, list[Message]()
    put, gone = (ROW_PUT, ROW_GONE) if target == SINK else (DIM_PUT, DIM_GONE)
    to = bytes([target]) + k[1:]
    if is_live and payload is not None and (newest is not None or not shown):
        out.append(Message(to, put, b"", 1, payload))
    elif shown and not is_live:
        out.append(Message(to, gone, b"", 0, b""))
    if payload is None or now >= end or start >= end:
        return None, out
    visit = end if is_live else start
    return TemporalState(payload, is_live, None if visit >= NEVER else -(-visit // 1000)), out


def span_of(bounds: Sequence[TimeBound], values: Sequence[Canonical]) -> tuple[int, int]:
    """Return when a row begins and ceases to satisfy all conditions, in microseconds since 1970."""
    start, end = -NEVER, NEVER
    for bound in bounds:
        value = micros_of(values[bound.value])
        if value is None:
            return NEVER, NEVER
        later, at_least = _thresholds(bound, value)
        match bound.operator:
            case ">=":
                end = min(end, later)
            case ">":
                end = min(end, at_least)
            case "<":
                start = max(start, later)
            case "<=":
                start = max(start, at_least)
            case _:
                start, end = max(start, at_least), min(end, later)
    return start, end


def _thresholds(bound: TimeBound, value: int) -> tuple[int, int]:
    """Return when the moment of a condition exceeds the value, and when it is at least the value."""
    value -= bound.after
    if not bound.unit:
        return value + 1 - bound.before, value - bound.before
    if bound.months:  # compared with starts of months: only the month, and whether it is its start, count
        month = _start(value, "MONTH")
        value = _month(_month_of(month) - bound.months) + (value > month)
    start = _start(value, bound.unit)
    following = _following(start, bound.unit)
    return following - bound.before, (start if start == value else following) - bound.before


def _start(micros: int, unit: str) -> int:
    """Return the start of the unit that contains a time."""
    if unit in _MONTHS:
        month = _month_of(micros)
        return _month(month - month % _MONTHS[unit])
    first = _MONDAY if unit == "WEEK" else 0
    return micros - (micros - first) % _LENGTHS[unit]


def _following(start: int, unit: str) -> int:
    return _month(_month_of(start) + _MONTHS[unit]) if unit in _MONTHS else start + _LENGTHS[unit]


def _month_of(micros: int) -> int:
    """Return the number of a time's month, of which year 0 has the first twelve, in any year of the calendar."""
    day = micros // _DAY + 719_468  # days since March 1 of year 0
    era, in_era = divmod(day, 146_097)
    year = (in_era - in_era // 1460 + in_era // 36_524 - in_era // 146_096) // 365
    in_year = in_era - (365 * year + year // 4 - year // 100)
    return 12 * (era * 400 + year) + (5 * in_year + 2) // 153 + 2


def _month(number: int) -> int:
    """Return the start of a month by its number."""
    year, month = divmod(number - 2, 12)
    era, in_era = divmod(year, 400)
    in_year = (153 * month + 2) // 5
    return (era * 146_097 + in_era * 365 + in_era // 4 - in_era // 100 + in_year - 719_468) * _DAY


def micros_of(moment: Canonical) -> int | None:
    """Convert a canonical date or datetime to microseconds since 1970, without smaller fractions. None for NULL, and
    for a day that does not exist."""
    whole, _, fraction = str(moment).removesuffix("Z").partition(".")
    try:
        since = dt.datetime.fromisoformat(whole) - _EPOCH
    except ValueError:
        return None
    return since // dt.timedelta(microseconds=1) + int(fraction[:6].ljust(6, "0"))
