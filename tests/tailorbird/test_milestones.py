"""Messages of `run` while a topology starts."""

from __future__ import annotations

from tailorbird.operate.status.milestones import Milestones
from tailorbird.operate.status.part_status import PartStatus
from tailorbird.operate.status.snapshot_progress import SnapshotProgress


def part(name: str, state: str = "moving", error: str = "", **more: float) -> PartStatus:
    return PartStatus(part=name, state=state, reason="r", pid=1, seconds=None, error=error, remedy="", more=more)


def snapshot(rows: int) -> SnapshotProgress:
    return SnapshotProgress(table="shop.orders", rows=rows, total=100, seconds_left=9.0)


def test_each_thing_is_reported_once_and_snapshots_every_five_seconds() -> None:
    """From `starting` to the first rows in the index nothing stays silent, and nothing is repeated every second."""
    reported = Milestones(0.0)
    starting = [part("capture shop", "starting"), part("join wide", "starting", rows=0.0)]
    assert reported.news(starting, [], 1.0) == ["starting   capture shop: r", "starting   join wide: r, rows 0"]
    assert reported.news(starting, [], 2.0) == []
    moving = [part("capture shop"), part("join wide", "starting")]
    half = "snapshot of shop.orders: 50 rows of about 100 (50 %), about 9 s to go"
    assert reported.news(moving, [snapshot(50)], 3.0) == ["moving     capture shop: r", half]
    assert reported.news(moving, [snapshot(60)], 4.0) == []
    assert reported.news(moving, [snapshot(50)], 8.0) == [half]
    assert reported.news(moving, [], 9.0) == ["snapshot of shop.orders: done"]
    rows = [part("join wide", rows=7.0), part("index main", documents=3.0)]
    assert reported.news(rows, [], 10.4) == [
        "moving     join wide: r, rows 7",
        "join wide: first rows in its table, 10 s after the start",
        "moving     index main: r, documents 3",
        "index main: first rows in its index: the page shows them, 10 s after the start",
    ]
    assert reported.news(rows, [], 30.0) == []
    broken = part("join wide", "starting", "Kafka is unavailable", rows=9.0)
    assert reported.news([broken], [], 31.0) == [
        "starting   join wide: r, rows 9",
        "           last error: Kafka is unavailable",
    ]
