"""Whether a barrier's positions cover those of a snapshot."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tailorbird.verify.positions import covers


def uncovered(wanted: Mapping[str, str], reached: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The sources of which a barrier does not report yet that all up to a position is reflected.

    ValueError for a text that is no position.
    """
    return [
        source for source, position in wanted.items() if source not in reached or not covers(reached[source], position)
    ]
