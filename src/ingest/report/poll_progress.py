"""Compare the progress of a polled source with the thresholds of its alarms."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from cdc.model.polling import PollAlarms


@dataclass(slots=True, kw_only=True)
class PollProgress:
    """Progress of a polled source over all its sessions. All times are seconds of one clock.

    `success` is when all tables were last polled without an error; at first, when the process started. `tables` has
    the backlog in rows and the distance of the cursor of each table, at its last poll; `unassigned` its rows without a
    number.
    """

    alarms: PollAlarms
    success: float
    tables: dict[str, tuple[int, float]] = field(default_factory=dict)
    unassigned: dict[str, int] = field(default_factory=dict)

    def alarm(self, now: float) -> str:
        """Return which thresholds are exceeded; empty if none is."""
        return "; ".join(self._exceeded(now))

    def _exceeded(self, now: float) -> Iterator[str]:
        limits, since = self.alarms, now - self.success
        if limits.since_success is not None and since > limits.since_success:
            yield f"no poll has succeeded for {since:.0f} s (alarm_since_success: {limits.since_success:g} s)"
        for table, (backlog, behind) in sorted(self.tables.items()):
            if limits.backlog is not None and backlog > limits.backlog:
                yield f"{table}: at least {backlog} rows wait (alarm_backlog: {limits.backlog})"
            if limits.behind is not None and behind > limits.behind:
                yield f"{table}: the cursor is {behind:g} behind (alarm_behind: {limits.behind:g})"
        for table, rows in sorted(self.unassigned.items()):
            if limits.unassigned is not None and rows > limits.unassigned:
                yield f"{table}: at least {rows} rows have no number (alarm_unassigned: {limits.unassigned})"
