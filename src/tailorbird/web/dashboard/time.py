"""The time axis of a dashboard: instants, time ranges, and the bars of a histogram.

Instants are whole milliseconds since 1970 UTC, like Solr's dates. A DATETIME has no time zone and is shown as
stored."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

SECOND = 1000
MINUTE, HOUR, DAY = 60 * SECOND, 3600 * SECOND, 86400 * SECOND
MOST_BARS = 100
_EPOCH = dt.datetime(1970, 1, 1)
_LAST = (dt.datetime.max - _EPOCH) // dt.timedelta(milliseconds=1)
_FIRST_MONDAY = 4 * DAY  # 1970-01-05


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A half-open time range: it includes `start` and excludes `end`."""

    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """The width of a bar: `count` times `unit`. `solr` is the same width in Solr's date syntax."""

    count: int
    unit: Literal["SECOND", "MINUTE", "HOUR", "DAY", "MONTH", "YEAR"]

    @property
    def solr(self) -> str:
        return f"+{self.count}{self.unit}{'S' if self.count > 1 else ''}"

    def __str__(self) -> str:
        unit = self.unit.lower()
        return unit if self.count == 1 else f"{self.count} {unit}s"


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """The bars of a histogram over a time range. The range starts and ends at an edge of a bar."""

    span: Span
    gap: Gap


_UNITS = {"SECOND": SECOND, "MINUTE": MINUTE, "HOUR": HOUR, "DAY": DAY}
GAPS = (
    Gap(count=1, unit="SECOND"),
    Gap(count=5, unit="SECOND"),
    Gap(count=15, unit="SECOND"),
    Gap(count=30, unit="SECOND"),
    Gap(count=1, unit="MINUTE"),
    Gap(count=5, unit="MINUTE"),
    Gap(count=15, unit="MINUTE"),
    Gap(count=30, unit="MINUTE"),
    Gap(count=1, unit="HOUR"),
    Gap(count=3, unit="HOUR"),
    Gap(count=6, unit="HOUR"),
    Gap(count=12, unit="HOUR"),
    Gap(count=1, unit="DAY"),
    Gap(count=2, unit="DAY"),
    Gap(count=7, unit="DAY"),
    Gap(count=1, unit="MONTH"),
    Gap(count=3, unit="MONTH"),
    Gap(count=1, unit="YEAR"),
    Gap(count=10, unit="YEAR"),
    Gap(count=100, unit="YEAR"),
    Gap(count=1000, unit="YEAR"),
)


def instant_of(text: object) -> int | None:
    """Parse an instant as Solr writes it (`2017-09-15T10:12:00.5Z`) into milliseconds; None for any other text."""
    if not isinstance(text, str) or not text.endswith("Z"):
        return None
    try:
        return (dt.datetime.fromisoformat(text[:-1]) - _EPOCH) // dt.timedelta(milliseconds=1)
    except (ValueError, TypeError):
        # Solr may return years before 1 or after 9999, but no database does
        return None


def solr_instant(instant: int) -> str:
    """Format an instant (milliseconds since 1970) as Solr reads it. Instants outside the years 1 to 9999 become the
    first or the last moment of these years."""
    moment = _moment(instant)
    return moment.isoformat(timespec="milliseconds") + "Z"


def axis_of(span: Span) -> Axis:
    """Return the finest bars for a time range that are at most `MOST_BARS`, or the coarsest ones if all are more.

    The range is extended to full bars."""
    for gap in GAPS:
        axis = aligned(span, gap)
        if sum(1 for _ in edges(axis, MOST_BARS + 1)) <= MOST_BARS:
            return axis
    return aligned(span, GAPS[-1])


def edges(axis: Axis, limit: int = 2 * MOST_BARS) -> Iterator[int]:
    """Yield the starts of the bars in order, in milliseconds since 1970, at most `limit`."""
    after = _stepper(axis.gap)
    edge = axis.span.start
    while edge < axis.span.end and limit > 0:
        yield edge
        edge, limit = after(edge), limit - 1


def aligned(span: Span, gap: Gap) -> Axis:
    """Divide a time range into bars of a width. The range is extended to full bars."""
    # there is no year 0: if the first bar would start there, all bars start one year later
    year = 1 if _moment(span.start).year < gap.count and gap.unit == "YEAR" else 0
    start = _truncation_point(span.start, gap, year)
    # a span without length still gets one bar
    last = _truncation_point(max(span.end - 1, span.start), gap, year)
    return Axis(span=Span(start=start, end=_stepper(gap)(last)), gap=gap)


def _truncation_point(instant: int, gap: Gap, first_year: int) -> int:
    if gap.unit in _UNITS:
        width = gap.count * _UNITS[gap.unit]
        origin = _FIRST_MONDAY if width == 7 * DAY else 0
        return max((instant - origin) // width * width + origin, _instant(dt.datetime.min))
    moment = _moment(instant)
    if gap.unit == "MONTH":
        month = (moment.month - 1) // gap.count * gap.count + 1
        return _instant(dt.datetime(moment.year, month, 1))
    return _instant(dt.datetime((moment.year - first_year) // gap.count * gap.count + first_year, 1, 1))


def _stepper(gap: Gap) -> Callable[[int], int]:
    """Return a function that returns the next edge after an edge."""
    if gap.unit in _UNITS:
        width = gap.count * _UNITS[gap.unit]
        return lambda edge: edge + width
    months = gap.count * (12 if gap.unit == "YEAR" else 1)

    def after(edge: int) -> int:
        moment = _moment(edge)
        year, month = divmod(moment.year * 12 + moment.month - 1 + months, 12)
        return _instant(dt.datetime(year, month + 1, 1)) if year <= dt.MAXYEAR else _LAST

    return after


def _moment(instant: int) -> dt.datetime:
    return _EPOCH + dt.timedelta(milliseconds=min(max(instant, _instant(dt.datetime.min)), _LAST))


def _instant(moment: dt.datetime) -> int:
    return (moment - _EPOCH) // dt.timedelta(milliseconds=1)
