"""Indexes and peers in `status`."""

from __future__ import annotations

from cdc.topology.reader import read_topology
from tailorbird.operate.status.index_status import IndexStatus, index_statuses, reported
from tailorbird.provision.stores import PeerSpec

TOPOLOGY = read_topology(
    """
name: t
sources: {s: {type: mysql, hostname: h, username: u, password: p, database: d, tables: [a], server_id: 1}}
tables: {wide: {query: SELECT a.id FROM s.a a, row_key: [id]}}
indexes: {main: {table: wide}, other: {table: wide}}
""",
    file="t.yml",
    environ={},
)


def peer(name: str, *, enabled: bool = True, table: str = "t:wide") -> PeerSpec:
    return PeerSpec(id=name, cluster_key="k", tables=(table,), serial=True, enabled=enabled)


def statuses(
    *peers: PeerSpec, processes: dict[str, list[str]] | None = None, lacks: int | None = None
) -> dict[str, IndexStatus]:
    found = index_statuses(
        TOPOLOGY,
        {each.id: each for each in peers},
        generation=lambda index: 2 if index == "main" else 1,
        announced=lambda name: (processes or {}).get(name, []),
        collections=lambda name, live: (live,),
        visible_ms=lambda collection: 1000 if collection == "t_main" else None,
        missing=lambda index: lacks,
        now_ms=3500,
    )
    return {each.peer: each for each in found}


def test_an_index_that_is_served_reports_how_far_it_is() -> None:
    """From the barriers that queries see."""
    found = statuses(peer("t_main_2"), peer("t_other_1"), processes={"t_main_2": ["a,1,1"], "t_other_1": ["a,2,1"]})
    assert [(each.state, each.behind) for each in found.values()] == [("serving", 2.5), ("serving", None)]


def test_an_idle_index_is_complete_and_not_behind() -> None:
    """Completeness depends on what its sources have committed, not on the time since."""
    peers, served = (peer("t_main_2"), peer("t_other_1")), {"t_main_2": ["a"], "t_other_1": ["a"]}
    complete = statuses(*peers, processes=served, lacks=0)["t_main_2"]
    assert (complete.behind, reported(complete)) == (0.0, "complete; nothing new for 2 s")
    behind = statuses(*peers, processes=served, lacks=3)["t_main_2"]
    assert (behind.behind, reported(behind)) == (2.5, "3 changes missing, last full cut 2.5 s ago")
    assert reported(statuses(*peers, processes=served)["t_other_1"]) == ""


def test_idle_disabled_missing_and_stray_peers_are_reported_with_their_remedy() -> None:
    """Each of them would silently make HBase keep its logs, or make the index lag."""
    found = statuses(
        peer("t_main_2", enabled=False), peer("t_main_1"), peer("x_1", table="x:wide"), processes={"t_main_2": ["a"]}
    )
    assert {name: each.state for name, each in found.items()} == {
        "t_main_2": "disabled",
        "t_other_1": "missing",
        "t_main_1": "stray",
    }
    assert "remove_peer 't_main_1'" in found["t_main_1"].remedy
    idle = statuses(peer("t_main_2"), peer("t_other_1"))
    assert {each.state for each in idle.values()} == {"idle"}
    assert "index rm" in idle["t_main_2"].remedy
