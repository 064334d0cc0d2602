"""Build the parameters of a panel's Solr query, with JSON facets.

Every query excludes barriers and tombstones (`_kind:row`). It applies the selected words, values and time range, and
the panel's own filters. User input never becomes query syntax (see `columns` and `query`)."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from cdc.stored.fields import KIND, ROW, TS, UNIQUE_KEY
from cdc.topology.panels import Interval, Panel
from tailorbird.web.dashboard.panels.columns import Misfit, PanelColumn, filtered
from tailorbird.web.dashboard.panels.fitting import FitBoard, FitPanel
from tailorbird.web.dashboard.panels.state import Selection, before, columns_chosen
from tailorbird.web.dashboard.query import Params, search_words, words_query
from tailorbird.web.dashboard.time import DAY, Axis, Gap, Span, aligned, axis_of, edges, solr_instant

MOST_EDGES = 400
GROUPS = 200  # of the outer one of a table's two columns
_WIDTHS: dict[Interval, Gap] = {
    "second": Gap(count=1, unit="SECOND"),
    "minute": Gap(count=1, unit="MINUTE"),
    "hour": Gap(count=1, unit="HOUR"),
    "day": Gap(count=1, unit="DAY"),
    "week": Gap(count=7, unit="DAY"),
    "month": Gap(count=1, unit="MONTH"),
    "year": Gap(count=1, unit="YEAR"),
}
_NEARLY_ALL, _FEW = 0.98, 4  # the share of the rows, and in how many neighbouring bars
_LONG = 50 * 365 * DAY
_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """The least and greatest value on a panel's axis.

    `most_low` and `most_high` bound nearly all rows, if percentiles were requested."""

    low: float
    high: float
    most_low: float
    most_high: float

    @property
    def long(self) -> bool:
        """Return whether the axis is so long that an end may be far from nearly all rows. Percentiles are then
        useful."""
        return self.high - self.low > _LONG

    @property
    def shown(self) -> tuple[float, float]:
        """Return the range to draw. It excludes outliers, which would leave a single bar for all other rows."""
        room = self.most_high - self.most_low
        return max(self.low, self.most_low - room), min(self.high, self.most_high + room)


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """The bars of a histogram: `count` bars, each `width` wide, starting at `start`."""

    start: float
    width: float
    count: int


def needs_extent(fit: FitPanel, span: Span | None) -> bool:
    """Return whether a panel over time first needs a query for its least and greatest value."""
    return fit.panel.type in ("timeseries", "heatmap") and span is None


def extent_params(
    board: FitBoard, fit: FitPanel, chosen: Selection, span: Span | None, *, most: bool = False
) -> Params:
    """Return the query for the least and greatest value of a panel. `most` adds the range of nearly all rows."""
    number = fit.panel.type == "histogram"
    field = fit.fields[0].ordered if number else _time(board).ordered
    facets = {"low": f"min({field})", "high": f"max({field})"}
    if most:
        facets["most"] = f"percentile({field},1,99)"
    return {**rows_params(board, fit, chosen, span), "json.facet": _json(facets)}


def axis_for(panel: Panel, span: Span) -> Axis:
    """Return the bars for a time range. They have the panel's interval, or a wider one if there would be too many."""
    for interval in get_args(Interval)[get_args(Interval).index(panel.interval) :]:
        if interval == "auto":
            return axis_of(span)
        axis = aligned(span, _WIDTHS[interval])
        if sum(1 for _ in edges(axis, MOST_EDGES + 1)) <= MOST_EDGES:
            return axis
    return axis_of(span)


def steps_for(panel: Panel, extent: Extent, *, whole: bool) -> Steps:
    """Return about `buckets` bars with a round width for an extent. Bars of whole numbers have a width of at least
    1."""
    low, high = extent.shown
    wanted = (high - low) / panel.buckets or 1.0
    power = 10.0 ** math.floor(math.log10(wanted))
    width = next(step * power for step in _STEPS if step * power >= wanted * 0.999)
    if whole:
        width = max(1.0, float(round(width)))
    start = low // width * width
    return Steps(start=start, width=width, count=int((high - start) // width) + 1)


def crowded(steps: Steps, counts: Sequence[int]) -> bool:
    """Return whether nearly all rows are in a few adjacent bars. `counts` are the rows of each bar.

    If so, percentiles, which are expensive, should determine the range."""
    total, few = sum(counts), steps.count // _FEW
    windows = (sum(counts[i : i + few]) for i in range(len(counts) - few + 1))
    return few > 0 and total > 0 and any(rows >= _NEARLY_ALL * total for rows in windows)


def panel_params(
    board: FitBoard, fit: FitPanel, chosen: Selection, span: Span | None, drawn: Axis | Steps | None
) -> Params:
    """Return the query of a panel. `drawn` is the axis of a time panel or histogram, otherwise None.

    Raises ValueError for a panel without a query."""
    panel, params = fit.panel, rows_params(board, fit, chosen, span)
    if panel.type == "table" and not panel.measures:
        return {**params, **_shown(board, fit)}
    if panel.type == "number":
        facets = sums_of(fit)
        if span is not None:
            earlier = _within(_time(board), before(span))
            facets["before"] = {"type": "query", "q": earlier, "domain": {"excludeTags": "time"}, "facet": sums_of(fit)}
    elif panel.type in ("timeseries", "heatmap") and isinstance(drawn, Axis):
        facets = _over_time(board, fit, drawn)
    elif panel.type == "histogram" and isinstance(drawn, Steps):
        number = int if fit.fields[0].whole else float  # Solr rejects fractions for whole-number fields, even 0.0
        facets = {
            "bars": {
                "type": "range",
                "field": fit.fields[0].number,
                "start": number(drawn.start),
                "end": number(drawn.start + drawn.count * drawn.width),
                "gap": number(drawn.width),
                "other": "all",
                "facet": sums_of(fit),
            }
        }
    elif panel.type == "terms":
        facets = {"terms": terms_facet(fit, fit.fields[0], panel.top, missing=True), **sums_of(fit)}
    elif panel.type == "table":
        facets = {"terms": _grouped(fit)}
    else:
        raise ValueError(f"a {panel.type} panel has no query")
    return {**params, "json.facet": _json(facets)}


def rows_params(board: FitBoard, fit: FitPanel | None, chosen: Selection, span: Span | None) -> Params:
    """Return the search and filters for the selected rows, without documents.

    Raises Misfit for a value that a column cannot have."""
    params: Params = {"q": "*:*", "rows": 0}
    queries = [f"{KIND}:{ROW}"]
    words = search_words(chosen.words)
    if words and board.words:
        queries.append("{!edismax qf=$qf uf=$uf mm=0 q.op=OR sow=false lowercaseOperators=false v=$words}")
        params |= {"qf": " ".join(board.words), "uf": "-*", "words": words_query(words)}
    for i, name in enumerate(columns_chosen(chosen)):
        clauses: Params = {}
        column, values = board.column(name), chosen.picks[name]
        texts = sorted(value for value in values if value is not None)
        if texts:
            clauses |= filtered(column, "in", texts, f"c{i}t")
        if None in values:
            clauses |= filtered(column, "is null", (), f"c{i}n")
        params |= clauses
        should = " ".join(f"should=${one}" for one in (f"c{i}t", f"c{i}n") if one in clauses)
        queries.append(f"{{!bool tag=c_{name} {should}}}")
    for i, (name, (low, high)) in enumerate(sorted(chosen.between.items())):
        column = board.column(name)
        params |= filtered(column, ">=", (low,), f"b{i}l") | filtered(column, "<", (high,), f"b{i}h")
        queries.append(f"{{!bool must=$b{i}l must=$b{i}h}}")
    for i, (column, one) in enumerate(fit.where if fit else ()):
        params |= filtered(column, one.operator, one.values, f"w{i}")
        queries.append(f"{{!bool must=$w{i}}}")
    if span is not None and board.time is not None:
        queries.append("{!tag=time}" + _within(board.time, span))
    params["fq"] = queries
    return params


def _within(time: PanelColumn, span: Span) -> str:
    return f"{time.ordered}:[{solr_instant(span.start)} TO {solr_instant(span.end)}}}"


def sums_of(fit: FitPanel) -> dict[str, Any]:
    """Return the measures `m0`, … of one bucket as facet functions.

    An average also gets its sum and count, from which the average of the remaining rows is computed."""
    found: dict[str, Any] = {f"m{i}": one for i, one in enumerate(fit.sums) if one}
    for i, (measure, column) in enumerate(zip(fit.panel.measures, fit.measured, strict=True)):
        if measure.function == "avg" and column is not None:
            found |= {f"s{i}": f"sum({column.number})", f"n{i}": f"countvals({column.number})"}
    return found


def terms_facet(fit: FitPanel, column: PanelColumn, limit: int, *, missing: bool, inner: Any = None) -> dict[str, Any]:
    """Return a facet for the `limit` values of a column that are greatest by the first measure.

    `missing` counts rows without a value, `inner` is nested in each value."""
    return {
        "type": "terms",
        "field": column.counted,
        "limit": limit,
        "missing": missing,
        "numBuckets": True,
        "sort": {"m0": "desc"} if fit.sums[0] else {"count": "desc"},
        "facet": sums_of(fit) | (inner or {}),
    }


def bars_facet(board: FitBoard, axis: Axis) -> dict[str, Any]:
    """Return a facet with one bucket per bar of an axis."""
    return {
        "type": "range",
        "field": _time(board).ordered,
        "start": solr_instant(axis.span.start),
        "end": solr_instant(axis.span.end),
        "gap": axis.gap.solr,
    }


def _over_time(board: FitBoard, fit: FitPanel, axis: Axis) -> dict[str, Any]:
    bars = bars_facet(board, axis) | {"facet": sums_of(fit)}
    # with `other` Solr returns the number of rows before the first bar and after the last
    whole = {**bars, "other": "all"}
    if fit.split is None:
        return {"bars": whole}
    limit = fit.panel.top
    return {"bars": whole, "terms": terms_facet(fit, fit.split, limit, missing=True, inner={"bars": bars})}


def _grouped(fit: FitPanel) -> dict[str, Any]:
    first, *rest = fit.fields
    if not rest:
        return terms_facet(fit, first, fit.panel.top, missing=True)
    inner = {"terms": terms_facet(fit, rest[0], fit.panel.top, missing=True)}
    return terms_facet(fit, first, GROUPS, missing=True, inner=inner)


def _shown(board: FitBoard, fit: FitPanel) -> Params:
    time = board.time.ordered if board.time else TS
    return {
        "rows": fit.panel.top,
        "sort": f"{time} desc, {UNIQUE_KEY} desc",
        "fl": ",".join([UNIQUE_KEY, *_once(column.name for column in fit.fields)]),
    }


def _once(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))


def _time(board: FitBoard) -> PanelColumn:
    if board.time is None:
        raise Misfit("a dashboard without `time`", "`time:` with the column of a row's time")
    return board.time


def _json(facets: dict[str, Any]) -> str:
    return json.dumps(facets, separators=(",", ":"))
