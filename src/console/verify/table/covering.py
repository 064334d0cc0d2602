"""Whether a barrier's positions cover those of a snapshot."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ingest.binlog.format.gtid import covers, parse_gtid_set


def uncovered(wanted: Mapping[str, str], reached: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The sources of which a barrier does not say yet that all up to a position (a GTID set) is reflected.

    ValueError for a text that is no GTID set.
    """
    return [
        source
        for source, position in wanted.items()
        if source not in reached or not _covers(str(reached[source].get("gtid_set") or ""), position)
    ]


def _covers(reached: str, wanted: str) -> bool:
    return bool(reached) and covers(parse_gtid_set(reached), parse_gtid_set(wanted))
