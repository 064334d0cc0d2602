"""Convert Solr's answer to a panel's query into plain values for the browser (JSON).

    number      {value, before}: `before` is the figure of the previous period; None if there is none
    timeseries  {gap, edges: [ms…], end, series: [{label, value, kind, points: [y…]}], outside}; `outside`: rows outside
                all bars; kind: value | none | other | all
    terms       {bars: [{label, value, kind, y}], more}: `more` is the number of further values without `other`
    histogram   {start, width, bars: [y…], below, above}: rows left out at either end
    heatmap     as timeseries
    table       {columns: [{name, heading, look}], rows: [[value…]], keys: [key…] of rows, more}
    text        {text}

`value` is the text that a click filters by; None if a row has no value. Every answer has `inexact`: a sum of whole
numbers exceeds 2^53, so that a double cannot represent it exactly. `looks` is time or number, by measure.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from cdc.stored.fields import UNIQUE_KEY
from cdc.topology.panels import PanelMeasure
from tailorbird.web.dashboard.panels.asking import Extent, Steps
from tailorbird.web.dashboard.panels.columns import PanelColumn
from tailorbird.web.dashboard.panels.fitting import FitPanel
from tailorbird.web.dashboard.query import Value, value_text
from tailorbird.web.dashboard.text import NONE, facet_text
from tailorbird.web.dashboard.time import Axis, edges, instant_of

Reported = dict[str, Any]
_EXACT = 2**53


def read_extent(response: Mapping[str, Any]) -> Extent | None:
    """Parse the response to `extent_params`. None if no row has a value."""
    facets = response["facets"]
    low, high = _number(facets.get("low")), _number(facets.get("high"))
    most = facets.get("most") or (low, high)
    least, greatest = _number(most[0]), _number(most[1])
    if low is None or high is None:
        return None
    return Extent(
        low=low,
        high=high,
        most_low=low if least is None else least,
        most_high=high if greatest is None else greatest,
    )


def read_counts(response: Mapping[str, Any], steps: Steps) -> list[int]:
    """Return the number of rows in each bar of a histogram."""
    counts = [0] * steps.count
    for bucket in response["facets"].get("bars", {}).get("buckets", []):
        if 0 <= (place := _place(bucket, steps)) < steps.count:
            counts[place] = int(bucket["count"])
    return counts


def _place(bucket: Mapping[str, Any], steps: Steps) -> int:
    return round((float(bucket["val"]) - steps.start) / steps.width)


def read_panel(fit: FitPanel, response: Mapping[str, Any], drawn: Axis | Steps | None) -> Reported:
    """Convert the response to `panel_params` to the JSON above. Raises KeyError or TypeError for another response."""
    kind = fit.panel.type
    if kind == "text":
        return {"text": fit.panel.text, "inexact": False}
    if kind == "table" and not fit.panel.measures:
        return _rows(fit, response) | {"inexact": False}
    facets = response["facets"]
    if kind == "number":
        earlier = facets.get("before")
        reported: Reported = {
            "value": _figure(fit, facets),
            "before": None if earlier is None else _figure(fit, earlier),
        }
    elif kind in ("timeseries", "heatmap") and isinstance(drawn, Axis):
        reported = _over_time(fit, facets, drawn)
    elif kind == "histogram" and isinstance(drawn, Steps):
        reported = _histogram(fit, facets.get("bars", {}), drawn)
    elif kind == "terms":
        reported = _terms(fit, facets)
    else:
        reported = _grouped(fit, facets.get("terms", {}))
    return reported | {"inexact": _inexact(fit, facets), "looks": _looks(fit)}


def _looks(fit: FitPanel) -> list[str]:
    """Return the format of each measure. The minimum and maximum of times are times, in milliseconds."""
    pairs = zip(fit.panel.measures, fit.measured, strict=True)
    return ["time" if m.function in ("min", "max") and c is not None and not c.number else "number" for m, c in pairs]


def nothing(fit: FitPanel) -> Reported:
    """Return the JSON of a panel over an axis if no row has a value."""
    if fit.panel.type == "histogram":
        return {"start": 0, "width": 1, "bars": [], "below": 0, "above": 0, "inexact": False}
    return {"gap": "", "edges": [], "end": 0, "outside": 0, "series": [], "inexact": False}


def _figure(fit: FitPanel, bucket: Mapping[str, Any], number: int = 0) -> float | int | None:
    """Return a measure of one bucket. Without rows a count is 0, and other measures are None."""
    measure, sum_ = fit.panel.measures[number], fit.sums[number]
    if not sum_:
        return int(bucket.get("count", 0))
    found = bucket.get(f"m{number}")
    if isinstance(found, str):  # the minimum or maximum of times
        return instant_of(found)
    figure = _number(found)
    if figure is None:
        return 0 if measure.function == "unique" else None
    if measure.function == "sum" and not bucket.get("count", 1):
        return None
    column = fit.measured[number]
    return int(figure) if figure.is_integer() and column is not None and _whole(measure, column) else figure


def _whole(measure: PanelMeasure, column: PanelColumn) -> bool:
    return measure.function == "unique" or (column.whole and measure.function in ("sum", "min", "max"))


def _rest(fit: FitPanel, whole: Mapping[str, Any], parts: Sequence[Mapping[str, Any]]) -> float | int | None:
    """Return the first measure over the rows of `whole` that are in none of the `parts`. None if it cannot be
    computed."""
    measure, column = fit.panel.measures[0], fit.measured[0]
    rows = int(whole.get("count", 0)) - sum(int(part.get("count", 0)) for part in parts)
    if rows <= 0 or not measure.additive:
        return None
    if column is None:
        return rows

    def rest(name: str) -> float:
        return (_number(whole.get(name)) or 0.0) - math.fsum(_number(part.get(name)) or 0.0 for part in parts)

    if measure.function == "avg":
        return rest("s0") / counted if (counted := rest("n0")) > 0 else None
    figure = rest("m0")
    return int(figure) if column.whole else figure


def _terms(fit: FitPanel, facets: Mapping[str, Any]) -> Reported:
    column, terms = fit.fields[0], facets.get("terms", {})
    buckets = terms.get("buckets", [])
    bars = [named(column, bucket["val"]) | {"y": _figure(fit, bucket)} for bucket in buckets]
    without = [terms["missing"]] if terms.get("missing", {}).get("count") else []
    bars += [named(column, None) | {"y": _figure(fit, one)} for one in without]
    more = max(terms.get("numBuckets", 0) - len(buckets), 0)
    # a row with several values is in several buckets, so the remaining rows cannot be computed
    rest = None if column.many or not more else _rest(fit, facets, [*buckets, *without])
    if rest is not None:
        bars.append({"label": f"other ({more})", "value": None, "kind": "other", "y": rest})
        more = 0
    return {"bars": bars, "more": more}


def _over_time(fit: FitPanel, facets: Mapping[str, Any], axis: Axis) -> Reported:
    places = list(edges(axis, 10_000))
    ends = facets.get("bars", {})
    outside = sum(int(ends.get(end, {}).get("count", 0)) for end in ("before", "after"))
    reported: Reported = {"gap": str(axis.gap), "edges": places, "end": axis.span.end, "outside": outside}
    whole, column = _bars(facets), fit.split
    if column is None:
        series = [
            {
                "label": str(measure),
                "value": None,
                "kind": "all",
                "points": [_figure(fit, whole.get(at, {}), i) for at in places],
            }
            for i, measure in enumerate(fit.panel.measures)
        ]
        return {**reported, "series": series}
    terms = facets.get("terms", {})
    buckets = terms.get("buckets", [])
    without = [terms["missing"]] if terms.get("missing", {}).get("count") else []
    parts = [_bars(one) for one in (*buckets, *without)]
    names = [named(column, one["val"]) for one in buckets] + [named(column, None) for _ in without]
    series = [
        name | {"points": [_figure(fit, part.get(at, {})) for at in places]}
        for name, part in zip(names, parts, strict=True)
    ]
    more = max(terms.get("numBuckets", 0) - len(buckets), 0)
    if more and not column.many and fit.panel.measures[0].additive:
        rest = [_rest(fit, whole.get(at, {}), [part.get(at, {}) for part in parts]) for at in places]
        series.append({"label": f"other ({more})", "value": None, "kind": "other", "points": rest})
        more = 0
    return {**reported, "series": series, "more": more}


def _bars(facets: Mapping[str, Any]) -> dict[int, Mapping[str, Any]]:
    buckets = facets.get("bars", {}).get("buckets", [])
    return {at: bucket for bucket in buckets if (at := instant_of(bucket["val"])) is not None}


def _histogram(fit: FitPanel, bars: Mapping[str, Any], steps: Steps) -> Reported:
    figures: list[float | int | None] = [0 if not fit.sums[0] else None] * steps.count
    for bucket in bars.get("buckets", []):
        if 0 <= (place := _place(bucket, steps)) < steps.count:
            figures[place] = _figure(fit, bucket)
    ends = {name: int(bars.get(end, {}).get("count", 0)) for name, end in (("below", "before"), ("above", "after"))}
    return {"start": steps.start, "width": steps.width, "bars": figures, **ends}


def _grouped(fit: FitPanel, terms: Mapping[str, Any]) -> Reported:
    found: list[tuple[list[Reported], list[float | int | None]]] = []
    first, *rest = fit.fields
    more = _more(terms)
    for name, bucket in _buckets(first, terms):
        if not rest:
            found.append(([name], _figures(fit, bucket)))
            continue
        inner = bucket.get("terms", {})
        more += _more(inner)
        found += [([name, second], _figures(fit, one)) for second, one in _buckets(rest[0], inner)]
    found.sort(key=lambda row: (row[1][0] is not None, row[1][0] or 0), reverse=True)
    columns: list[Reported] = [{"name": c.name, "heading": c.heading, "look": c.look} for c in fit.fields]
    columns += [{"name": "", "heading": str(measure), "look": "number"} for measure in fit.panel.measures]
    shown = found[: fit.panel.top]
    return {
        "columns": columns,
        "rows": [[*names, *figures] for names, figures in shown],
        "keys": [],
        "more": more + len(found) - len(shown),
    }


def _figures(fit: FitPanel, bucket: Mapping[str, Any]) -> list[float | int | None]:
    return [_figure(fit, bucket, i) for i in range(len(fit.panel.measures))]


def _buckets(column: PanelColumn, terms: Mapping[str, Any]) -> list[tuple[Reported, Mapping[str, Any]]]:
    found = [(named(column, bucket["val"]), bucket) for bucket in terms.get("buckets", [])]
    return [*found, *([(named(column, None), terms["missing"])] if terms.get("missing", {}).get("count") else [])]


def _more(terms: Mapping[str, Any]) -> int:
    return max(int(terms.get("numBuckets", 0)) - len(terms.get("buckets", [])), 0)


def _rows(fit: FitPanel, response: Mapping[str, Any]) -> Reported:
    documents = response["response"]["docs"]
    return {
        "columns": [{"name": c.name, "heading": c.heading, "look": c.look} for c in fit.fields],
        "rows": [[document.get(column.name) for column in fit.fields] for document in documents],
        "keys": [document[UNIQUE_KEY] for document in documents],
        "more": max(response["response"]["numFound"] - len(documents), 0),
    }


def named(column: PanelColumn, value: Value) -> Reported:
    """Return the JSON of a column's value: its label, the text for a filter, and its kind (`none`: no value)."""
    if value is None:
        return {"label": NONE, "value": None, "kind": "none"}
    return {"label": facet_text(value, column.look), "value": value_text(value), "kind": "value"}


def _number(value: object) -> float | None:
    """Convert a number or time from Solr; times become milliseconds. None if no row has a value."""
    if isinstance(value, str):
        moment = instant_of(value)
        return None if moment is None else float(moment)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def _inexact(fit: FitPanel, facets: Mapping[str, Any]) -> bool:
    for i, (measure, column) in enumerate(zip(fit.panel.measures, fit.measured, strict=True)):
        if measure.function == "sum" and column is not None and column.whole:
            figures = [_number(facets.get(f"m{i}")), *(_number(b.get(f"m{i}")) for b in _all_buckets(facets))]
            if any(figure is not None and abs(figure) > _EXACT for figure in figures):
                return True
    return False


def _all_buckets(facets: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [*facets.get("terms", {}).get("buckets", []), *facets.get("bars", {}).get("buckets", [])]
