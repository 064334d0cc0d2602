"""Messages of `tailorbird run` at the start: started processes, progress of snapshots, and first rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tailorbird.operate.status.part_status import PartStatus, lines_of
from tailorbird.operate.status.snapshot_progress import SnapshotProgress, shown

_SNAPSHOTS_EVERY = 5.0
# by stage: the metric, and the message for its first row
_FIRST = {
    "join": ("rows", "first rows in its table"),
    "index": ("documents", "first rows in its index: the page shows them"),
}


class Milestones:
    """Reports each event once: a changed state or error, and the first rows of each table and index.

    The progress of snapshots is reported every five seconds."""

    def __init__(self, now: float) -> None:
        self._began, self._reported_at = now, now
        self._before: dict[str, tuple[str, str]] = {}
        self._first: set[str] = set()
        self._reading: set[str] = set()

    def news(self, parts: Iterable[PartStatus], snapshots: Sequence[SnapshotProgress], now: float) -> list[str]:
        """Return the new lines to print. `now` is the time of a monotonic clock, in seconds."""
        lines: list[str] = []
        for one in parts:
            if self._before.get(one.part) != (one.state, one.error):
                self._before[one.part] = (one.state, one.error)
                lines += lines_of(one)
            figure, what = _FIRST.get(one.part.partition(" ")[0], ("", ""))
            if one.more.get(figure) and one.part not in self._first:
                self._first.add(one.part)
                lines.append(f"{one.part}: {what}, {now - self._began:.0f} s after the start")
        return lines + self._of_snapshots(snapshots, now)

    def _of_snapshots(self, snapshots: Sequence[SnapshotProgress], now: float) -> list[str]:
        reading = {one.table for one in snapshots}
        lines = [f"snapshot of {table}: done" for table in sorted(self._reading - reading)]
        fresh = reading - self._reading
        self._reading = reading
        if fresh or now - self._reported_at >= _SNAPSHOTS_EVERY:
            self._reported_at = now
            lines += [f"snapshot of {shown(one)}" for one in snapshots]
        return lines
