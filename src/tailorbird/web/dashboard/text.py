"""Format values, ages and counts for people."""

from __future__ import annotations

from tailorbird.web.dashboard.query import Shown, Value
from tailorbird.web.dashboard.view import Look

NOTHING, NONE, EMPTY = "—", "(none)", "(empty)"
LONGEST_TEXT = 300
LONGEST_HINT = 2_000


def cell_text(value: Shown, look: Look, nothing: str = NOTHING) -> str:
    """Format a value for the table. Times have no `T`, `Z` and fractions, list members are separated, long texts are
    cut.

    `nothing` is the text for a missing value."""
    if value is None:
        return nothing
    if isinstance(value, list):
        return _cut(", ".join(cell_text(member, look) for member in value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    text = str(value)
    if look == "time":
        return text.removesuffix("Z").replace("T", " ").partition(".")[0]
    if look == "members":
        text = text.replace(",", ", ")
    return _cut(text)


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST_TEXT else text[:LONGEST_TEXT] + "…"


def hint_text(value: Shown) -> str | None:
    """Return a value as the index stores it, for a tooltip. None if there is no value."""
    if value is None:
        return None
    return (", ".join(map(str, value)) if isinstance(value, list) else str(value))[:LONGEST_HINT]


def facet_text(value: Value, look: Look) -> str:
    """Format a value for a facet's checkbox."""
    if value is None:
        return NONE
    return EMPTY if value == "" else cell_text(value, look)


def count_text(count: int) -> str:
    """Format a count with a narrow space between thousands."""
    return f"{count:,}".replace(",", "\u202f")


def incomplete_text(dead_letters: int, file: str) -> str:
    """Return the banner's text while dead letters exist, else an empty string."""
    if dead_letters < 1:
        return ""
    what = "1 change was refused" if dead_letters == 1 else f"{count_text(dead_letters)} changes were refused"
    return f"Rows are missing here or out of date: {what}. Run: tailorbird dead-letters list {file}"


def latency_text(milliseconds: int) -> str:
    """Format a latency: `850 ms`, `1.2 s`, `3 min`."""
    if milliseconds < 1000:
        return f"{milliseconds} ms"
    return f"{milliseconds / 1000:.1f} s" if milliseconds < 60_000 else age_text(milliseconds)


def ago_text(milliseconds: int) -> str:
    """Format how long ago something happened: `now`, `12 s ago`."""
    age = age_text(milliseconds)
    return age if age == "now" else f"{age} ago"


def age_text(milliseconds: int) -> str:
    """Format an age in its largest unit: `now`, `12 s`, `3 min`, `5 h`, `2 days`."""
    seconds = max(milliseconds, 0) // 1000
    if seconds < 1:
        return "now"
    if seconds < 60:
        return f"{seconds} s"
    if seconds < 3600:
        return f"{seconds // 60} min"
    if seconds < 86400:
        return f"{seconds // 3600} h"
    days = seconds // 86400
    return f"{days} day{'s' if days > 1 else ''}"
