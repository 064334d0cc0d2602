"""What tells that panels must be asked again: the barriers of an index; where there are none, its newest document."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cdc.stored.fields import BARRIER, BUCKETS, FENCE, INCOMPLETE, INDEXED_AT, KIND, POSITIONS, ROW
from tailorbird.web.dashboard.query import Params

_MOST_BUCKETS = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """How far an index is: `token` differs once something has moved; `positions` are texts by source, of the cut that
    every query sees; `incomplete`: how much the join has refused.
    """

    token: str
    positions: Mapping[str, str] = field(default_factory=dict)
    incomplete: int = 0


def barrier_params() -> Params:
    """A query for the barriers."""
    return {
        "q": "*:*",
        "fq": [f"{KIND}:{BARRIER}"],
        "rows": _MOST_BUCKETS,
        "fl": ",".join((FENCE, BUCKETS, POSITIONS, INCOMPLETE)),
    }


def document_params() -> Params:
    """A query for what has come in, of an index without barriers."""
    facets = {"newest": f"max({INDEXED_AT})"}
    return {"q": "*:*", "fq": [f"{KIND}:{ROW}"], "rows": 0, "json.facet": json.dumps(facets)}


def read_barriers(response: Mapping[str, Any]) -> Moved | None:
    """How far the barriers are; None where there are none."""
    found = response["response"]["docs"]
    if not found:
        return None
    incomplete = max(int(one.get(INCOMPLETE, 0)) for one in found)
    token = f"b{sorted(int(one[FENCE]) for one in found)}"
    if len(found) < int(found[0][BUCKETS]):
        return Moved(token=token, incomplete=incomplete)
    reported: list[Mapping[str, Mapping[str, Any]]] = [json.loads(one[POSITIONS]) for one in found]
    sources = set.intersection(*(set(one) for one in reported))
    least = {name: min((one[name] for one in reported), key=lambda at: int(at["offset"])) for name in sorted(sources)}
    return Moved(
        token=token,
        positions={name: f"change {at['sequence']}" for name, at in least.items()},
        incomplete=incomplete,
    )


def read_documents(response: Mapping[str, Any]) -> Moved:
    """How far an index without barriers is."""
    newest = response.get("facets", {}).get("newest")
    return Moved(token=f"d{newest}/{response['response']['numFound']}")
