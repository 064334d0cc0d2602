"""The user's selection on a dashboard, as URL parameters, and the time range that it means.

    q=words   range=last 7 days   from=2026-01-01T00:00:00Z&to=…   f.country=DE&f.country=AT   n.country=1 (no value)
    b.amount=100..150 (from 100 on, below 150)

Anyone can write a link, so invalid parameters, and too many, are rejected with a reason."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import parse_qsl

from cdc.topology.panels import TimeRange, range_of
from tailorbird.web.dashboard.panels.columns import LONGEST_VALUE, Misfit, moment_of
from tailorbird.web.dashboard.time import DAY, HOUR, MINUTE, SECOND, Span

LONGEST_STATE, MOST_CHOSEN, LONGEST_SEARCH = 16_000, 100, 400
_UNITS = {"minute": MINUTE, "hour": HOUR, "day": DAY, "week": 7 * DAY}
# The steps in which "now" moves, as a part of the range: at most a thousandth. So all viewers of a range send the same
# query.
_TICKS = (SECOND, 10 * SECOND, MINUTE, 10 * MINUTE, HOUR, 6 * HOUR)


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The user's selection on a dashboard.

    - `words`: search words. `picks`: selected values by column (None: no value).
    - `between`: lower (inclusive) and upper bound by column.
    - `range`: a relative time range. `span`: a dragged one. None for both means the dashboard's range."""

    words: str = ""
    picks: Mapping[str, frozenset[str | None]] = field(default_factory=dict)
    between: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    range: TimeRange | None = None
    span: Span | None = None

    @property
    def key(self) -> str:
        """Return a text that is the same for equal selections."""
        picks = sorted((name, sorted(map(repr, values))) for name, values in self.picks.items() if values)
        return repr((self.words.split(), picks, sorted(self.between.items()), str(self.range), self.span))


def chosen_of(query: str) -> Selection:
    """Parse a URL's query string. Unknown parameters are ignored. Raises Misfit for an invalid selection."""
    if len(query) > LONGEST_STATE:
        raise Misfit(f"a link of {len(query)} characters", f"{LONGEST_STATE} at most")
    try:
        pairs = parse_qsl(query, keep_blank_values=True, max_num_fields=2 * MOST_CHOSEN, errors="strict")
    except ValueError as error:
        raise Misfit(f"a link that cannot be read: {error}", "one that this page wrote") from error
    picks: dict[str, set[str | None]] = {}
    between: dict[str, tuple[str, str]] = {}
    for name, value in pairs:
        kind, dot, column = name.partition(".")
        if dot and kind in ("f", "n"):
            picks.setdefault(column, set()).add(None if kind == "n" else value)
        elif dot and kind == "b":
            between[column] = _ends(column, value)
    chosen = [value for values in (*picks.values(), *between.values()) for value in values]
    if len(chosen) > MOST_CHOSEN or any(len(value or "") > LONGEST_VALUE for value in chosen):
        raise Misfit("too many values, or too long ones", f"{MOST_CHOSEN} values of {LONGEST_VALUE} characters at most")
    params = dict(pairs)
    return Selection(
        words=params.get("q", "")[:LONGEST_SEARCH],
        picks={name: frozenset(values) for name, values in picks.items()},
        between=between,
        range=_range(params["range"]) if "range" in params else None,
        span=_span(params) if "from" in params or "to" in params else None,
    )


def stretch(chosen: Selection, default: TimeRange, now_ms: int) -> Span | None:
    """Return the time range that a selection means now. None means no limit. `default` applies without a selected
    range.

    A relative range ends at the end of the current step (see `tick_ms`), so that it includes the newest rows."""
    if chosen.span is not None:
        return chosen.span
    wanted = default if chosen.range is None else chosen.range
    if not wanted.count:
        return None
    end = -(-now_ms // tick_ms(wanted)) * tick_ms(wanted)
    return Span(start=_before(end, wanted), end=end)


def tick_ms(wanted: TimeRange) -> int:
    """Return the step in milliseconds in which a relative range ("last 7 days") moves.

    Between two steps its bounds stay the same, so all viewers send the same query and share its result.
    """
    return max(tick for tick in _TICKS if tick == SECOND or tick * 1000 <= _length(wanted))


def before(span: Span) -> Span:
    """Return the time range of the same length that ends where this one starts."""
    return Span(start=span.start - (span.end - span.start), end=span.start)


def _length(wanted: TimeRange) -> int:
    days = {"month": 30 * DAY, "year": 365 * DAY}
    return wanted.count * (_UNITS | days)[wanted.unit]


def _before(end: int, wanted: TimeRange) -> int:
    if wanted.unit in _UNITS:
        return max(end - _length(wanted), -62_135_596_800_000)
    months = wanted.count * (12 if wanted.unit == "year" else 1)
    moment = dt.datetime(1970, 1, 1) + dt.timedelta(milliseconds=end)
    year, month = divmod(moment.year * 12 + moment.month - 1 - months, 12)
    if year < 1:
        return -62_135_596_800_000  # the first moment of the year 1
    day = moment.day
    while True:  # 31 March minus a month is a date in February
        try:
            back = moment.replace(year=year, month=month + 1, day=day)
            return (back - dt.datetime(1970, 1, 1)) // dt.timedelta(milliseconds=1)
        except ValueError:
            day -= 1


def _range(text: str) -> TimeRange:
    try:
        return range_of(text)
    except ValueError as error:
        raise Misfit(str(error), "all, or last 30 days") from error


def _ends(column: str, text: str) -> tuple[str, str]:
    low, _, high = text.partition("..")
    if not low or not high:
        raise Misfit(f"column {column[:LONGEST_VALUE]} between {text[:LONGEST_VALUE]!r}", "two ends: 100..150")
    return low, high


def _span(params: Mapping[str, str]) -> Span:
    start, end = moment_of(params.get("from", "")), moment_of(params.get("to", ""))
    if start is None or end is None or start >= end:
        raise Misfit("a time range without start or end", "from=2026-01-01T00:00:00Z&to=2026-02-01T00:00:00Z")
    return Span(start=start, end=end)


def columns_chosen(chosen: Selection) -> Sequence[str]:
    """Return the columns that a selection filters by, in order."""
    return sorted(name for name, values in chosen.picks.items() if values)
