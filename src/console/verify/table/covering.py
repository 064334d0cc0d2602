"""Whether a barrier's positions cover those of a snapshot."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ingest.binlog.format.gtid import GtidSet, MariaGtidSet, parse_gtid_set


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
    if not reached:
        return False
    far, near = parse_gtid_set(reached), parse_gtid_set(wanted)
    if isinstance(far, GtidSet) and isinstance(near, GtidSet):
        return far.covers(near)
    if isinstance(far, MariaGtidSet) and isinstance(near, MariaGtidSet):
        return all(far.domains.get(domain, (0, -1))[1] >= number for domain, (_, number) in near.domains.items())
    return False
