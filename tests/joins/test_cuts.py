"""A barrier may contain a source's position only if every partition of its topics was read up to it."""

from __future__ import annotations

from typing import Any

import pytest

from joins.runtime.cuts import Cuts, Lag, covers, read_position

TOPICS = frozenset({"t.s.d.a", "t.s.d.b"})


def record(sequence: int, a: tuple[int, int], b: tuple[int, int], snapshot: str = "done") -> dict[str, Any]:
    return {
        "format": 1,
        "source": "s",
        "snapshot": snapshot,
        "position": {"sequence": sequence, "gtid_set": f"u:1-{sequence}", "file": "f", "pos": 4, "row": 0},
        "end_offsets": {
            "t.s.d.a": {"0": a[0], "1": a[1]},
            "t.s.d.b": {"0": b[0], "1": b[1]},
            "t.s.d.unused": {"0": 10**9},
        },
    }


def cuts(*records: dict[str, Any]) -> Cuts:
    made = Cuts({})
    for offset, value in enumerate(records):
        if (position := read_position(value, offset, TOPICS)) is not None:
            made.add(position)
    return made


def ends(a: tuple[int, int], b: tuple[int, int]) -> dict[str, dict[int, int]]:
    return {"t.s.d.a": dict(enumerate(a)), "t.s.d.b": dict(enumerate(b))}


def test_a_position_counts_when_every_partition_is_covered() -> None:
    """One lagging partition reduces the claim; topics that the query does not read do not matter."""
    made = cuts(record(5, (3, 2), (0, 0)), record(9, (4, 2), (2, 1)), record(12, (5, 5), (2, 1)))
    assert made.cover(ends((9, 1), (9, 9))) == {}
    assert made.cover(ends((4, 4), (1, 9)))["s"]["sequence"] == 5
    assert made.cover(ends((4, 4), (2, 1))) == {
        "s": {"sequence": 9, "gtid_set": "u:1-9", "file": "f", "pos": 4, "offset": 1, "exact": False}
    }
    assert made.cover(ends((5, 5), (2, 1)))["s"]["sequence"] == 12


def test_a_cut_is_exact_where_every_level_ends_at_the_position() -> None:
    """At most the commit marker follows the last record. If one level is further, or the batch ends inside a large
    source
    transaction, the batch shows more than the position."""
    at = ends((4, 3), (2, 1))
    for levels, exact in [
        ((ends((4, 2), (2, 1)),), True),
        ((ends((5, 3), (3, 2)),), True),
        ((ends((6, 2), (2, 1)),), False),
        ((at, at), True),
        ((at, ends((7, 3), (2, 1))), False),
        (({"t.s.d.a": {0: 4, 1: 2}}, {"t.s.d.b": {0: 2, 1: 1}}), True),
    ]:
        made = cuts(record(9, (4, 2), (2, 1)))
        assert made.cover(*levels)["s"]["exact"] is exact, levels
    within = record(9, (4, 2), (2, 1))
    within["position"]["row"] = 3
    assert cuts(within).cover(at)["s"]["exact"] is False
    assert Cuts({"s": {"sequence": 7, "gtid_set": "u:1-7", "offset": 3}}).cover(at)["s"]["exact"] is False


def test_what_was_reached_stays_reached() -> None:
    """A batch without new data keeps the last claim; a restart starts with the last barrier's."""
    made = Cuts({"s": {"sequence": 7, "gtid_set": "u:1-7", "offset": 3}})
    assert made.cover({})["s"]["sequence"] == 7


def test_a_running_snapshot_is_no_position() -> None:
    """Half a table corresponds to no point of the source's log."""
    assert read_position(record(0, (1, 1), (0, 0), snapshot="running"), 0, TOPICS) is None


def test_a_source_that_stands_still_behind_its_snapshot_is_not_behind_since_1970() -> None:
    """Before the first commit the position has no time; the time at which it was logged counts."""
    value = {**record(0, (1, 1), (0, 0)), "ts_ms": 0}
    position = read_position(value, 0, TOPICS, logged_ms=1_000)
    assert position is not None
    made = Cuts({})
    made.add(position)
    assert made.lags(3_000) == {"s": Lag(positions=0, seconds=2.0)}
    later = read_position({**value, "ts_ms": 500}, 1, TOPICS, logged_ms=1_000)
    assert later is not None
    assert later.ts_ms == 500


@pytest.mark.parametrize(
    "state", [{"snapshots": {"d.a": {"rows": 3}}}, {"mends": {"tables": {"d.a": {}}}}, {"mends": {"again": {"d.a": 5}}}]
)
def test_nothing_is_claimed_while_rows_are_read_again(state: dict[str, Any]) -> None:
    """Rows that are held back until they are repaired are not in the topics; their age counts as lag."""
    made = cuts(record(5, (1, 0), (0, 0)), {**record(9, (2, 0), (0, 0)), "state": state, "ts_ms": 1000})
    assert made.cover(ends((2, 0), (0, 0)))["s"]["sequence"] == 5
    assert made.lags(4000) == {"s": Lag(positions=4, seconds=3.0)}
    whole = read_position({**record(11, (3, 0), (0, 0)), "state": {"snapshots": {}}}, 2, TOPICS)
    assert whole is not None
    made.add(whole)
    assert made.cover(ends((3, 0), (0, 0)))["s"]["sequence"] == 11
    assert made.lags(4000) == {"s": Lag(positions=0, seconds=0.0)}


def test_ends_of_a_topic_that_was_lost_are_not_waited_for() -> None:
    """The topic was recreated and is shorter: the ends in older records will never be covered."""
    made = cuts(record(5, (9, 9), (0, 0)), record(8, (9, 12), (0, 0)), record(11, (2, 3), (0, 0)))
    assert made.cover(ends((2, 3), (0, 0)))["s"]["sequence"] == 11


def test_missing_partitions_are_not_covered() -> None:
    """A topic that the batch has not read at all lags, unless it was always empty."""
    assert not covers({}, {"t": {0: 1}})
    assert covers({}, {"t": {0: 0}})
