"""From Solr's JSON to what the page says: counts, freshness, and the words for them."""

from __future__ import annotations

from typing import Any

from tailorbird.web.dashboard.answer import Answer, PageRow, read_answer
from tailorbird.web.dashboard.freshness import Freshness
from tailorbird.web.dashboard.text import age_text, cell_text, count_text, facet_text, incomplete_text, latency_text
from tailorbird.web.dashboard.view import PageColumn, View

VIEW = View(
    title="t",
    facets=(PageColumn(name="status", look="text", heading="Status"),),
    columns=(PageColumn(name="id", look="number", heading="Id"),),
    time="_q_at",
    time_heading="At",
    words=(),
)


def answer(*rows: PageRow, received_ms: int, newest_indexed_ms: int) -> Answer:
    return Answer(
        received_ms=received_ms,
        total=len(rows),
        all_rows=len(rows),
        rows=rows,
        facets={},
        bars=(),
        span=None,
        newest_commit_ms=None,
        newest_indexed_ms=newest_indexed_ms,
    )


def row(key: str, version: int, *, committed_ms: int, indexed_ms: int) -> PageRow:
    return PageRow(key=key, version=version, committed_ms=committed_ms, indexed_ms=indexed_ms, values={})


def test_answers_of_solr_are_read_whole() -> None:
    """Values stay exact, an empty text and no value are two things, and the span reaches past the last row."""
    response: dict[str, Any] = {
        "response": {"numFound": 2, "docs": [{"_id": "a", "_fence": 7, "_ts": 5, "_indexed_at": 6, "id": 2**60}]},
        "facets": {
            "count": 2,
            "newest": 5,
            "indexed": 6.0,
            "all": {"count": 9, "first": "2026-01-01T00:00:00Z", "last": "2026-01-01T00:00:01Z"},
            "f0": {"numBuckets": 12, "missing": {"count": 1}, "buckets": [{"val": "", "count": 1}]},
            "bars": {"buckets": [{"val": "2026-01-01T00:00:00Z", "count": 2}]},
        },
    }
    read = read_answer(VIEW, response, received_ms=10)
    assert (read.total, read.all_rows, read.newest_commit_ms, read.newest_indexed_ms) == (2, 9, 5, 6)
    assert read.rows[0].values == {"id": 2**60}
    assert read.facets["status"].counts == {"": 1, None: 1}
    assert read.facets["status"].more == 11
    assert read.span is not None
    assert read.span.end - read.span.start == 1001
    assert [count for _, count in read.bars] == [2]


def test_an_empty_index_is_an_answer() -> None:
    """Solr leaves out what it can not compute over no rows."""
    read = read_answer(VIEW, {"response": {"numFound": 0, "docs": []}, "facets": {"count": 0}}, received_ms=1)
    assert (read.total, read.span, read.newest_commit_ms) == (0, None, None)
    assert read.facets["status"].counts == {}


def test_freshness_is_commit_to_first_sight() -> None:
    """A version counts once, when the page first saw it; what was there before the page looked does not count."""
    old = row("old", 2, committed_ms=0, indexed_ms=100)
    new = row("new", 4, committed_ms=100_000, indexed_ms=100_400)
    freshness = Freshness()
    freshness.observe(answer(old, received_ms=100_000, newest_indexed_ms=100))
    assert freshness.p50(100_000) is None
    freshness.observe(answer(new, old, received_ms=100_900, newest_indexed_ms=100_400))
    freshness.observe(answer(new, old, received_ms=101_900, newest_indexed_ms=100_400))
    assert (freshness.of("new", 4), freshness.of("old", 2)) == (900, None)
    assert freshness.p50(101_900) == 900


def test_a_new_version_of_a_row_counts_again() -> None:
    """An update of a row that is shown is an arrival like an insert."""
    freshness = Freshness()
    freshness.observe(answer(row("a", 2, committed_ms=0, indexed_ms=1), received_ms=10, newest_indexed_ms=1))
    changed = row("a", 4, committed_ms=60_000, indexed_ms=60_100)
    freshness.observe(answer(changed, received_ms=60_300, newest_indexed_ms=60_100))
    assert freshness.of("a", 4) == 300


def test_a_row_that_moves_up_is_no_arrival() -> None:
    """When a shown row is deleted, an old one takes its place, which does not affect freshness."""
    a, b = row("a", 2, committed_ms=0, indexed_ms=500_000), row("b", 2, committed_ms=0, indexed_ms=1)
    freshness = Freshness()
    freshness.observe(answer(a, received_ms=600_000, newest_indexed_ms=500_000))
    freshness.observe(answer(b, received_ms=601_000, newest_indexed_ms=1))
    assert freshness.of("b", 2) is None
    assert freshness.p50(601_000) is None


def test_other_filters_begin_again() -> None:
    """Rows that another search brings up are not arrivals, however new they are."""
    freshness = Freshness()
    freshness.observe(answer(received_ms=1_000, newest_indexed_ms=900))
    freshness.restart()
    freshness.observe(answer(row("a", 2, committed_ms=1, indexed_ms=950), received_ms=2_000, newest_indexed_ms=950))
    assert freshness.of("a", 2) is None


def test_median_is_of_the_last_minute() -> None:
    """An hour ago does not make now look better or worse."""
    freshness = Freshness()
    freshness.observe(answer(received_ms=0, newest_indexed_ms=0))
    for i, latency in enumerate((100, 200, 900)):
        now = 30_000 * (i + 1)
        arrived = row(str(i), 2, committed_ms=now - latency, indexed_ms=now)
        freshness.observe(answer(arrived, received_ms=now, newest_indexed_ms=now))
    assert freshness.p50(90_000) == 200
    assert freshness.p50(125_000) == 900
    assert freshness.p50(200_000) is None


def test_values_read_well() -> None:
    """People see dates without ISO's letters, thousands apart, and what is missing as missing."""
    assert cell_text("2017-09-15T10:12:00.5Z", "time") == "2017-09-15 10:12:00"
    assert cell_text("2017-09-15Z", "time") == "2017-09-15"
    assert cell_text("<b>x</b>", "text") == "<b>x</b>"
    assert cell_text(True, "text") == "yes"
    assert cell_text(2**63, "number") == "9223372036854775808"
    assert (cell_text(None, "text"), facet_text(None, "text"), facet_text("", "text")) == ("—", "(none)", "(empty)")
    assert len(cell_text("x" * 10_000, "text")) == 301
    assert count_text(1234567) == "1\u202f234\u202f567"
    assert [latency_text(ms) for ms in (0, 999, 1250, 61_000)] == ["0 ms", "999 ms", "1.2 s", "1 min"]
    assert [age_text(ms) for ms in (-5, 0, 12_000, 7_200_000, 86_400_000, 200_000_000)] == [
        "now",
        "now",
        "12 s",
        "2 h",
        "1 day",
        "2 days",
    ]


def test_what_is_missing_is_reported_with_the_command() -> None:
    """The count is the barriers' greatest one. A collection without barriers, or without that field, has none."""
    empty: dict[str, Any] = {"response": {"numFound": 0, "docs": []}}
    barriers = {"facets": {"barriers": {"count": 2, "incomplete": 1204.0}}}
    assert read_answer(VIEW, {**empty, **barriers}, received_ms=1).incomplete == 1204
    for facets in ({}, {"barriers": {"count": 0}}):
        assert read_answer(VIEW, {**empty, "facets": facets}, received_ms=1).incomplete == 0
    assert incomplete_text(0, "t.yml") == ""
    assert incomplete_text(1, "t.yml").endswith("1 change was refused. Run: tailorbird dead-letters list t.yml")
    assert "1\u202f204 changes were refused." in incomplete_text(1204, "t.yml")
