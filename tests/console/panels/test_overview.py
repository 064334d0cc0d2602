"""The topology as a graph, and the sentence that says what to do."""

from __future__ import annotations

from typing import Any

from cdc.topology.reader import read_topology
from console.dashboard.panels.overview import graph_of, sentence
from console.status.part_status import PartStatus

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
    """Sources to the tables that read them, tables to indexes, indexes to dashboards; the worst process speaks."""
    parts = [
        part("capture a", more={"lag_seconds": 1.25, "dead_letters": 3}),
        part("capture b", "away", reason="MySQL does not answer", remedy="start it"),
        part("index wide"),
        part("index wide", "stuck", reason="one batch"),
    ]
    graph = graph_of(TOPOLOGY, {"wide": {"b", "a"}}, parts)
    assert graph["edges"] == [
        ["capture a", "join wide"],
        ["capture b", "join wide"],
        ["join wide", "index wide"],
        ["index wide", "dashboard page"],
    ]
    nodes = {one["id"]: one for one in graph["nodes"]}
    assert [nodes[name]["state"] for name in nodes] == ["moving", "away", "elsewhere", "stuck", "elsewhere"]
    assert nodes["capture a"]["facts"] == ["1.2 seconds behind", "3 dead letters"]
    assert [one["column"] for one in graph["nodes"]] == [0, 0, 1, 2, 3]
    assert not graph["well"]
    assert graph["sentence"] == ("capture b is away: MySQL does not answer. Do: start it. Then look at index wide.")


def test_a_sentence_says_what_is_known() -> None:
    """All well, in part unknown, wholly unknown."""
    assert sentence([part("capture a"), part("join wide")]) == "Everything moves that runs on this machine."
    assert sentence([part("capture a"), part("join wide", "elsewhere")]).endswith("Nothing is known here of join wide.")
    assert sentence([part("join wide", "elsewhere")]).startswith("Nothing of this topology runs on this machine")
