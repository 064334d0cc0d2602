"""Read Solr's response to a dashboard's query."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cdc.stored.fields import FENCE, INDEXED_AT, TS, UNIQUE_KEY
from tailorbird.web.dashboard.query import Shown, Value
from tailorbird.web.dashboard.time import Span, instant_of
from tailorbird.web.dashboard.view import View


@dataclass(frozen=True, slots=True, kw_only=True)
class PageRow:
    """A document in the table of a page: its key and version, and when its newest change was committed and indexed
    (ms)."""

    key: str
    version: int
    committed_ms: int | None
    indexed_ms: int | None
    values: Mapping[str, Shown]


@dataclass(frozen=True, slots=True, kw_only=True)
class FacetCounts:
    """The values of a facet with their counts, most frequent first. `more` is the number of values that are not
    listed."""

    counts: Mapping[Value, int]
    more: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The result of one refresh: `total` of `all_rows` rows match. `received_ms` is when this process received it.

    - `span`: the time range of the whole index. `bars`: (start, number of rows) of each bar of the histogram.
    - `newest_commit_ms`, `newest_indexed_ms`: the maxima over the matching rows.
    - `incomplete`: the number of changes that the join has refused, according to the barriers."""

    received_ms: int
    total: int
    all_rows: int
    rows: tuple[PageRow, ...]
    facets: Mapping[str, FacetCounts]
    bars: tuple[tuple[int, int], ...]
    span: Span | None
    newest_commit_ms: int | None
    newest_indexed_ms: int | None
    incomplete: int = 0


def read_answer(view: View, response: Mapping[str, Any], *, received_ms: int) -> Answer:
    """Parse Solr's response to a query of `query_params`. Raises KeyError or TypeError if it is another one."""
    facets = response.get("facets", {})
    everything = facets.get("all", {"count": 0})
    first, last = instant_of(everything.get("first")), instant_of(everything.get("last"))
    return Answer(
        received_ms=received_ms,
        total=response["response"]["numFound"],
        all_rows=everything["count"],
        rows=tuple(_row(view, document) for document in response["response"]["docs"]),
        facets={column.name: _counts(facets.get(f"f{i}", {})) for i, column in enumerate(view.facets)},
        bars=tuple(
            (start, bucket["count"])
            for bucket in facets.get("bars", {}).get("buckets", ())
            if (start := instant_of(bucket["val"])) is not None
        ),
        span=None if first is None or last is None else Span(start=first, end=last + 1),
        newest_commit_ms=_whole(facets.get("newest")),
        newest_indexed_ms=_whole(facets.get("indexed")),
        incomplete=_whole(facets.get("barriers", {}).get("incomplete")) or 0,
    )


def _row(view: View, document: Mapping[str, Any]) -> PageRow:
    return PageRow(
        key=document[UNIQUE_KEY],
        version=document.get(FENCE, 0),
        committed_ms=document.get(TS),
        indexed_ms=document.get(INDEXED_AT),
        values={column.name: document.get(column.name) for column in view.columns},
    )


def _counts(facet: Mapping[str, Any]) -> FacetCounts:
    buckets = facet.get("buckets", ())
    counts: dict[Value, int] = {bucket["val"]: bucket["count"] for bucket in buckets}
    if missing := facet.get("missing", {}).get("count", 0):
        counts[None] = missing
    return FacetCounts(counts=counts, more=max(facet.get("numBuckets", 0) - len(buckets), 0))


def _whole(number: Any) -> int | None:
    """Convert a number from Solr to an integer. None if it is absent or not finite, because no row matches."""
    return int(number) if isinstance(number, int | float) and number == number and abs(number) < 1e18 else None
