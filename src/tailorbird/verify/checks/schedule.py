"""Which check is to run now, and which has not run for too long. Pure; times are milliseconds since 1970."""

from __future__ import annotations

from collections.abc import Mapping

from cdc.topology.topology import Check
from tailorbird.verify.checks.runs import CheckRun

AGAIN = 300.0  # seconds until a check begins again that could tell nothing, since a server was away
_LATE = 60.0  # seconds by which a check may be late and nobody is told


def due_ms(check: Check, last: CheckRun | None) -> int:
    """When a check is to begin: `every` after its last begin, sooner where that told nothing; 0: it never ran.

    Not before its last end, so that one that takes longer than `every` does not go before others again and again.
    """
    if last is None:
        return 0
    due = max(last.began_ms + round(check.every * 1000), last.ended_ms)
    return min(due, last.ended_ms + round(AGAIN * 1000)) if last.reported_nothing else due


def next_check(checks: Mapping[str, Check], runs: Mapping[str, CheckRun], now_ms: int) -> Check | None:
    """Of the checks that are due the one that has been for longest; None where none is.

    A run of the future was told by another clock: it counts as none.
    """
    due = {
        name: due_ms(check, last if (last := runs.get(name)) and last.began_ms <= now_ms else None)
        for name, check in checks.items()
    }
    name = min(due, key=lambda one: due[one], default="")
    return checks[name] if name and due[name] <= now_ms else None


def turn_of(check: Check, last: CheckRun | None) -> int:
    """Which part of its sample a check compares next: the next one, or the same while it was not found equal."""
    if last is None:
        return 0
    return (last.turn + (last.outcome in ("equal", "equal in part"))) % check.sample


def overdue_ms(check: Check, last: CheckRun | None, now_ms: int) -> int:
    """How late a check is, where it is later than another turn of it; 0 where it is not, or has never run."""
    if last is None:
        return 0
    late = now_ms - last.began_ms - round(check.every * 1000)
    return late if late > 1000 * max(check.every, _LATE) else 0
