"""What `apply` decides, against servers of our own; tests/contracts/test_hbase_admin.py has the real ones."""

from __future__ import annotations

import dataclasses

import pytest

from cdc.errors import UsageError
from cdc.reader import read_topology
from console.apply import FamilySpec, Outcome, PeerSpec, TableSpec, apply

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
        self.specs: dict[str, TableSpec] = {}
        self.rows: set[str] = set()
        self.known_peers: dict[str, PeerSpec] = {}
        self.collections: set[str] = set()

    def namespaces(self) -> set[str]:
        return {name for name in self.made if name == "t"}

    def create_namespace(self, name: str) -> None:
        self.made.append(name)

    def tables(self, namespace: str) -> dict[str, tuple[FamilySpec, ...]]:
        return {name: (spec.family,) for name, spec in self.specs.items()}

    def create_table(self, table: TableSpec) -> None:
        self.made.append(table.name)
        self.specs[table.name] = table

    def replicate(self, table: str, family: FamilySpec) -> None:
        self.made.append(f"replicate {table}")
        self.specs[table] = dataclasses.replace(self.specs[table], family=family)

    def has_rows(self, table: str) -> bool:
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

    def create(self, collection: str) -> None:
        self.made.append(collection)
        self.collections.add(collection)


def run(servers: Servers) -> list[Outcome]:
    return list(
        apply(TOPOLOGY, tables=servers, peers=servers, collections=servers, cluster_key=lambda peer: f"zk:{peer}")
    )


def test_the_peer_comes_last_and_everything_once() -> None:
    """A peer ships at once: its table and its collection are there before it."""
    servers = Servers()
    assert {outcome.done for outcome in run(servers)} == {"made"}
    assert servers.made == ["t", "t:layouts", "t:wide", "t_main", "t_main_1"]
    assert servers.specs["t:wide"].splits == (b"\x01", b"\x02")
    assert not servers.specs["t:layouts"].family.replicated
    assert {outcome.done for outcome in run(servers)} == {"kept"}
    assert len(servers.made) == 5


@pytest.mark.parametrize("cut_off_after", range(5))
def test_an_apply_that_was_cut_off_is_finished_by_the_next(cut_off_after: int) -> None:
    """Whatever the first run still made, the second makes the rest."""
    servers = Servers()
    steps = apply(TOPOLOGY, tables=servers, peers=servers, collections=servers, cluster_key=lambda peer: f"zk:{peer}")
    for _ in range(cut_off_after):
        next(steps)
    run(servers)
    assert sorted(servers.made) == sorted(["t", "t:layouts", "t:wide", "t_main", "t_main_1"])


@pytest.mark.parametrize("lost", ["collection", "peer"])
def test_an_index_is_not_begun_over_rows_it_would_never_see(lost: str) -> None:
    """Refused before anything is made, and naming what is missing."""
    servers = Servers()
    run(servers)
    servers.rows.add("t:wide")
    assert {outcome.done for outcome in run(servers)} == {"kept"}
    (servers.collections if lost == "collection" else servers.known_peers).clear()
    with pytest.raises(UsageError, match=f"lacks its {lost}"):
        run(servers)
    assert len(servers.made) == 5


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"enabled": False}, "is disabled"),
        ({"serial": False}, "not serially"),
        ({"tables": ()}, "replicates everything"),
        ({"cluster_key": "elsewhere"}, "to elsewhere"),
    ],
)
def test_a_peer_that_is_not_ours_is_told(change: dict[str, object], reason: str) -> None:
    """An index that would stay empty for ever is found out here, not on the page."""
    servers = Servers()
    run(servers)
    peer = servers.known_peers["t_main_1"]
    servers.known_peers["t_main_1"] = dataclasses.replace(peer, **change)
    with pytest.raises(UsageError, match=reason):
        run(servers)
