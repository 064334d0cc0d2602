"""Check whether the positions in a barrier are at or after those of a snapshot."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tailorbird.verify.positions import covers


def uncovered(wanted: Mapping[str, str], reached: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the sources whose position in a barrier (`reached`) is before the wanted one.

    Raises ValueError for an invalid position."""
    return [
        source for source, position in wanted.items() if source not in reached or not covers(reached[source], position)
    ]
