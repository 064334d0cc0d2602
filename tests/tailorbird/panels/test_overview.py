"""The topology as a graph, and the sentence with the problems and remedies."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from cdc.topology.reader import read_topology
from tailorbird.operate.status.captured_position import CapturedPosition
from tailorbird.operate.status.dead_letters import OpenDeadLetters
from tailorbird.operate.status.index_status import VisibleCut
from tailorbird.operate.status.part_status import PartStatus
from tailorbird.verify.checks.runs import CheckResult
from tailorbird.web.dashboard.panels.flow import FlowState, Rates
from tailorbird.web.dashboard.panels.overview import graph_of, sentence

NOW = 1_800_000_000_000

TOPOLOGY = read_topology(
    """\
name: t
sources:
  a: {type: mysql, hostname: h, username: u, password: p, database: d, tables: [x], server_id: 1}
  b: {type: mysql, hostname: h, username: u, password: p, database: d, tables: [y], server_id: 2}
tables:
  wide: {query: "SELECT 1", row_key: [id]}
indexes:
  wide: {table: wide}
dashboards:
  page: {index: wide}
""",
    file="t.yml",
    environ={},
)


def part(name: str, state: str = "moving", **said: Any) -> PartStatus:
    about: dict[str, Any] = {"reason": "", "pid": 1, "seconds": 1.0, "error": "", "remedy": "", **said}
    return PartStatus(part=name, state=state, **about)


def test_the_graph_joins_what_feeds_what() -> None:
    """Edges lead from sources to tables, indexes and dashboards. A node has the state of its worst process."""
    parts = [
        part("capture a", more={"lag_seconds": 1.25, "dead_letters": 3}),
        part("capture b", "away", reason="MySQL does not answer", remedy="start it"),
        part("index wide"),
        part("index wide", "stuck", reason="one batch"),
    ]
    graph = graph_of(TOPOLOGY, {"wide": {"b", "a"}}, parts)
    assert [(one["from"], one["to"], one["flow"]) for one in graph["edges"]] == [
        ("capture a", "join wide", ""),
        ("capture b", "join wide", ""),
        ("join wide", "index wide", ""),
        ("index wide", "dashboard page", ""),
    ]
    nodes = {one["id"]: one for one in graph["nodes"]}
    assert [nodes[name]["state"] for name in nodes] == ["moving", "away", "elsewhere", "stuck", "elsewhere"]
    assert nodes["capture a"]["facts"] == ["1.2 seconds lag", "3 dead letters"]
    assert [one["column"] for one in graph["nodes"]] == [0, 0, 1, 2, 3]
    assert not graph["well"]
    assert graph["sentence"] == ("capture b is away: MySQL does not answer. Remedy: start it. Then check index wide.")


SEEN = FlowState(
    now_ms=NOW,
    rates={"capture a": 12.34, "index wide": 5.0},
    captured={name: CapturedPosition(gtid_set="", sequence=1_000, snapshot="done") for name in ("a", "b")},
    visible={"wide": VisibleCut(sequences={"a": 990, "b": 1_000}, timestamp_ms=NOW - 3_000)},
    waiting=[
        OpenDeadLetters(stage="capture", of="a.d.x", dead_letters=2, reason="a zero date"),
        OpenDeadLetters(stage="quarantine", of="a.d.y", dead_letters=40, reason="unknown columns"),
        OpenDeadLetters(stage="indexer", of="other", dead_letters=1, reason="a type"),
    ],
    checked=[
        CheckResult(
            stage=stage, table="wide", outcome="equal", rows=70, differing=0, moving=0, cut="a:990", at_ms=NOW - at,
                seconds=1.0)
        for stage, at in (("table", 60_000), ("table", 5_000), ("index", 7_000))
    ],
)  # fmt: skip


def test_edges_say_how_fast_and_how_far_behind() -> None:
    """Edges show changes and documents per second, the lag of queries, the age of what they see, and the join's lag.
    Nodes show the last verified cut and the dead letters in Kafka, which differ from a process's own count."""
    parts = [
        part("capture a", more={"dead_letters": 7, "quarantined": 1}),
        part("join wide", more={"lag_changes": 4, "lag_seconds": 0.5}),
    ]
    graph = graph_of(TOPOLOGY, {"wide": {"b", "a"}}, parts, SEEN)
    assert [one["flow"] for one in graph["edges"]] == [
        "12.3 changes/s, 4 changes missing, 0.5 s",
        "4 changes missing, 0.5 s",
        "5.0 documents/s, 10 changes missing",
        "shows all up to 3 s ago",
    ]
    nodes = {one["id"]: one for one in graph["nodes"]}
    assert nodes["capture a"]["facts"] == ["42 dead letters"]
    assert not nodes["capture a"]["well"]
    assert nodes["capture b"]["facts"] == []
    assert nodes["join wide"]["facts"][-1] == "verified 5 s ago: 70 rows equal, cut a:990"
    assert nodes["index wide"]["facts"] == ["verified 7 s ago: 70 rows equal, cut a:990"]
    assert (graph["well"], graph["sentence"].partition(" Rows")[2]) == (
        False,
        " are missing: 43 changes were refused. Run: tailorbird dead-letters list t.yml.",
    )
    wrong = replace(SEEN.checked[0], outcome="different", differing=3)
    graph = graph_of(TOPOLOGY, {"wide": {"a"}}, parts, replace(SEEN, waiting=(), checked=(*SEEN.checked, wrong)))
    assert "A check found a difference" in graph["sentence"]
    assert {one["id"]: one for one in graph["nodes"]}["join wide"]["facts"][-1].startswith("DIFFERENT: 3 of 70 rows")
    complete = replace(SEEN, visible={"wide": VisibleCut(sequences={"a": 1_000, "b": 1_000}, timestamp_ms=None)})
    assert graph_of(TOPOLOGY, {"wide": {"a", "b"}}, parts, complete)["edges"][2]["flow"].endswith("complete")


def test_rates_are_over_the_last_half_minute() -> None:
    """One sample has no rate, a counter that decreased restarts at its new value, and old samples are dropped."""
    rates = Rates()
    rates.note(100.0, {"a": 50})
    assert rates.reported() == {}
    rates.note(110.0, {"a": 150, "b": 1})
    assert rates.reported() == {"a": 10.0}
    rates.note(120.0, {"a": 5, "b": 1})
    assert rates.reported() == {"b": 0.0}
    rates.note(125.0, {"a": 10})
    assert rates.reported()["a"] == 1.0
    rates.note(200.0, {})
    assert rates.reported() == {}


def test_a_sentence_says_what_is_known() -> None:
    """The states: all good, partly unknown, and completely unknown."""
    assert sentence([part("capture a"), part("join wide")]) == "All processes on this machine make progress."
    assert sentence([part("capture a"), part("join wide", "elsewhere")]).endswith("Unknown here: join wide.")
    assert sentence([part("join wide", "elsewhere")]).startswith("No process of this topology runs on this machine")
