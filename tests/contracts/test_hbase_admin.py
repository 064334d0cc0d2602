"""The features of HBase's master that we rely on: namespaces, unsplittable tables with scope, serial peers; and `apply`
over it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import happybase
import pytest
from typer.testing import CliRunner

from cdc.model.errors import Fatal, Retriable, UsageError
from cdc.topology.reader import read_topology
from cdc.topology.topology import Topology
from tailorbird.cli.app import app
from tailorbird.cli.change.cli_apply import provision
from tailorbird.provision.file_configset import install_configset
from tailorbird.provision.hbase_admin import HBaseAdmin
from tailorbird.provision.solr_admin import SolrAdmin
from tailorbird.provision.stores import FamilySpec, PeerSpec, TableSpec

pytestmark = pytest.mark.integration

TOPOLOGY = """
name: {name}
sources:
  shop:
    {{type: mysql, hostname: 127.0.0.1, username: cdc, password: cdc, database: shop, tables: [orders], server_id: 9}}
log:
  bootstrap_servers: 127.0.0.1:${{TAILORBIRD_PORT_KAFKA}}
hbase:
  thrift: 127.0.0.1:${{TAILORBIRD_PORT_THRIFT}}
  zookeeper: 127.0.0.1:${{TAILORBIRD_PORT_ZOOKEEPER}}
solr:
  url: http://127.0.0.1:${{TAILORBIRD_PORT_SOLR}}/solr
tables:
  wide: {{query: SELECT o.id FROM shop.orders o, row_key: [id], salt_buckets: 3}}
indexes:
  wide: {{table: wide}}
"""


@pytest.fixture
def admin(stack: object) -> Iterator[HBaseAdmin]:
    thrift = f"127.0.0.1:{os.environ['TAILORBIRD_PORT_THRIFT']}"
    with HBaseAdmin(zookeeper=f"127.0.0.1:{os.environ['TAILORBIRD_PORT_ZOOKEEPER']}", thrift=thrift) as found:
        yield found


@pytest.fixture
def topology(admin: HBaseAdmin, unique: Callable[[str], str]) -> Iterator[Topology]:
    """A topology of the test; everything that apply created of it is removed."""
    name = unique("t")
    made = read_topology(TOPOLOGY.format(name=name), file="t.yml", environ=os.environ)
    yield made
    for peer in admin.peers():
        if peer.startswith(f"{name}_"):
            admin.remove_peer(peer)
    if name in admin.namespaces():
        for table in admin.tables(name):
            admin.drop_table(table)
        admin.drop_namespace(name)
    solr = SolrAdmin(made.solr.url, install=install_configset)
    if solr.exists(f"{name}_wide"):
        solr.remove(f"{name}_wide")


@pytest.fixture
def thrift(stack: object) -> Iterator[happybase.Connection]:
    connection = happybase.Connection("127.0.0.1", int(os.environ["TAILORBIRD_PORT_THRIFT"]), timeout=20_000)
    yield connection
    connection.close()


def test_apply_makes_everything_once(
    topology: Topology, admin: HBaseAdmin, thrift: happybase.Connection, tmp_path: Path
) -> None:
    """`apply` is idempotent: the second run keeps all that the first one created and reports it, one line each.

    A table has one region per salt bucket, which the barriers assume, and keeps one version of a row.
    """
    name, file = topology.name, tmp_path / "t.yml"
    file.write_text(TOPOLOGY.format(name=name))
    made = CliRunner().invoke(app, ["apply", str(file)])
    assert made.exit_code == 0
    assert [line.split()[:3] for line in made.output.splitlines()] == [
        ["made", "namespace", name],
        ["made", "table", f"{name}:layouts"],
        ["made", "table", f"{name}:wide"],
        ["made", "collection", f"{name}_wide"],
        ["made", "peer", f"{name}_wide_1"],
    ]
    kept = CliRunner().invoke(app, ["apply", str(file), "--json"])
    assert [json.loads(line)["done"] for line in kept.output.splitlines()] == ["kept"] * 5
    assert admin.tables(name) == {
        f"{name}:layouts": (FamilySpec(name="f", replicated=False),),
        f"{name}:wide": (FamilySpec(name="d", replicated=True),),
    }
    peer = admin.peers()[f"{name}_wide_1"]
    assert (peer.tables, peer.serial, peer.enabled) == ((f"{name}:wide",), True, True)
    table = thrift.table(f"{name}:wide")
    assert [region["start_key"] for region in table.regions()] == [b"", b"\x01", b"\x02"]
    family = table.families()[b"d"]
    assert (family["max_versions"], family["compression"]) == (1, b"NONE")


def test_a_second_apply_is_refused_and_a_plan_is_not(topology: Topology, tmp_path: Path) -> None:
    """Only one apply of a topology runs at a time: the second one names the first, exits and changes nothing; a plan is
    allowed. When an apply is cut off, the next one starts at once and reports it."""
    file = tmp_path / "t.yml"
    file.write_text(TOPOLOGY.format(name=topology.name))
    first = provision(topology)
    assert next(first).kind == "namespace"
    with pytest.raises(UsageError, match=rf"another apply is running: process {os.getpid()} on .*, at step 1 of 5"):
        list(provision(topology))
    planned = CliRunner().invoke(app, ["plan", str(file), "--json"])
    assert planned.exit_code == 0, planned.output
    reported = [json.loads(line) for line in planned.stdout.splitlines()]
    assert [(one["action"], one["kind"]) for one in reported] == [
        ("keep", "namespace"), ("make", "table"), ("make", "table"), ("make", "collection"), ("make", "peer"),
        ("read", "source"), ("join", "join"),
    ]  # fmt: skip
    first.close()
    next_one = CliRunner().invoke(app, ["apply", str(file)])
    assert (next_one.exit_code, len(next_one.stdout.splitlines())) == (0, 5)
    assert f"an earlier apply was interrupted (process {os.getpid()} on " in next_one.stderr


@pytest.mark.parametrize("lines", [3, *(pytest.param(n, marks=pytest.mark.matrix) for n in (1, 2, 4, 5))])
def test_apply_that_is_killed_is_finished_by_the_next(
    topology: Topology, admin: HBaseAdmin, tmp_path: Path, lines: int
) -> None:
    """Kill -9 after each object that it creates: the next apply starts at once, without waiting for the dead one's
    session, and creates every object exactly once."""
    file = tmp_path / "t.yml"
    file.write_text(TOPOLOGY.format(name=topology.name))
    command = [str(Path(sys.executable).parent / "tailorbird"), "apply", str(file)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        made = [process.stdout.readline() for _ in range(lines)]
        process.kill()
    assert all(line.startswith("made") for line in made), made
    done = CliRunner().invoke(app, ["apply", str(file), "--json"])
    assert done.exit_code == 0, done.output
    outcomes = [json.loads(line) for line in done.stdout.splitlines()]
    assert [one["done"] for one in outcomes[:lines]] == ["kept"] * lines
    assert len(outcomes) == 5
    assert set(admin.tables(topology.name)) == {f"{topology.name}:layouts", f"{topology.name}:wide"}
    assert [peer for peer in admin.peers() if peer.startswith(topology.name)] == [f"{topology.name}_wide_1"]
    assert {outcome.done for outcome in provision(topology)} == {"kept"}


def test_a_topology_of_foreign_tables_alone_needs_no_kafka(
    topology: Topology, admin: HBaseAdmin, tmp_path: Path
) -> None:
    """To index foreign tables, `plan` and `apply` need only HBase and Solr."""
    name, file = topology.name, tmp_path / "t.yml"
    admin.create_namespace(name)
    family = FamilySpec(name="d", replicated=True)
    admin.create_table(TableSpec(name=f"{name}:theirs", family=family, splits=()))
    servers = TOPOLOGY[TOPOLOGY.index("hbase:") : TOPOLOGY.rindex("tables:")].format()
    file.write_text(
        f"name: {name}\nlog: {{bootstrap_servers: '127.0.0.1:9'}}\n{servers}"
        f"foreign_tables: {{theirs: {{table: '{name}:theirs', fields: {{n: {{source: 'd:n', type: string}}}}}}}}\n"
        "indexes: {wide: {table: theirs}}\n"
    )
    planned = CliRunner().invoke(app, ["plan", str(file), "--json"])
    assert planned.exit_code == 0, planned.output
    made = [json.loads(line)["kind"] for line in planned.stdout.splitlines() if '"make"' in line]
    assert made == ["table", "collection", "peer"]
    done = CliRunner().invoke(app, ["apply", str(file)])
    assert (done.exit_code, done.stdout.count("made")) == (0, 3), done.output


def test_a_table_that_lacks_its_scope_is_changed(topology: Topology, admin: HBaseAdmin) -> None:
    """A table created by hand without REPLICATION_SCOPE would silently index nothing: apply sets it."""
    admin.create_namespace(topology.name)
    family = FamilySpec(name="d", replicated=False)
    admin.create_table(TableSpec(name=f"{topology.name}:wide", family=family, splits=(b"\x01", b"\x02")))
    outcomes = {o.name: o.done for o in provision(topology)}
    assert outcomes[f"{topology.name}:wide"] == "changed"
    assert admin.tables(topology.name)[f"{topology.name}:wide"] == (FamilySpec(name="d", replicated=True),)


def test_a_contradiction_to_the_topology_is_refused(topology: Topology, admin: HBaseAdmin) -> None:
    """Another number of buckets, another family, a peer of another table: one line with the remedy, nothing changed."""
    list(provision(topology))
    text = TOPOLOGY.format(name=topology.name)
    for old, new, reason in (
        ("salt_buckets: 3", "salt_buckets: 4", "3 regions, the topology says 4"),
        ("salt_buckets: 3", "salt_buckets: 3, family: x", "families d, the topology says x"),
    ):
        changed = read_topology(text.replace(old, new), file="t.yml", environ=os.environ)
        with pytest.raises(UsageError, match=reason):
            list(provision(changed))
    spec = admin.peers()[f"{topology.name}_wide_1"]
    with pytest.raises(Fatal, match="refused AddReplicationPeer"):
        admin.add_peer(spec)


def test_an_index_over_a_table_with_rows_is_filled(
    topology: Topology, admin: HBaseAdmin, thrift: happybase.Connection
) -> None:
    """A new peer never sees rows of old write-ahead logs: an index added later is filled by a scan, under a new peer's
    name."""
    name = topology.name
    list(provision(topology))
    thrift.table(f"{name}:wide").put(b"\x00\x00barrier", {b"d:_barrier": b"{}"})
    assert {outcome.done for outcome in provision(topology)} == {"kept"}
    admin.remove_peer(f"{name}_wide_1")
    SolrAdmin(topology.solr.url, install=install_configset).remove(f"{name}_wide")
    thrift.table(f"{name}:wide").put(b"\x01\x01row", {b"d:a": b"1"})
    outcomes = {outcome.kind: outcome for outcome in provision(topology)}
    assert (outcomes["peer"].name, outcomes["peer"].done) == (f"{name}_wide_2", "made")
    # a row without a layout cannot be decoded: the scan finds it, and it becomes a dead letter
    assert outcomes["backfill"].note == "1 rows, 1 of them dead letters"
    assert {outcome.done for outcome in provision(topology)} == {"kept"}


def test_a_peer_of_another_table_is_reported(topology: Topology, admin: HBaseAdmin) -> None:
    """A peer of that name that replicates another table would leave the index empty forever."""
    name = topology.name
    list(provision(topology))
    admin.remove_peer(f"{name}_wide_1")
    key = f"{topology.hbase.zookeeper}:/sep-{name}_wide_1"
    admin.add_peer(
        PeerSpec(id=f"{name}_wide_1", cluster_key=key, tables=(f"{name}:layouts",), serial=False, enabled=True)
    )
    with pytest.raises(UsageError, match=f"replicates {name}:layouts .* not serially"):
        list(provision(topology))


def test_unavailable_servers_are_named(unique: Callable[[str], str], stack: object) -> None:
    """If Solr, Thrift or ZooKeeper is unavailable, the error names it and the remedy."""
    text = TOPOLOGY.format(name=unique("t"))
    with pytest.raises(Retriable, match=r"Solr at http://127\.0\.0\.1:9/solr does not answer"):
        SolrAdmin("http://127.0.0.1:9/solr", install=install_configset).exists("x")
    thrift = read_topology(text.replace("${TAILORBIRD_PORT_THRIFT}", "9"), file="t.yml", environ=os.environ)
    with (
        HBaseAdmin(zookeeper=thrift.hbase.zookeeper, thrift=thrift.hbase.thrift) as admin,
        pytest.raises(Retriable, match=r"Thrift server at 127\.0\.0\.1:9 does not answer"),
    ):
        admin.has_rows("x")
