"""How a dashboard writes values, ages and counts for people."""

from __future__ import annotations

from tailorbird.web.dashboard.query import Shown, Value
from tailorbird.web.dashboard.view import Look

NOTHING, NONE, EMPTY = "—", "(none)", "(empty)"
LONGEST_TEXT = 300
LONGEST_HINT = 2_000


def cell_text(value: Shown, look: Look, nothing: str = NOTHING) -> str:
    """A value in the table; times without their `T`, `Z` and fraction of a second, members apart, long texts cut.

    `nothing` stands where there is no value.
    """
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
    """A value as it stands in the index, for who points at it; None where there is none."""
    if value is None:
        return None
    return (", ".join(map(str, value)) if isinstance(value, list) else str(value))[:LONGEST_HINT]


def facet_text(value: Value, look: Look) -> str:
    """A value beside its checkbox."""
    if value is None:
        return NONE
    return EMPTY if value == "" else cell_text(value, look)


def count_text(count: int) -> str:
    """A count with thousands apart, by a narrow space."""
    return f"{count:,}".replace(",", "\u202f")


def incomplete_text(dead_letters: int, file: str) -> str:
    """What the banner says while dead letters wait; empty when none does."""
    if dead_letters < 1:
        return ""
    what = (
        "1 change was refused and waits"
        if dead_letters == 1
        else f"{count_text(dead_letters)} changes were refused and wait"
    )
    return f"Rows are missing here or out of date: {what} as dead letters. Look: tailorbird dead-letters list {file}"


def latency_text(milliseconds: int) -> str:
    """A latency: `850 ms`, `1.2 s`, `3 min`."""
    if milliseconds < 1000:
        return f"{milliseconds} ms"
    return f"{milliseconds / 1000:.1f} s" if milliseconds < 60_000 else age_text(milliseconds)


def ago_text(milliseconds: int) -> str:
    """How long ago: `now`, `12 s ago`."""
    age = age_text(milliseconds)
    return age if age == "now" else f"{age} ago"


def age_text(milliseconds: int) -> str:
    """An age in its largest unit: `now`, `12 s`, `3 min`, `5 h`, `2 days`."""
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
