"""Format a plan as text for people and as JSON for programs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tailorbird.deploy.plan.change import Change
from tailorbird.deploy.plan.seen import RowCount
from tailorbird.operate.status.selection import ListChoice

_WIDE = 9  # the longest action is `reindex`, and two spaces
_ALL = ListChoice()


def lines_of(changes: Sequence[Change], selection: ListChoice = _ALL) -> Iterator[str]:
    """Yield the plan as text: for each step its action, cost and what readers see until it ends; then the totals.

    Of more steps than the selection's limit, those that the user must perform are first, and then the other ones that
    do something."""
    shown = selection.matching(changes, lambda one: f"{one.action} {one.kind} {one.name}")
    if len(shown) > selection.limit:
        shown = sorted(shown, key=lambda one: not one.by_hand)
    yield from selection.lines(shown, _step_lines, lambda one: one.action, lambda one: one.action == "keep")
    yield _sum(changes)


def _step_lines(one: Change) -> Iterator[str]:
    yield f"{one.action:<{_WIDE}}{one.kind:<12}{one.name}  ({one.why})"
    below = "; ".join(part for part in (_cost(one), one.meanwhile) if part)
    if below:
        yield f"{'':<{_WIDE}}{below}"
    if one.by and one.by not in ("apply", "run"):
        yield f"{'':<{_WIDE}}{one.by}"


def reported(one: Change) -> Mapping[str, Any]:
    """Return a step as JSON. Unknown values are null. `rows_whole` is false if `rows` is a lower bound."""
    return {
        "action": one.action,
        "kind": one.kind,
        "name": one.name,
        "why": one.why,
        "by": one.by or None,
        "by_hand": one.by_hand,
        "records": one.records,
        "rows": None if one.rows is None else one.rows.rows,
        "rows_whole": None if one.rows is None else one.rows.whole,
        "seconds": one.seconds,
        "meanwhile": one.meanwhile or None,
    }


def _cost(one: Change) -> str:
    parts = [] if one.records is None else [f"reads {one.records:,} changes of the log"]
    if one.rows is not None and one.action != "leave":
        does = "writes" if one.action in ("join", "build", "rebuild") else "indexes"
        parts.append(f"{does} {rows_reported(one.rows)}")
    if one.rows is not None and one.action == "leave" and one.rows.rows:
        parts.append(f"it holds {one.rows.rows:,} records")
    if one.seconds is not None:
        parts.append(time_reported(one.seconds))
    return ", ".join(parts)


def rows_reported(count: RowCount) -> str:
    """Format a number of rows, which may be a lower bound."""
    return f"{count.rows:,} rows" if count.whole else f"more than {count.rows:,} rows"


def time_reported(seconds: float) -> str:
    """Format an estimated time, rounded."""
    if seconds < 60:
        return "less than a minute"
    if seconds < 2 * 3600:
        return "about a minute" if seconds < 90 else f"about {round(seconds / 60)} minutes"
    return f"about {round(seconds / 3600)} hours"


def _sum(changes: Sequence[Change]) -> str:
    kept = sum(1 for one in changes if one.action == "keep")
    left = sum(1 for one in changes if one.action == "leave")
    hand = sum(1 for one in changes if one.by_hand)
    done = len(changes) - kept - left - hand
    parts = [f"{done:,} by `apply` and `run`", f"{hand:,} by hand", f"{left:,} left over", f"{kept:,} unchanged"]
    return f"{len(changes):,} steps: {', '.join(parts)}"
