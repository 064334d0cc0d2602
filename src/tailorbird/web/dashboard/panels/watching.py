"""Detect that an index has changed: by its barriers or, if it has none, by its newest document."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cdc.stored.fields import BARRIER, BUCKETS, FENCE, INCOMPLETE, INDEXED_AT, KIND, POSITIONS, ROW
from tailorbird.web.dashboard.query import Params

_MOST_BUCKETS = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexState:
    """The state of an index. `token` changes whenever the index does.

    `positions` are the source positions, as text, up to which queries see everything. `incomplete` is the number of
    changes that the join has refused."""

    token: str
    positions: Mapping[str, str] = field(default_factory=dict)
    incomplete: int = 0


def barrier_params() -> Params:
    """Return a query for the barriers."""
    return {
        "q": "*:*",
        "fq": [f"{KIND}:{BARRIER}"],
        "rows": _MOST_BUCKETS,
        "fl": ",".join((FENCE, BUCKETS, POSITIONS, INCOMPLETE)),
    }


def document_params() -> Params:
    """Return a query for the newest change of an index without barriers."""
    facets = {"newest": f"max({INDEXED_AT})"}
    return {"q": "*:*", "fq": [f"{KIND}:{ROW}"], "rows": 0, "json.facet": json.dumps(facets)}


def read_barriers(response: Mapping[str, Any]) -> IndexState | None:
    """Return the state of an index from the response to `barrier_params`. None if there are no barriers."""
    found = response["response"]["docs"]
    if not found:
        return None
    incomplete = max(int(one.get(INCOMPLETE, 0)) for one in found)
    token = f"b{sorted(int(one[FENCE]) for one in found)}"
    if len(found) < int(found[0][BUCKETS]):
        return IndexState(token=token, incomplete=incomplete)
    reported: list[Mapping[str, Mapping[str, Any]]] = [json.loads(one[POSITIONS]) for one in found]
    sources = set.intersection(*(set(one) for one in reported))
    least = {name: min((one[name] for one in reported), key=lambda at: int(at["offset"])) for name in sorted(sources)}
    return IndexState(
        token=token,
        positions={name: f"change {at['sequence']}" for name, at in least.items()},
        incomplete=incomplete,
    )


def read_documents(response: Mapping[str, Any]) -> IndexState:
    """Return the state of an index from the response to `document_params`."""
    newest = response.get("facets", {}).get("newest")
    return IndexState(token=f"d{newest}/{response['response']['numFound']}")
