"""Processes in `status`: one that ends repeatedly is unhealthy, whatever its current state."""

from __future__ import annotations

from typing import Any

import pytest

from cdc.process.file_running import PartEnd, RunningPart
from cdc.topology.reader import read_topology
from tailorbird.operate.status.captured_position import CapturedPosition
from tailorbird.operate.status.index_status import missing_changes
from tailorbird.operate.status.part_status import PartStatus, lines_of, part_statuses

TOPOLOGY = read_topology(
    """
name: t
sources: {s: {type: mysql, hostname: h, username: u, password: p, database: d, tables: [a], server_id: 1}}
tables: {wide: {query: SELECT a.id FROM s.a a, row_key: [id]}}
indexes: {main: {table: wide}}
""",
    file="t.yml",
    environ={},
)
NOW = 10_000_000
MOVING = {"status": "moving", "reason": "processes its input"}


def process(part: str, **more: Any) -> RunningPart:
    return RunningPart(part=part, pid=7, port=1, began_ms=NOW - 5000, **more)


ALL = [process("capture s"), process("join wide"), process("index main")]


def statuses(
    running: list[RunningPart], health: dict[str, Any] | None = None, end: PartEnd | None = None, **figures: float
) -> dict[str, PartStatus]:
    reported = {} if health is None else {1: health}
    found = part_statuses(TOPOLOGY, running, {end.part: end} if end else {}, reported, {1: figures}, now_ms=NOW)
    return {one.part: one for one in found}


def test_all_that_moves_is_well() -> None:
    """The status includes values from health and metrics."""
    found = statuses(ALL, MOVING, tailorbird_join_lag_seconds=0.0, tailorbird_dead_letters_total=3.0)
    assert list(found) == ["capture s", "join wide", "index main"]
    assert all(one.moves for one in found.values())
    assert found["join wide"].more == {"dead_letters": 3.0, "lag_seconds": 0.0}
    assert lines_of(found["join wide"]) == [
        "moving     join wide (for 5 s): processes its input, dead letters 3, lag seconds 0"
    ]


def test_an_alarm_of_a_polled_source_is_not_well() -> None:
    """The process runs, and `status` ends with an error as long as the alarm is on."""
    why = "main.t: at least 5 rows wait (alarm_backlog: 4)"
    found = statuses(ALL, {**MOVING, "alarm": why})["capture s"]
    assert (found.state, found.moves) == ("moving", False)
    assert lines_of(found) == [f"moving     capture s (for 5 s): processes its input, alarm {why}"]
    assert statuses(ALL, MOVING)["capture s"].moves


@pytest.mark.parametrize(
    ("one", "health", "state", "reported"),
    [
        (process("join wide", stopped=(7,)), None, "stopped", "kill -CONT 7"),
        (process("join wide", stopped=(8,)), None, "stopped", "kill -CONT 8"),
        (process("join wide"), None, "silent", "does not answer on port 1"),
        (process("join wide"), {"status": "stuck", "reason": "a batch for 700 s"}, "stuck", "a batch for 700 s"),
        (process("join wide"), {"status": "away", "reason": "waits for 40 s: HBase"}, "away", "HBase"),
        (process("join wide", dead=True), None, "down", "process 7 was killed"),
    ],
)
def test_what_does_not_move_is_named(
    one: RunningPart, health: dict[str, Any] | None, state: str, reported: str
) -> None:
    """With the reason, and what helps."""
    found = statuses([ALL[0], one], health)["join wide"]
    assert (found.state, found.moves) == (state, False)
    assert reported in " ".join(lines_of(found))


def test_states_stand_in_a_column_of_their_own() -> None:
    """Even the longest state does not run into the following name."""
    for reported in (statuses([])["capture s"], statuses(ALL, MOVING)["capture s"]):
        assert lines_of(reported)[0].index("capture s") == len("INCOMPLETE ")


def test_a_part_that_ends_again_and_again_is_not_well() -> None:
    """It is unhealthy in the pause before a restart and while it starts; later the error is cleared."""
    end = PartEnd(part="capture s", kind="Fatal", message="purged; position_lost: resnapshot", at_ms=NOW - 20_000)
    paused = statuses(ALL[1:], MOVING, end)["capture s"]
    assert (paused.state, paused.moves, paused.reason) == ("down", False, "it ended 20 s ago")
    assert "last error: purged; position_lost: resnapshot" in " ".join(lines_of(paused))
    starting = {"status": "starting", "reason": "nothing is committed yet"}
    assert not statuses(ALL, starting, end)["capture s"].moves
    assert statuses(ALL, starting)["capture s"].moves
    old = PartEnd(part="capture s", kind="Fatal", message="x", at_ms=NOW - 3_600_000)
    assert statuses(ALL, starting, old)["capture s"].moves


def test_processes_of_other_machines_are_no_fault() -> None:
    """A process that was never started here, or was stopped normally, is listed and may run on another machine."""
    assert {(one.state, one.moves) for one in statuses([]).values()} == {("elsewhere", True)}
    assert statuses([ALL[0]], MOVING)["join wide"].state == "elsewhere"


def position(sequence: int, **more: Any) -> CapturedPosition:
    return CapturedPosition(gtid_set="", sequence=sequence, snapshot=more.pop("snapshot", "done"), **more)


@pytest.mark.parametrize(
    ("captured", "visible", "missing"),
    [
        ({"s": position(9)}, {"s": 9}, 0),
        ({"s": position(9)}, {"s": 4}, 5),
        ({"s": position(9)}, {"s": 11}, 0),
        ({"s": position(9)}, {}, None),
        ({}, {"s": 4}, None),
        ({"s": position(9, snapshot="running")}, {"s": 9}, None),
        ({"s": position(9, repairing=("d.a",))}, {"s": 9}, None),
        ({"s": position(9, snapshots={"d.a": {}})}, {"s": 9}, None),
    ],
)
def test_complete_is_not_behind(captured: dict[str, Any], visible: dict[str, int], missing: int | None) -> None:
    """An idle pipeline is complete, however long ago its last cut was; one that is read again is not known to be."""
    assert missing_changes(frozenset({"s"}), captured, visible) == missing


def test_a_join_by_time_shows_its_watermark() -> None:
    """The watermark is shown as a time, with the number of late rows."""
    found = statuses(
        ALL, MOVING, tailorbird_join_watermark_seconds=1_767_225_600.5, tailorbird_join_late_rows_total=2.0
    )
    assert ", late rows 2, watermark 2026-01-01T00:00:00Z" in lines_of(found["join wide"])[0]


def test_what_no_topology_needs_is_reported_where_it_runs() -> None:
    """A serving process is listed while it runs, and with its command after it was killed."""
    assert statuses([*ALL, process("maxscale")], MOVING)["maxscale"].moves
    killed = statuses([*ALL, process("maxscale", dead=True)], MOVING)["maxscale"]
    assert (killed.state, killed.remedy) == ("down", "tailorbird serve maxscale t.yml")
