"""Decisions of `apply`, with servers in memory; tests/contracts/test_hbase_admin.py has the real ones."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest

from cdc.model.errors import UsageError
from cdc.topology.reader import read_topology
from cdc.topology.topology import Index
from tailorbird.provision.apply import Outcome, apply, outcome_of
from tailorbird.provision.plan import plan
from tailorbird.provision.stores import FamilySpec, PeerSpec, Stores, TableSpec

TOPOLOGY = read_topology(
    """
name: t
sources: {s: {type: mysql, hostname: h, username: u, password: p, database: d, tables: [a], server_id: 1}}
tables: {wide: {query: SELECT a.id FROM s.a a, row_key: [id], salt_buckets: 3}}
indexes: {main: {table: wide}}
""",
    file="t.yml",
    environ={},
)


class Servers:
    """HBase and Solr in memory, noting the order in which things are made."""

    def __init__(self) -> None:
        self.made: list[str] = []
        self.spaces: set[str] = set()
        self.specs: dict[str, TableSpec] = {}
        self.rows: set[str] = set()
        self.known_peers: dict[str, PeerSpec] = {}
        self.collections: set[str] = set()
        self.generation = 1
        self.once_made: set[str] = set()
        self.to_fill: set[str] = set()
        self.filled: list[str] = []

    def namespaces(self) -> set[str]:
        return set(self.spaces)

    def create_namespace(self, name: str) -> None:
        self.made.append(name)
        self.spaces.add(name)

    def tables(self, namespace: str) -> dict[str, tuple[FamilySpec, ...]]:
        return {name: (spec.family,) for name, spec in self.specs.items()}

    def create_table(self, table: TableSpec) -> None:
        self.made.append(table.name)
        self.specs[table.name] = table

    def replicate(self, table: str, family: FamilySpec) -> None:
        self.made.append(f"replicate {table}")
        self.specs[table] = dataclasses.replace(self.specs[table], family=family)

    def has_rows(self, table: str) -> bool:
        assert table in self.specs, "there is no such table"
        return table in self.rows

    def regions(self, table: str) -> int:
        return len(self.specs[table].splits) + 1

    def peers(self) -> dict[str, PeerSpec]:
        return dict(self.known_peers)

    def add_peer(self, peer: PeerSpec) -> None:
        self.made.append(peer.id)
        self.known_peers[peer.id] = peer

    def exists(self, collection: str) -> bool:
        return collection in self.collections

    def create(self, collection: str, *, shards: int = 1) -> None:
        self.made.append(collection)
        self.collections.add(collection)

    def current(self, topology: str, index: str) -> int:
        return self.generation

    def advance(self, topology: str, index: str) -> int:
        self.generation += 1
        return self.generation

    def was_made(self, peer: str) -> bool:
        return peer in self.once_made

    def mark_made(self, peer: str) -> None:
        self.once_made.add(peer)

    def note(self, index: Index, peer: str) -> None:
        self.to_fill.add(peer)

    def noted(self, index: Index, peer: str) -> bool:
        return peer in self.to_fill

    def run(self, index: Index, peer: str) -> str:
        assert peer in self.known_peers, "a scan before the peer misses what is written in between"
        assert index.collection in self.collections
        self.to_fill.discard(peer)
        self.filled.append(peer)
        return "3 rows"


def run(servers: Servers) -> list[Outcome]:
    return list(steps(servers))


def stores(servers: Servers) -> Stores:
    return Stores(
        tables=servers,
        peers=servers,
        collections=lambda _: servers,
        names=servers,
        backfills=servers,
        cluster_key=lambda peer: f"zk:{peer}",
    )


def steps(servers: Servers) -> Iterator[Outcome]:
    return apply(TOPOLOGY, plan(TOPOLOGY, stores(servers)), stores(servers))


@pytest.mark.parametrize("there", ["nothing", "all", "no peer", "rows"])
def test_a_plan_changes_nothing_and_says_what_is_done(there: str) -> None:
    """`--dry-run` shows the outcomes that an apply then has, and does not query missing tables."""
    servers = Servers()
    if there != "nothing":
        run(servers)
    if there in ("no peer", "rows"):
        servers.known_peers.clear()
    if there == "rows":
        servers.rows.add("t:wide")
    before = copy.deepcopy(vars(servers))
    found = [outcome for step in plan(TOPOLOGY, stores(servers)) if (outcome := outcome_of(step)) is not None]
    assert vars(servers) == before
    done = run(servers)
    assert [(one.kind, one.name, one.done) for one in found] == [(one.kind, one.name, one.done) for one in done]


def test_the_peer_comes_last_and_everything_once() -> None:
    """A peer ships immediately, so its table and its collection exist before it."""
    servers = Servers()
    assert {outcome.done for outcome in run(servers)} == {"made"}
    assert servers.made == ["t", "t:layouts", "t:wide", "t_main", "t_main_1"]
    assert servers.specs["t:wide"].splits == (b"\x01", b"\x02")
    assert not servers.specs["t:layouts"].family.replicated
    assert {outcome.done for outcome in run(servers)} == {"kept"}
    assert len(servers.made) == 5


@pytest.mark.parametrize("cut_off_after", range(5))
def test_an_apply_that_was_cut_off_is_finished_by_the_next(cut_off_after: int) -> None:
    """The second run creates whatever the first one did not."""
    servers = Servers()
    cut_off = steps(servers)
    for _ in range(cut_off_after):
        next(cut_off)
    run(servers)
    assert sorted(servers.made) == sorted(["t", "t:layouts", "t:wide", "t_main", "t_main_1"])


@pytest.mark.parametrize("lost", ["collection", "peer", "both"])
@pytest.mark.parametrize("cut_off_after", [0, 4, 5, 9])
def test_an_index_that_is_new_over_rows_is_filled_once(lost: str, cut_off_after: int) -> None:
    """The fill follows the peer, which has a new name if the old one was removed, also after an interrupted apply."""
    servers = Servers()
    run(servers)
    servers.rows.add("t:wide")
    assert {outcome.done for outcome in run(servers)} == {"kept"}
    if lost in ("collection", "both"):
        servers.collections.clear()
    if lost in ("peer", "both"):
        servers.known_peers.clear()
    cut_off = steps(servers)
    for _ in range(cut_off_after):
        if next(cut_off, None) is None:
            break
    run(servers)
    peer = "t_main_1" if lost == "collection" else "t_main_2"
    assert servers.filled == [peer]
    assert set(servers.known_peers) == {peer}
    assert {outcome.done for outcome in run(servers)} == {"kept"}
    assert servers.filled == [peer]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"enabled": False}, "is disabled"),
        ({"serial": False}, "not serially"),
        ({"tables": ()}, "replicates everything"),
        ({"cluster_key": "elsewhere"}, "to elsewhere"),
    ],
)
def test_a_peer_that_is_not_ours_is_reported(change: dict[str, Any], reason: str) -> None:
    """An index that would remain empty forever is reported here, not on the page."""
    servers = Servers()
    run(servers)
    peer = servers.known_peers["t_main_1"]
    servers.known_peers["t_main_1"] = dataclasses.replace(peer, **change)
    with pytest.raises(UsageError, match=reason):
        run(servers)
