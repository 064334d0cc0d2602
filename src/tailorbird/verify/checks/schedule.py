"""Decide which check runs next and which is overdue. Times are milliseconds since 1970."""

from __future__ import annotations

from collections.abc import Mapping

from cdc.topology.topology import Check
from tailorbird.verify.checks.runs import CheckRun

NEVER = 2**62  # ms since 1970
AGAIN = 300.0  # seconds until the retry of a check that compared nothing because a server was unavailable
_LATE = 60.0  # seconds by which a check may be late without being reported as overdue


def due_ms(check: Check, last: CheckRun | None, started_ms: int = 0) -> int:
    """Return when a check should begin (ms since 1970): its interval after its last begin, or sooner if that run
    compared nothing because a server was unavailable.

    0 if it never ran. NEVER if nothing can be compared until the topology changes, and it has run since this process
    started at `started_ms`: a process reads the topology once. The time is not before the end of the last run, so a
    slow check does not starve the others."""
    if last is None:
        return 0
    if last.until == "topology" and last.began_ms >= started_ms:
        return NEVER
    due = max(last.began_ms + round(check.every * 1000), last.ended_ms)
    soon = last.reported_nothing and last.until != "change"
    return min(due, last.ended_ms + round(AGAIN * 1000)) if soon else due


def next_check(
    checks: Mapping[str, Check], runs: Mapping[str, CheckRun], now_ms: int, started_ms: int = 0
) -> Check | None:
    """Return the check that has been due for the longest time, or None. `started_ms` is when this process started.

    A run with a time in the future comes from another clock and is ignored."""
    due = {
        name: due_ms(check, last if (last := runs.get(name)) and last.began_ms <= now_ms else None, started_ms)
        for name, check in checks.items()
    }
    name = min(due, key=lambda one: due[one], default="")
    return checks[name] if name and due[name] <= now_ms else None


def turn_of(check: Check, last: CheckRun | None) -> int:
    """Return the part of its sample that a check compares next: the same one again until a run is equal."""
    if last is None:
        return 0
    return (last.turn + (last.outcome in ("equal", "equal in part"))) % check.sample


def overdue_ms(check: Check, last: CheckRun | None, now_ms: int) -> int:
    """Return how many ms late a check is, if it missed a whole interval and at least a minute. Otherwise, if it
    never ran, or if it waits for another topology, 0."""
    if last is None or last.until == "topology":
        return 0
    late = now_ms - last.began_ms - round(check.every * 1000)
    return late if late > 1000 * max(check.every, _LATE) else 0
