"""Foreign tables on the real servers: the cases that an HBase indexer must get right.

Rows are written with plain `Bytes`, cell by cell, as an application or the HBase shell writes them.
"""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import happybase
import pytest
import requests

from cdc.model.naming import collection, peer
from cdc.topology.reader import read_topology
from cdc.topology.topology import Topology
from tailorbird.cli.change.cli_apply import provision
from tailorbird.provision.file_configset import install_configset
from tailorbird.provision.hbase_admin import HBaseAdmin
from tailorbird.provision.solr_admin import SolrAdmin
from tests.support.commands import tailorbird

pytestmark = pytest.mark.integration

TOPOLOGY = """
name: {name}
log: {{bootstrap_servers: "127.0.0.1:${{TAILORBIRD_PORT_KAFKA}}"}}
hbase:
  thrift: 127.0.0.1:${{TAILORBIRD_PORT_THRIFT}}
  zookeeper: 127.0.0.1:${{TAILORBIRD_PORT_ZOOKEEPER}}
solr:
  url: http://127.0.0.1:${{TAILORBIRD_PORT_SOLR}}/solr
foreign_tables:
  people:
    table: {name}_people
    start_row: a
    stop_row: y
    fields:
      key: {{source: row, type: string}}
      name: {{source: "d:name", type: string}}
      age: {{source: "d:age", type: int32}}
      big: {{source: "d:big", type: int64}}
      paid: {{source: "d:paid", type: decimal}}
      rate: {{source: "d:rate", type: float64}}
      works: {{source: "d:works", type: bool}}
      tags: {{source: "t:tag_*", take: qualifier, type: string}}
      notes: {{source: "t:note_*", type: string}}
  cells:
    table: {name}_people
    mapping: column
    unique_key: {cells_key}
    fields:
      message: {{source: "m:*", type: string}}
  events:
    table: {name}_people
    read_row: never
    unique_key: hex
    fields:
      name: {{source: "d:name", type: string}}
indexes:
  people: {{table: people, search: [name], commit_within: 100ms}}
  cells: {{table: cells, commit_within: 100ms}}
  events: {{table: events, commit_within: 100ms}}
"""
Documents = dict[str, dict[str, Any]]


class World:
    """An application's table, and the indexes over it."""

    def __init__(self, name: str, file: Path) -> None:
        file.write_text(TOPOLOGY.format(name=name, cells_key="string"))
        self.file = file
        self.topology: Topology = read_topology(file.read_text(), file=str(file), environ=os.environ)
        self.connection = happybase.Connection("127.0.0.1", int(os.environ["TAILORBIRD_PORT_THRIFT"]), timeout=30_000)
        self.table = self.connection.table(f"{name}_people")
        self.processes: list[subprocess.Popen[bytes]] = []
        self.clock = time.time_ns() // 1_000_000

    def now(self) -> int:
        """Return a timestamp later than any before."""
        self.clock = max(self.clock + 1, time.time_ns() // 1_000_000)
        return self.clock

    def put(self, row: bytes, cells: dict[bytes, bytes], at: int | None = None) -> None:
        self.table.put(row, cells, timestamp=at or self.now())

    def delete(self, row: bytes, columns: list[bytes] | None = None, at: int | None = None) -> None:
        self.table.delete(row, columns=columns, timestamp=at or self.now())

    def start(self) -> None:
        for index in self.topology.indexes:
            command = [sys.executable, "-m", "indexer", str(self.file), "--index", index]
            self.processes.append(subprocess.Popen(command, stderr=subprocess.DEVNULL))

    def stop(self) -> None:
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            process.wait(60)
        self.processes.clear()

    def shown(self, index: str) -> Documents:
        """Return documents by id, without Tailorbird's own fields."""
        url = f"{self.topology.solr.url}/{collection(self.topology.name, index)}/select"
        found = requests.get(url, params={"q": "_kind:row", "rows": "1000", "wt": "json"}, timeout=30).json()
        return {
            document["_id"]: {name: value for name, value in document.items() if not name.startswith("_")}
            for document in found["response"]["docs"]
        }

    def reported(self, *arguments: str) -> Any:
        done = tailorbird("index", *arguments, "--json")
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture(scope="module")
def world(stack: object, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    name = f"f_{uuid.uuid4().hex[:10]}"
    world = World(name, tmp_path_factory.mktemp("foreign") / "f.yml")
    hbase = world.topology.hbase
    with HBaseAdmin(zookeeper=hbase.zookeeper, thrift=hbase.thrift) as admin:
        world.connection.create_table(f"{name}_people", {"d": {"max_versions": 3}, "t": {}, "m": {}})
        # written before any index subscribed: the logs may have another table's rows, these are in the table
        world.put(b"before", {b"d:name": b"Ada", b"d:age": struct.pack(">i", 36)})
        world.put(b"zebra", {b"d:name": b"beyond the stop row"})
        list(provision(world.topology))
        assert {outcome.done for outcome in provision(world.topology)} == {"kept"}
        world.start()
        yield world
        world.stop()
        for index in world.topology.indexes:
            admin.remove_peer(peer(name, index))
            SolrAdmin(world.topology.solr.url, install=install_configset).remove(collection(name, index))
        admin.drop_table(f"default:{name}_people")
        admin.drop_table(f"{name}:layouts")
        admin.drop_namespace(name)
    world.connection.close()


def eventually(what: Callable[[], object], expected: object, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while (found := what()) != expected:
        assert time.monotonic() < deadline, f"{found} instead of {expected}"
        time.sleep(0.1)


def test_rows_from_before_the_subscription_are_indexed(world: World) -> None:
    """A new index is filled and updated within its bounds; only the table's families are replicated."""
    eventually(lambda: world.shown("people").get("before"), {"key": "before", "name": "Ada", "age": 36})
    assert "zebra" not in world.shown("people")
    world.put(b"zebra", {b"d:name": b"beyond the stop row, live"})
    world.put(b"Zoe", {b"d:name": b"before the start row, live"})
    world.put(b"xylophone", {b"d:name": b"within"})
    eventually(lambda: world.shown("people").get("xylophone"), {"key": "xylophone", "name": "within"})
    assert not {"zebra", "Zoe"} & world.shown("people").keys()
    versions = {name: family["max_versions"] for name, family in world.table.families().items()}
    assert versions[b"d"] == 3


def test_every_type_is_read_as_bytes_wrote_it(world: World) -> None:
    """Bytes.toBytes of each type; several columns with one prefix make a field of several values, or of their names."""
    world.put(
        b"types",
        {
            b"d:name": "Übersee".encode(),
            b"d:age": struct.pack(">i", -7),
            b"d:big": struct.pack(">q", 2**62 + 1),
            b"d:paid": struct.pack(">i", 2) + (-12345).to_bytes(3, "big", signed=True),
            b"d:rate": struct.pack(">d", 0.1),
            b"d:works": b"\xff",
            b"t:tag_red": b"",
            b"t:tag_blue": b"",
            b"t:note_1": b"one",
            b"t:note_2": b"two",
            b"t:other": b"nobody asks",
        },
    )
    eventually(
        lambda: world.shown("people").get("types"),
        {
            "key": "types",
            "name": "Übersee",
            "age": -7,
            "big": 2**62 + 1,
            "paid": "-123.45",
            "rate": 0.1,
            "works": True,
            "tags": ["blue", "red"],
            "notes": ["one", "two"],
        },
    )


def test_a_partial_write_is_completed(world: World) -> None:
    """After a write of one cell the document keeps the values of the other cells."""
    world.put(b"partial", {b"d:name": b"Bob", b"d:age": struct.pack(">i", 1)})
    eventually(lambda: world.shown("people").get("partial", {}).get("age"), 1)
    world.put(b"partial", {b"d:age": struct.pack(">i", 2)})
    eventually(lambda: world.shown("people").get("partial"), {"key": "partial", "name": "Bob", "age": 2})


def test_deletes_of_cell_family_and_row(world: World) -> None:
    """Each removes the values that HBase removes; the row delete removes the document."""
    world.put(b"gone", {b"d:name": b"Cy", b"d:age": struct.pack(">i", 3), b"t:tag_x": b"", b"t:tag_y": b""})
    full = {"key": "gone", "name": "Cy", "age": 3, "tags": ["x", "y"]}
    eventually(lambda: world.shown("people").get("gone"), full)
    world.delete(b"gone", [b"t:tag_x"])
    eventually(lambda: world.shown("people").get("gone"), {**full, "tags": ["y"]})
    world.delete(b"gone", [b"t"])
    eventually(lambda: world.shown("people").get("gone"), {"key": "gone", "name": "Cy", "age": 3})
    world.delete(b"gone")
    eventually(lambda: world.shown("people").get("gone"), None)
    world.put(b"gone", {b"d:name": b"Cy again"})
    eventually(lambda: world.shown("people").get("gone"), {"key": "gone", "name": "Cy again"})


def test_update_and_delete_of_one_cell_in_both_orders(world: World) -> None:
    """The timestamp decides, not the order of arrival; an older version becomes visible when the newer one is
    deleted."""
    early, late = world.now() + 1000, world.now() + 2000
    world.put(b"order1", {b"d:name": b"x", b"d:age": struct.pack(">i", 1)}, at=early)
    world.delete(b"order1", [b"d:age"], at=late)
    world.delete(b"order2", [b"d:age"], at=early)
    world.put(b"order2", {b"d:name": b"x", b"d:age": struct.pack(">i", 2)}, at=late)
    world.delete(b"order3", [b"d:age"], at=late)
    world.put(b"order3", {b"d:name": b"x", b"d:age": struct.pack(">i", 3)}, at=early)
    eventually(
        lambda: [world.shown("people").get(f"order{n}") for n in (1, 2, 3)],
        [
            {"key": "order1", "name": "x"},
            {"key": "order2", "name": "x", "age": 2},
            {"key": "order3", "name": "x"},
        ],
    )


def test_a_cell_that_can_not_be_read_is_a_dead_letter_and_replayed_when_repaired(world: World) -> None:
    """The invalid cell is isolated; after a repair that the indexer does not see, a replay indexes it."""
    world.put(b"poison", {b"d:name": b"Eve", b"d:age": b"not four bytes"})
    world.put(b"quite", {b"d:name": b"well"})
    eventually(lambda: world.shown("people").get("quite"), {"key": "quite", "name": "well"})
    assert "poison" not in world.shown("people")
    arguments = ("replay-dead-letters", str(world.file), "--index", "people")
    eventually(lambda: [each["row"] for each in world.reported(*arguments, "--dry-run")], [b"poison".hex()])
    assert world.reported(*arguments) == [{"letters": 1, "rows": 1, "dead_letters": 1}]
    assert "field age" in world.reported(*arguments, "--dry-run")[0]["reason"]
    world.put(b"poison", {b"d:age": struct.pack(">i", 5)})
    eventually(lambda: world.shown("people").get("poison"), {"key": "poison", "name": "Eve", "age": 5})


def test_each_cell_a_document_with_hyphens_in_its_id(world: World) -> None:
    """Column mapping: row-family-qualifier, with escaped hyphens inside; a row delete removes all its documents."""
    world.put(b"in-box", {b"m:1": b"hello", b"m:2-b": b"world"})
    wanted = {"in\\-box-m-1": {"message": ["hello"]}, "in\\-box-m-2\\-b": {"message": ["world"]}}
    eventually(lambda: world.shown("cells"), wanted)
    world.delete(b"in-box", [b"m:1"])
    wanted.pop("in\\-box-m-1")
    eventually(lambda: world.shown("cells"), wanted)
    world.delete(b"in-box")
    eventually(lambda: world.shown("cells"), {})


def test_rows_never_read_have_hexadecimal_ids(world: World) -> None:
    """`read_row: never` takes an event for the whole row; a key that is not text needs `unique_key: hex`."""
    world.put(b"k\xff\x00", {b"d:name": b"binary"})
    eventually(lambda: world.shown("events").get("6bff00"), {"name": "binary"})
    world.delete(b"k\xff\x00")
    eventually(lambda: world.shown("events").get("6bff00"), None)


def test_a_dry_run_writes_nothing_and_a_reindex_does_what_it_announced(world: World) -> None:
    """`--dry-run` counts what the real run then writes; live rows continue into the new collection."""
    before = world.shown("people")
    arguments = ("reindex", str(world.file), "--index", "people")
    [rehearsed] = world.reported(*arguments, "--dry-run")
    assert world.shown("people") == before
    [done] = world.reported(*arguments)
    assert (done["rows"], done["dead_letters"]) == (rehearsed["rows"], rehearsed["dead_letters"])
    eventually(lambda: world.shown("people"), before)
    world.put(b"after", {b"d:name": b"Zoe"})
    eventually(lambda: world.shown("people").get("after"), {"key": "after", "name": "Zoe"})
    world.reported(*arguments, "--finish")
