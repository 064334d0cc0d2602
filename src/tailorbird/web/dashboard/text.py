"""Format values of facets and groups for people."""

from __future__ import annotations

from tailorbird.web.dashboard.query import Value
from tailorbird.web.dashboard.view import Look

NONE, EMPTY = "(none)", "(empty)"
LONGEST_TEXT = 300


def facet_text(value: Value, look: Look) -> str:
    """Format a value: times without `T`, `Z` and fractions of a second, long texts cut."""
    if value is None:
        return NONE
    if value == "":
        return EMPTY
    if isinstance(value, bool):
        return "yes" if value else "no"
    text = str(value)
    if look == "time":
        return text.removesuffix("Z").replace("T", " ").partition(".")[0]
    return text if len(text) <= LONGEST_TEXT else text[:LONGEST_TEXT] + "…"
