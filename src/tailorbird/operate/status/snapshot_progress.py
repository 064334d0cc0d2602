"""Progress of snapshots and their remaining time. Captures commit the progress together with the rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from rich.progress import BarColumn, Progress, TaskID, TextColumn

from tailorbird.operate.status.captured_position import CapturedPosition

TIMEOUT = 10.0  # seconds until a requested snapshot must have started


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotProgress:
    """The snapshot of one table: rows read, estimated total, and remaining seconds. None means unknown."""

    table: str
    rows: int
    total: int | None
    seconds_left: float | None


def progress_of(positions: Mapping[str, CapturedPosition], now_ms: float) -> list[SnapshotProgress]:
    """Return the running snapshots, sorted by table name. `now_ms` is the current time."""
    found: list[SnapshotProgress] = []
    for source, position in sorted(positions.items()):
        for name, entry in sorted(position.snapshots.items()):
            rows, total, began = entry.get("rows", 0), entry.get("total"), entry.get("began_ms")
            left = None
            if rows and total is not None and began is not None:
                # the server's estimate may be too small: some time remains as long as the snapshot runs
                left = max(total - rows, 0) * max(now_ms - began, 0) / rows / 1000
            found.append(SnapshotProgress(table=f"{source}.{name}", rows=rows, total=total, seconds_left=left))
    return found


def shown(one: SnapshotProgress) -> str:
    """Format the progress as one line."""
    total = f" of about {one.total:,} ({min(100, 100 * one.rows // max(one.total, 1))} %)" if one.total else ""
    left = f", about {one.seconds_left:.0f} s to go" if one.seconds_left is not None else ""
    return f"{one.table}: {one.rows:,} rows{total}{left}"


@contextmanager
def bars() -> Iterator[Callable[[Iterable[SnapshotProgress]], None]]:
    """Context manager: yield a function that draws a progress bar for each snapshot that is passed to it."""
    known: dict[str, TaskID] = {}
    with Progress(BarColumn(), TextColumn("{task.description}")) as drawn:

        def draw(found: Iterable[SnapshotProgress]) -> None:
            present = {one.table: one for one in found}
            for table in known.keys() - present.keys():
                drawn.update(known[table], completed=1, total=1, description=f"{table}: done")
            for table, one in present.items():
                if table not in known:
                    known[table] = drawn.add_task(shown(one), total=None)
                drawn.update(known[table], description=shown(one), completed=one.rows, total=one.total)

        yield draw
