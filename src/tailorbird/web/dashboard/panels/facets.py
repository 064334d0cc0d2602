"""Build the filters above panels and rows: the number of selected rows, and the values of each facet with their counts.

The counts of a facet ignore its own filter, so that more of its values can be selected."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from cdc.stored.fields import KIND, ROW, TS
from tailorbird.web.dashboard.panels.asking import rows_params
from tailorbird.web.dashboard.panels.columns import PanelColumn
from tailorbird.web.dashboard.panels.fitting import FitBoard
from tailorbird.web.dashboard.panels.reading import Reported, named
from tailorbird.web.dashboard.panels.state import Selection
from tailorbird.web.dashboard.query import Params
from tailorbird.web.dashboard.time import Span

MOST_VALUES = 200


def facets_params(board: FitBoard, chosen: Selection, span: Span | None) -> Params:
    """Return one query for all facets."""
    facets: dict[str, Any] = {
        "newest": f"max({TS})",
        "all": {"type": "query", "q": "*:*", "domain": {"query": f"{KIND}:{ROW}"}},
    }
    facets |= {
        f"f{i}": {
            "type": "terms",
            "field": column.counted,
            "limit": MOST_VALUES,
            "missing": True,
            "numBuckets": True,
            "domain": {"excludeTags": f"c_{column.name}"},
        }
        for i, column in enumerate(_columns(board))
    }
    return {**rows_params(board, None, chosen, span), "json.facet": json.dumps(facets)}


def read_facets(board: FitBoard, chosen: Selection, response: Mapping[str, Any]) -> Reported:
    """Return the JSON of the facets: `{total, all, newest_ms, facets: [{name, heading, more, values}]}`.

    A value is `{label, value, kind, count, chosen}`. Selected values are listed even if no row has them. `all` counts
    the whole index. `newest_ms` is the commit of the newest change of the selected rows; None if unknown.
    """
    reported = []
    facets = response.get("facets", {})
    for i, column in enumerate(_columns(board)):
        found = facets.get(f"f{i}", {})
        buckets = found.get("buckets", [])
        picked = chosen.picks.get(column.name, frozenset())
        values = [named(column, one["val"]) | {"count": one["count"]} for one in buckets]
        if found.get("missing", {}).get("count") or None in picked:
            values.append(named(column, None) | {"count": found.get("missing", {}).get("count", 0)})
        listed = {one["value"] for one in values}
        values += [named(column, one) | {"count": 0} for one in sorted(v for v in picked - listed if v is not None)]
        for one in values:
            one["chosen"] = one["value"] in picked
        more = max(found.get("numBuckets", 0) - len(buckets), 0)
        reported.append({"name": column.name, "heading": column.heading, "more": more, "values": values})
    total = response["response"]["numFound"]
    everything = facets.get("all", {}).get("count", total)
    return {"total": total, "all": everything, "newest_ms": whole(facets.get("newest")), "facets": reported}


def whole(number: Any) -> int | None:
    """Convert a metric of Solr to a whole number. None if the metric is absent or not finite (no row matches), or is
    10^18 or more."""
    return int(number) if isinstance(number, int | float) and number == number and abs(number) < 1e18 else None


def _columns(board: FitBoard) -> list[PanelColumn]:
    return [board.column(name) for name in board.dashboard.facets]
