"""Query a split series or heatmap in two steps: first the greatest values of the splitting column, then their bars.

In one step, Solr would search each bar within each value. In two steps, the values are known, and one pass over the
rows is enough. A column with several values per row needs one step (`asking`), because its bars would contain rows
of other values."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from tailorbird.web.dashboard.panels.asking import bars_facet, rows_params, sums_of, terms_facet
from tailorbird.web.dashboard.panels.columns import PanelColumn, filtered
from tailorbird.web.dashboard.panels.fitting import FitBoard, FitPanel
from tailorbird.web.dashboard.panels.state import Selection
from tailorbird.web.dashboard.query import Params, value_text
from tailorbird.web.dashboard.time import Axis, Span

_PART = "part"


def in_two_steps(fit: FitPanel) -> PanelColumn | None:
    """Return the column that splits a panel, if the panel is queried in two steps. Otherwise None."""
    return fit.split if fit.split is not None and not fit.split.many else None


def values_params(board: FitBoard, fit: FitPanel, column: PanelColumn, chosen: Selection, span: Span | None) -> Params:
    """Return the first query: the greatest values, the number of rows without a value, and the number of values."""
    facets = {"terms": terms_facet(fit, column, fit.panel.top, missing=True)}
    return {**rows_params(board, fit, chosen, span), "json.facet": json.dumps(facets)}


def parts_params(
    board: FitBoard,
    fit: FitPanel,
    column: PanelColumn,
    chosen: Selection,
    span: Span | None,
    axis: Axis,
    found: Mapping[str, Any],
) -> Params:
    """Return the second query: the bars, each divided by the values in `found`, the result of the first query."""
    terms = found["facets"].get("terms", {})
    values = [value_text(one["val"]) for one in terms.get("buckets", [])]
    params, inner = rows_params(board, fit, chosen, span), dict[str, Any]()
    if values:
        params |= filtered(column, "in", values, _PART)
        of_them = {"domain": {"filter": f"{{!bool must=${_PART}}}"}, "numBuckets": False}
        inner["parts"] = terms_facet(fit, column, len(values), missing=False) | of_them
    if terms.get("missing", {}).get("count"):
        none = f"{_PART}_none"
        params |= filtered(column, "is null", (), none)
        inner["none"] = {"type": "query", "q": f"{{!bool must=${none}}}", "facet": sums_of(fit)}
    bars = bars_facet(board, axis)
    return {**params, "json.facet": json.dumps({"bars": bars | {"other": "all", "facet": sums_of(fit) | inner}})}


def in_one(found: Mapping[str, Any], parts: Mapping[str, Any]) -> Mapping[str, Any]:
    """Merge the results of both queries into the form of a result of one step: values with nested bars."""
    bars = parts["facets"].get("bars", {})
    by_value, without = defaultdict[Any, list[Any]](list), list[Any]()
    for bar in bars.get("buckets", []):
        for one in bar.get("parts", {}).get("buckets", []):
            by_value[one["val"]].append({**one, "val": bar["val"]})
        if bar.get("none", {}).get("count"):
            without.append({**bar["none"], "val": bar["val"]})
    terms = found["facets"].get("terms", {})
    buckets = [one | {"bars": {"buckets": by_value[one["val"]]}} for one in terms.get("buckets", [])]
    missing = {"missing": {**terms["missing"], "bars": {"buckets": without}}} if "missing" in terms else {}
    return {**parts, "facets": {**parts["facets"], "terms": {**terms, "buckets": buckets, **missing}}}
