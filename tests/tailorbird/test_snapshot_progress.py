"""Progress of a snapshot in `tailorbird snapshot`."""

from __future__ import annotations

from tailorbird.operate.status.captured_position import CapturedPosition
from tailorbird.operate.status.snapshot_progress import SnapshotProgress, bars, progress_of, shown


def at(**snapshots: dict[str, object]) -> dict[str, CapturedPosition]:
    named = {f"d.{name}": entry for name, entry in snapshots.items()}
    return {"shop": CapturedPosition(gtid_set="", sequence=1, snapshot="running", snapshots=named)}


def test_the_rest_takes_as_long_a_row_as_what_was_read() -> None:
    """A quarter in ten seconds: thirty to go. Without an estimate there is no guess; beyond it, nothing is left."""
    found = progress_of(
        at(
            t={"rows": 1000, "total": 4000, "began_ms": 5_000},
            u={"rows": 7, "began_ms": 5_000},
            v={"rows": 90, "total": 80, "began_ms": 5_000},
            w={"rows": 0},
        ),
        15_000,
    )
    assert [(one.table, one.rows, one.total, one.seconds_left) for one in found] == [
        ("shop.d.t", 1000, 4000, 30.0), ("shop.d.u", 7, None, None), ("shop.d.v", 90, 80, 0.0),
        ("shop.d.w", 0, None, None),
    ]  # fmt: skip
    assert shown(found[0]) == "shop.d.t: 1,000 rows of about 4,000 (25 %), about 30 s to go"
    assert shown(found[1]) == "shop.d.u: 7 rows"


def test_a_bar_ends_when_its_snapshot_does(capsys: object) -> None:
    """A snapshot that is no longer running is done."""
    with bars() as draw:
        draw([SnapshotProgress(table="s.d.t", rows=1, total=4, seconds_left=3.0)])
        draw([])
    assert "s.d.t: done" in capsys.readouterr().out  # type: ignore[attr-defined]  # pytest's own type is not exported
