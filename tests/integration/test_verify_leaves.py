"""`tailorbird verify --stage index --changed-since last` on the real servers: it reads what changed, and finds what was
written or deleted past the pipeline in HBase and Solr.
"""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from cdc.model.errors import Retriable
from cdc.process.file_topology import home
from cdc.stored.cells import RowCodec
from cdc.stored.layout import timestamp_row
from indexer.peer import wire_pb2 as pb
from indexer.table.hbase_changes import ChangedRows
from indexer.table.hbase_rpc import HBaseRpc
from tailorbird.provision.hbase_admin import HBaseAdmin
from tailorbird.verify.findings import Verdict
from tailorbird.verify.index import run_index_stage, solr_documents
from tailorbird.verify.index.run_index_stage import verify_indexes
from tailorbird.verify.request import StageResult, parse_request
from tailorbird.verify.settling import settling_policy
from tailorbird.verify.table.hbase_stored_rows import StoredRows
from tests.integration.test_index import TYPES, World, a_world, equal, row
from tests.integration.test_verify_index import PlantedWrites, YesPrompt, kinds
from tests.support.waiting import wait_for

pytestmark = pytest.mark.integration

ROWS = 1000


def verified(world: World) -> Verdict:
    """Run `verify --stage index --changed-since last` within this process."""
    return checked(world).verdict


def checked(world: World, *, repair: bool = False) -> StageResult:
    [one] = verify_indexes(parse_request(world.topology, ["index"], None, since="last", repair=repair), YesPrompt())
    return one


@pytest.fixture
def world(stack: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(run_index_stage, "_BETWEEN_LOOKS", 0.1)
    # otherwise every check would read all rows again, because they were written within the last minute
    monkeypatch.setattr(solr_documents, "late_versions", lambda _: 0)
    monkeypatch.setenv("TAILORBIRD_HOME", str(tmp_path / "home"))
    with a_world(tmp_path) as world:
        yield world


def filled(world: World, rows: int = ROWS) -> RowCodec:
    codec = world.store_layout(1, **TYPES)
    world.start()
    for start in range(0, rows, 1000):
        world.write(codec, [row(n) for n in range(start, min(start + 1000, rows))])
    world.write(codec)
    equal(world)
    return codec


def test_a_routine_check_reads_what_changed_and_finds_every_fault(world: World) -> None:
    """Changes of the join cost the rows of their leaves; writes and deletes that bypass replication or the fence are
    found, repaired, and not found again. After a repair of the table, or of a rebuilt index, all rows are compared.
    """
    codec = filled(world)
    first = verified(world)
    assert (first.outcome, first.rows) == ("equal", ROWS)
    assert "compared all rows: no earlier comparison is stored here" in first.cut
    idle = verified(world)
    assert (idle.outcome, idle.rows, idle.read, idle.leaves) == ("equal", ROWS, 0, -(-ROWS // 64))
    world.write(codec, [row(7, 1), row(ROWS + 1)], deletes=[11])
    equal(world)
    changed = verified(world)
    assert (changed.outcome, changed.rows) == ("equal", ROWS)
    assert 0 < changed.read <= 3 * 65
    with closing(PlantedWrites(world, codec)) as plant:
        plant.post([{**plant.document(100), "amount": "12.34"}])  # with the fence of the row itself
        plant.post({"delete": {"id": plant.id(200)}})
        plant.post([{**plant.document(300), "_id": plant.id(9_003), "id": 9_003}])
        plant.put(400, name="written directly")
        plant.delete(500)
        world.write(codec)
        done = checked(world, repair=True)
        found = done.verdict
        assert kinds(found) == {100: "different", 200: "missing", 9_003: "extra", 400: "different", 500: "extra"}
        assert found.read <= 5 * 65 + 65
    assert done.last.outcome == "equal"
    again = verified(world)
    assert (again.outcome, again.rows, again.unknown) == ("equal", ROWS - 1, ())
    table = StoredRows(world.topology, world.topology.tables["wide"], settling=settling_policy())
    with closing(PlantedWrites(world, codec)) as plant:
        key = plant.id(600)
    table.remove({key: table.rows([key])[key].version // 2})  # as a repair on any host
    equal(world)
    repaired = verified(world)
    assert (repaired.outcome, repaired.rows) == ("equal", ROWS - 2)
    assert "compared all rows: since the last comparison there is another repair of the table" in repaired.cut
    [stored] = (home() / "verify").glob("*.leaves.json")
    content = json.loads(stored.read_text())
    content["identity"]["collection"] = "an earlier one"
    stored.write_text(json.dumps(content))
    assert "compared all rows: since the last comparison there is another collection" in verified(world).cut


def flush(world: World, *, major: bool = False) -> None:
    """Flush the table's regions, and with `major` start a major compaction of each."""
    for region in world.table.regions():
        which = pb.RegionSpecifier(type=pb.RegionSpecifier.REGION_NAME, value=region["name"])
        with HBaseRpc(region["server_name"].decode(), region["port"], "AdminService", name="region server") as server:
            server.call("FlushRegion", pb.FlushRegionRequest(region=which), pb.FlushRegionResponse)
            if major:
                request = pb.CompactRegionRequest(region=which, major=True)
                server.call("CompactRegion", request, pb.CompactRegionResponse)


def expire(world: World, seconds: int) -> None:
    """Let the cells of the table expire."""
    hbase = world.topology.hbase
    name = pb.TableName(namespace=world.topology.name.encode(), qualifier=b"wide")
    with HBaseAdmin(zookeeper=hbase.zookeeper, thrift=hbase.thrift) as admin:
        wanted = pb.GetTableDescriptorsRequest(table_names=[name])
        [table] = admin.call("GetTableDescriptors", wanted, pb.GetTableDescriptorsResponse).table_schema
        [family] = table.column_families
        family.attributes.add(first=b"TTL", second=str(seconds).encode())
        request = pb.ModifyColumnRequest(table_name=name, column_families=family)
        admin.call("ModifyColumn", request, pb.ProcedureStarted)


@pytest.mark.matrix
def test_deletes_are_found_after_a_major_compaction(world: World) -> None:
    """A compaction drops the delete marker of a row that was deleted past replication; the region is counted again.
    Before, the marker is found in a file.
    """
    codec = filled(world)
    flush(world)
    verified(world)
    with closing(PlantedWrites(world, codec)) as plant:
        plant.delete(400)
        flush(world)
        found = verified(world)
        assert (kinds(found), found.read <= 65) == ({400: "extra"}, True)
        plant.delete(500)
    changes = ChangedRows(world.topology, world.topology.tables["wide"])
    before = changes.store_files()
    flush(world, major=True)
    wait_for(
        lambda: all(set(before[name]).isdisjoint(files) for name, files in changes.store_files().items()),
        "no compaction",
        60,
    )
    found = verified(world)
    assert kinds(found) == {400: "extra", 500: "extra"}
    assert found.read >= ROWS - 200
    assert verified(world).read <= 130


@pytest.mark.matrix
def test_without_the_region_servers_all_rows_are_counted(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """If a firewall or Kerberos refuses the scan, the check still finds a delete, and says what it read."""
    codec = filled(world)
    verified(world)
    with closing(PlantedWrites(world, codec)) as plant:
        plant.delete(500)

    def refused(*_: object, **__: object) -> None:
        raise Retriable("a region server does not answer")

    with monkeypatch.context() as patched:
        patched.setattr(HBaseRpc, "__init__", refused)
        found = verified(world)
    assert kinds(found) == {500: "extra"}
    assert f"counted {ROWS - 1:,} rows" in found.cut


@pytest.mark.matrix
def test_expiring_cells_are_compared_completely(world: World) -> None:
    """HBase reports nothing when a cell expires, so nothing of an earlier comparison is used."""
    filled(world, 10)
    verified(world)
    expire(world, 864_000)
    changes = ChangedRows(world.topology, world.topology.tables["wide"])
    wait_for(lambda: changes.expiry() == 864_000, "the cells do not expire", 60)
    assert "its cells expire after 864,000 s" in verified(world).cut


@pytest.mark.matrix
def test_a_rebuild_is_compared_completely(world: World) -> None:
    """Leaves of a collection are never used for another one, nor those of a run of the join for another run."""
    codec = filled(world)
    verified(world)
    assert world.tailorbird("index", "reindex").wait(120) == 0
    found = verified(world)
    assert (found.outcome, "another collection" in found.cut) == ("equal", True)
    world.write(codec, [row(3, 9)])
    equal(world)
    assert verified(world).read <= 65
    layouts = world.connection.table(f"{world.topology.name}:layouts")
    layouts.put(timestamp_row("wide", "another", 1), {b"f:stamp": world.batch_timestamp.to_bytes(8, "big")})
    again = world.reported("verify", "--stage", "index", "--changed-since", "last", "--json")
    assert again["outcome"] == "equal"
    assert "compared all rows: since the last comparison there is another run of the join" in again["cut"]
