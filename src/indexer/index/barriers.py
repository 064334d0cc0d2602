"""Read from the visible barriers of an index up to where queries see everything."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cdc.stored import fields


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexProgress:
    """Up to where queries see everything: positions by source, the timestamp (ms), and the version (`_fence`) of rows.

    All are of the same barriers. Before every bucket has one, there are no positions, and the others are None."""

    positions: Mapping[str, Mapping[str, Any]]
    timestamp: int | None
    version: int | None


def progress_of(barriers: Sequence[Mapping[str, Any]]) -> IndexProgress:
    """Return up to where queries see everything, from the visible barriers."""
    return IndexProgress(
        positions=positions_of(barriers), timestamp=timestamp_of(barriers), version=version_of(barriers)
    )


def timestamp_of(barriers: Sequence[Mapping[str, Any]]) -> int | None:
    """Return the timestamp (ms) up to which queries see every row: the least of the barriers of all buckets, or None
    if a bucket has none."""
    if not _complete(barriers):
        return None
    return min(int(each[fields.TIMESTAMP]) for each in barriers)


def version_of(barriers: Sequence[Mapping[str, Any]]) -> int | None:
    """Return the version (`_fence`) up to which queries see every row: the least of the barriers of all buckets, or
    None if a bucket has none. A batch may have a later version than its timestamp says."""
    if not _complete(barriers):
        return None
    return min(int(each[fields.FENCE]) for each in barriers)


def positions_of(barriers: Sequence[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """Return, by source, the position (sequence, gtid_set, offset) up to which queries see everything.

    It is the minimum over the barriers of all salt buckets. Empty before every bucket has a barrier."""
    if not _complete(barriers):
        return {}
    positions: list[dict[str, Mapping[str, Any]]] = [json.loads(barrier[fields.POSITIONS]) for barrier in barriers]
    sources = set.intersection(*(set(p) for p in positions))
    return {source: min((p[source] for p in positions), key=lambda one: int(one["offset"])) for source in sources}


def _complete(barriers: Sequence[Mapping[str, Any]]) -> bool:
    return bool(barriers) and len(barriers) >= int(barriers[0][fields.BUCKETS])
