"""The histogram's time axis: few bars, whole spans, calendar months, and nothing lost at the edges."""

from __future__ import annotations

import datetime as dt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailorbird.web.dashboard.time import (
    DAY,
    GAPS,
    MOST_BARS,
    Span,
    axis_of,
    edges,
    instant_of,
    solr_instant,
)

FIRST = instant_of("0001-01-01T00:00:00Z") or 0
LAST = instant_of("9999-12-31T23:59:59.999Z") or 0
instants = st.integers(FIRST, LAST)


def at(text: str) -> int:
    instant = instant_of(text)
    assert instant is not None
    return instant


@given(instants, instants)
def test_every_span_fits_in_few_bars(first: int, second: int) -> None:
    """Any two instants that a database can hold make an axis of at most MOST_BARS bars that covers both."""
    start, end = sorted((first, second))
    axis = axis_of(Span(start=start, end=end + 1))
    starts = list(edges(axis))
    assert 1 <= len(starts) <= MOST_BARS
    assert starts[0] <= start
    assert end < axis.span.end or axis.span.end == LAST


@given(instants, instants)
def test_bars_are_in_order_and_within_the_axis(first: int, second: int) -> None:
    """Each bar begins after the one before, from the axis' start to before its end, so that every row is in exactly
    one."""
    start, end = sorted((first, second))
    axis = axis_of(Span(start=start, end=end + 1))
    starts = list(edges(axis))
    assert starts[0] == axis.span.start
    assert starts == sorted(set(starts))
    assert starts[-1] < axis.span.end


@given(instants)
def test_instants_survive_solr(instant: int) -> None:
    """An instant sent to Solr reads back as the same instant."""
    assert instant_of(solr_instant(instant)) == instant


@pytest.mark.parametrize("text", [None, 3, "", "soon", "-0050-01-01T00:00:00Z", "12026-01-01T00:00:00Z", "2026-01-01"])
def test_what_is_no_instant_is_none(text: object) -> None:
    """Years that no database holds, and other things, are left out instead of breaking the page."""
    assert instant_of(text) is None


def test_a_year_is_shown_by_the_week_and_a_month_by_half_days() -> None:
    """The finest bars that fit are taken."""
    year = Span(start=at("2026-01-01T00:00:00Z"), end=at("2027-01-01T00:00:00Z"))
    assert str(axis_of(year).gap) == "7 days"
    assert str(axis_of(Span(start=0, end=30 * DAY)).gap) == "12 hours"
    assert str(axis_of(Span(start=0, end=DAY)).gap) == "15 minutes"


def test_months_are_calendar_months() -> None:
    """Bars of months begin on the first, whatever the months' lengths."""
    axis = axis_of(Span(start=at("2022-02-10T00:00:00Z"), end=at("2026-02-10T00:00:00Z")))
    assert axis.gap.solr == "+1MONTH"
    assert {solr_instant(edge)[8:10] for edge in edges(axis)} == {"01"}


def test_weeks_begin_on_monday() -> None:
    """A week's bar is a week as people count it."""
    axis = axis_of(Span(start=at("2026-01-01T00:00:00Z"), end=at("2026-12-01T00:00:00Z")))
    days = {dt.datetime.fromisoformat(solr_instant(edge)[:10]).weekday() for edge in edges(axis)}
    assert days == {0}


def test_no_rows_apart_still_make_a_bar() -> None:
    """A span of a single instant is one bar that holds it."""
    axis = axis_of(Span(start=1234, end=1235))
    assert list(edges(axis)) == [1000]
    assert axis.span == Span(start=1000, end=2000)


def test_solr_words_of_gaps() -> None:
    """Gaps are written in Solr's date arithmetic."""
    assert [gap.solr for gap in GAPS[:2]] == ["+1SECOND", "+5SECONDS"]
