"""The indexer on the real servers: whatever dies, the collection ends equal to the table, field by field.

Rows are written as the join's sink writes them. Solr becomes unavailable when the test cuts its own proxy, since other
tests share the servers.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import happybase
import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient
from kazoo.client import KazooClient

from cdc.model.types import Canonical, parse_type
from cdc.stored.cells import Barrier, RowCodec, barrier_key
from cdc.stored.layout import Layout, LayoutColumn, dump_layout, layout_row, timestamp_row
from cdc.topology.reader import read_topology
from cdc.topology.topology import Topology
from indexer.solr.solr_rows import all_documents
from indexer.table.hbase_rows import scan_rows
from tailorbird.cli.change.cli_apply import provision
from tailorbird.operate.status.dead_letters import DeadLetterList
from tailorbird.operate.status.kafka_dead_letters import DeadLetterReader
from tailorbird.provision.file_configset import install_configset
from tailorbird.provision.hbase_admin import HBaseAdmin
from tailorbird.provision.solr_admin import SolrAdmin
from tests.support.commands import tailorbird
from tests.support.ports import free_port
from tests.support.waiting import wait_for

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
  url: http://127.0.0.1:{solr_port}/solr
tables:
  wide: {{query: SELECT o.id FROM shop.orders o, row_key: [id], salt_buckets: 2}}
indexes:
  wide: {{table: wide, search: [name], commit_within: 100ms}}
"""
TYPES = {"id": "int64", "name": "string", "amount": "decimal(10,2)", "at": "datetime", "note": "string"}
LATER = ("country", "size", "region", "tags", "sums")  # columns of the layouts that the tests store
Row = dict[str, Canonical]


class Proxy:
    """A TCP port that forwards to a server until it is cut."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open = threading.Event()
        self._open.set()
        self._ends: set[socket.socket] = set()
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def port(self) -> int:
        port: int = self._listener.getsockname()[1]
        return port

    def cut(self) -> None:
        self._open.clear()
        for end in list(self._ends):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def repair(self) -> None:
        self._open.set()

    def close(self) -> None:
        self.cut()
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            if not self._open.is_set():
                near.close()
                continue
            far = socket.create_connection(("127.0.0.1", self._target))
            self._ends |= {near, far}
            for source, sink in ((near, far), (far, near)):
                threading.Thread(target=self._pump, args=(source, sink), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                sink.sendall(data)
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_RDWR)
        self._ends.discard(source)
        source.close()


class World:
    """An applied topology, its table as the join would write it, and the indexers that the test runs."""

    def __init__(self, name: str, file: Path, solr: Proxy, zookeeper: Proxy) -> None:
        text = TOPOLOGY.format(name=name, solr_port=solr.port)
        file.write_text(text)
        self.file, self.solr, self.zookeeper = file, solr, zookeeper
        self.topology: Topology = read_topology(text, file=str(file), environ=os.environ)
        self.url = f"http://127.0.0.1:{os.environ['TAILORBIRD_PORT_SOLR']}/solr"
        self.connection = happybase.Connection("127.0.0.1", int(os.environ["TAILORBIRD_PORT_THRIFT"]), timeout=30_000)
        self.table = self.connection.table(f"{name}:wide")
        self.batch_timestamp = 0
        self.batch = 0
        self.processes: list[subprocess.Popen[str]] = []

    def store_layout(self, layout_id: int, *, nullable: str | None = None, **types: str) -> RowCodec:
        """Store a layout with the key `id` and, if given, a nullable key column."""
        columns = tuple(LayoutColumn(name=n, type=parse_type(t), origin="") for n, t in types.items())
        layout = Layout(
            topology=self.topology.name,
            table="wide",
            id=layout_id,
            family="d",
            columns=columns,
            row_key=("id", nullable) if nullable else ("id",),
            salt_buckets=2,
            nullable_key=(nullable,) if nullable else (),
        )
        layouts = self.connection.table(f"{self.topology.name}:layouts")
        layouts.put(layout_row("wide", layout_id), {b"f:json": dump_layout(layout)})
        return RowCodec(layout)

    def write(self, codec: RowCodec, rows: Sequence[Row] = (), deletes: Sequence[int] = (), **key: Canonical) -> None:
        """Write one batch of the sink: deletes at its timestamp, whole rows at timestamp + 1, then a barrier per
        bucket.

        `key`: the values of the deleted rows in further key columns.
        """
        self.batch += 1
        self.batch_timestamp = max(time.time_ns() // 1_000_000, self.batch_timestamp + 2)
        layouts = self.connection.table(f"{self.topology.name}:layouts")
        layouts.put(timestamp_row("wide", "run", self.batch), {b"f:stamp": self.batch_timestamp.to_bytes(8, "big")})
        with self.table.batch(timestamp=self.batch_timestamp) as batch:
            for one in deletes:
                batch.delete(codec.row_key({"id": one, **key}))
        with self.table.batch(timestamp=self.batch_timestamp + 1) as batch:
            for row in rows:
                cells = codec.cells(row, batch=self.batch, ts_ms=self.batch_timestamp)
                batch.put(codec.row_key(row), {b"d:" + q: value for q, value in cells.items()})
        with self.table.batch(timestamp=self.batch_timestamp + 1) as batch:
            for bucket in range(2):
                record = Barrier(
                    bucket=bucket, buckets=2, batch=self.batch, timestamp=self.batch_timestamp, positions={}
                )
                batch.put(barrier_key(bucket), {b"d:_barrier": record.to_bytes()})

    def start(self, *arguments: str, environ: dict[str, str] | None = None) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "indexer", str(self.file), *arguments],
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **(environ or {})},
        )
        self.processes.append(process)
        return process

    def tailorbird(self, *arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "tailorbird", *arguments, str(self.file)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.processes.append(process)
        return process

    def attempt(self, *arguments: str) -> str:
        """Return the output of a command, whether it succeeds or not."""
        ran = tailorbird(*arguments, str(self.file))
        return ran.stdout + ran.stderr

    def reported(self, *arguments: str) -> dict[str, Any]:
        """Return the JSON output of a command that must succeed."""
        ran = tailorbird(*arguments, str(self.file))
        assert ran.returncode == 0, ran.stderr + ran.stdout
        answer: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
        return answer

    def cores(self) -> list[str]:
        """Return the Solr cores of this topology."""
        import requests

        status = requests.get(f"{self.url}/admin/cores", params={"wt": "json"}, timeout=10).json()["status"]
        return [name for name in status if name.startswith(self.topology.name)]

    def stop(self) -> None:
        for process in self.processes:
            process.kill()
            print(process.communicate()[1])  # pytest shows it if a test has failed
        self.processes.clear()

    def announced(self) -> list[str]:
        """Return the indexers that HBase sees."""
        client = KazooClient(f"127.0.0.1:{os.environ['TAILORBIRD_PORT_ZOOKEEPER']}")
        client.start()
        try:
            found: list[str] = client.get_children(f"/sep-{self.topology.name}_wide_1/rs")
        finally:
            client.stop()
            client.close()
        return found

    def documents(self) -> dict[Canonical, dict[str, Any]]:
        return {document["id"]: document for document in all_documents(self.url, f"{self.topology.name}_wide")}

    def difference(self) -> str:
        """Return how the collection differs from the table, field by field; empty if they are equal."""
        table = {
            row.values["id"]: {name: value for name, value in row.values.items() if value is not None}
            for row in scan_rows(self.topology, self.topology.tables["wide"]).values()
        }
        shown = {
            key: {name: document[name] for name in (*TYPES, *LATER) if name in document}
            for key, document in self.documents().items()
        }
        for values in (*table.values(), *shown.values()):  # one of the tests changes its type
            if "size" in values:
                values["size"] = str(values["size"])
        different = [key for key in table.keys() | shown.keys() if table.get(key) != shown.get(key)]
        return f"{len(different)} rows differ, e.g. {different[:3]}" if different else ""


def says(process: subprocess.Popen[str], what: str) -> bool:
    """Return whether the next log line contains these words."""
    assert process.stderr is not None
    return what in process.stderr.readline()


def row(key: int, revision: int = 0, **changed: Canonical) -> Row:
    made: Row = {
        "id": key,
        "name": f"Ada {key} #{revision}",
        "amount": f"{key}.{revision % 100:02d}",
        "at": "2026-11-21T10:12:00.123456Z",
        "note": None if key % 3 else "",
    }
    return {**made, **changed}


def equal(world: World) -> None:
    deadline = time.monotonic() + 120
    while difference := world.difference():
        assert time.monotonic() < deadline, difference
        time.sleep(0.2)


@contextlib.contextmanager
def a_world(folder: Path) -> Iterator[World]:
    """Apply a topology, and remove it at the end."""
    name = f"t_{uuid.uuid4().hex[:10]}"
    solr = Proxy(int(os.environ["TAILORBIRD_PORT_SOLR"]))
    zookeeper = Proxy(int(os.environ["TAILORBIRD_PORT_ZOOKEEPER"]))
    world = World(name, folder / "t.yml", solr, zookeeper)
    list(provision(world.topology))
    yield world
    world.stop()
    with HBaseAdmin(zookeeper=world.topology.hbase.zookeeper, thrift=world.topology.hbase.thrift) as admin:
        for peer in admin.peers():
            if peer.startswith(f"{name}_"):
                admin.remove_peer(peer)
        for table in admin.tables(name):
            admin.drop_table(table)
        admin.drop_namespace(name)
    for core in world.cores():
        SolrAdmin(world.url, install=install_configset).remove(core)
    kafka = AdminClient({"bootstrap.servers": world.topology.log.bootstrap_servers})
    # a topic that exists only after a row was refused
    dead_letters = [topic for topic in kafka.list_topics(timeout=20).topics if topic.startswith(name)]
    for deleted in kafka.delete_topics(dead_letters).values() if dead_letters else ():
        deleted.result(20)
    world.connection.close()
    solr.close()
    zookeeper.close()


@pytest.fixture(scope="module")
def applied(stack: object, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with a_world(tmp_path_factory.mktemp("index")) as world:
        yield world


@pytest.fixture
def world(applied: World) -> Iterator[World]:
    """The applied topology without indexers; rows that a test leaves in the table stay."""
    applied.solr.repair()
    applied.zookeeper.repair()
    yield applied
    applied.stop()


@pytest.fixture
def codec(world: World) -> RowCodec:
    return world.store_layout(1, **TYPES)


def test_the_collection_follows_the_table(world: World, codec: RowCodec) -> None:
    """After inserts, updates, deletes, both in one batch, and texts of every kind they are equal; no barrier is visible
    before its rows.
    """
    world.start()
    world.write(codec, [row(n) for n in range(50)])
    strange: dict[str, Any] = {"name": "<b>\x00\x1f😀\ufffe", "note": "é" * 40_000}
    world.write(codec, [row(n, 1) for n in range(0, 50, 2)] + [row(100, **strange), row(101, name="")])
    world.write(codec, [row(5, 2)], deletes=[5, 6, 7])  # 5 is deleted and put again in one batch
    world.write(codec, [row(n, 3) for n in range(60, 70)], deletes=[60])
    last = world.batch

    def shown() -> bool:
        barriers = [d for d in _barriers(world) if d["_batch"] == last]
        if len(barriers) < 2:
            return False
        assert world.difference() == "", "the last batch's barriers are visible, its rows are not"
        return True

    wait_for(shown, "the barriers of the last batch")
    documents = world.documents()
    assert documents[5]["name"] == "Ada 5 #2"
    assert {6, 7}.isdisjoint(documents)
    assert documents[8]["_fence"] == 2 * (documents[8]["_ts"] + 1)


def test_killed_indexers_lose_nothing(world: World, codec: RowCodec) -> None:
    """Kill -9 in the middle of a stream, twice, with writes while no indexer runs: the next process resumes."""
    for revision in range(3):
        process = world.start()
        wait_for(partial(says, process, "indexing"), "it is announced")
        for part in range(6):
            world.write(codec, [row(n, revision * 10 + part) for n in range(200, 500)], deletes=[200 + revision])
        process.kill()
        world.write(codec, [row(n, revision * 10 + 7) for n in range(400, 450)], deletes=[300 + revision])
    world.start()
    equal(world)


def test_the_index_catches_up_by_itself_after_solr_was_unavailable(world: World, codec: RowCodec) -> None:
    """While Solr is unavailable HBase keeps the backlog; afterwards every row appears by itself."""
    world.start()
    world.write(codec, [row(600)])
    wait_for(lambda: 600 in world.documents(), "the first row")
    world.solr.cut()
    for part in range(5):
        world.write(codec, [row(n, part) for n in range(600, 700)], deletes=[650 + part])
    with pytest.raises(AssertionError):
        wait_for(
            lambda: len(world.documents().keys() & range(601, 700)), "rows written while Solr is unavailable", seconds=3
        )
    world.solr.repair()
    equal(world)
    assert world.processes[0].poll() is None


def test_invalid_rows_go_to_the_dead_letters_and_the_rest_flows(world: World, codec: RowCodec) -> None:
    """A row without a layout and one with an unknown layout go to Kafka with bytes and reason; rows around them are
    indexed.
    """
    world.start("--metrics-port", str(port := free_port()))
    strange = codec.cells(row(801), batch=1, ts_ms=1)
    strange[b"_layout"] = (77).to_bytes(4, "big")
    world.write(codec, [row(800)])
    batch_timestamp = time.time_ns() // 1_000_000
    world.table.put(b"\x00\x01half", {b"d:name": b"half a row"}, timestamp=batch_timestamp)
    unknown = codec.row_key(row(801))
    world.table.put(unknown, {b"d:" + q: v for q, v in strange.items()}, timestamp=batch_timestamp)
    world.write(codec, [row(802)])
    wait_for(lambda: {800, 802} <= world.documents().keys(), "the rows around the poison")
    dead_letters = _dead_letters(world, 2)
    assert {dead_letter["reason"] for dead_letter in dead_letters.values()} == {
        "not a whole row: cell _layout is missing",
        "layout 77 of table wide is not stored",
    }
    assert dead_letters[b"\x00\x01half".hex()]["cells"] == {"name": "aGFsZiBhIHJvdw=="}
    # Kafka shows a dead letter to readers a moment before the indexer counts it
    wait_for(lambda: _metric(port, 'tailorbird_dead_letters_total{stage="indexer"}') >= 2, "both dead letters")
    wait_for(lambda: _metric(port, 'tailorbird_indexed_documents_total{index="wide"}') >= 2, "both documents")
    # both rows would be valid again: they are deleted here, so that table and collection are comparable
    world.write(codec, deletes=[801])
    with world.table.batch() as batch:
        batch.delete(b"\x00\x01half")
    equal(world)
    # the dead letters stay open until a user settles them, or indexes the current rows
    assert world.reported("dead-letters", "replay", "--all", "--json")
    with DeadLetterReader(world.topology, DeadLetterList(world.topology.name)) as reader:
        found = reader.read()
    assert (found.waiting, len(found.settled)) == ([], 2)
    equal(world)


def test_a_new_layout_is_read_without_a_restart(world: World, codec: RowCodec) -> None:
    """The join stores a new layout before its first row; the indexer reads it by the id in the row."""
    world.start()
    world.write(codec, [row(900)])
    wait_for(lambda: 900 in world.documents(), "a row of the old layout")
    wider = world.store_layout(2, **TYPES, country="string")
    world.write(wider, [row(900, country="NZ"), row(901, country=None)])
    wait_for(lambda: world.documents().get(900, {}).get("country") == "NZ", "the new column")
    assert world.documents()[900]["_layout"] == 2
    assert world.documents()[901]["_layout"] == 2


def test_rows_with_lists_and_null_in_their_key_are_found_changed_and_deleted(world: World, codec: RowCodec) -> None:
    """An aggregated query writes lists, which are found by each member, and a NULL group, which is a row like any
    other.
    """
    world.start()
    grouped = world.store_layout(
        5, nullable="region", **TYPES, region="string", tags="list<string>", sums="list<decimal(38,2)>"
    )
    most = "9" * 36 + ".99"
    lists: list[Row] = [
        {"tags": ["red", "<i>", "red"], "sums": ["1.50", most]},
        {"tags": ["red", ""], "sums": []},
        {"tags": ["blue"], "sums": None},
    ]
    regions = (None, "EU", "")
    rows = [{**row(4000 + i, region=regions[i]), **some} for i, some in enumerate(lists)]
    world.write(grouped, rows)

    def found(query: str) -> list[int]:
        return sorted(document["id"] for document in _search(world, query) if document["id"] >= 4000)

    wait_for(lambda: {4000, 4001, 4002} <= world.documents().keys(), "the rows")
    assert found("region:[* TO *]") == [4001, 4002]
    assert found("tags:red") == [4000, 4001]
    assert found("{!term f=tags}<i>") == [4000]
    assert found("_q_sums:[1 TO 2]") == [4000]
    assert world.documents()[4000]["sums"] == ["1.50", most]
    assert "sums" not in world.documents()[4001], "Solr has no list without members"
    world.write(grouped, [{**rows[0], "tags": ["blue"]}], deletes=[4001], region="EU")
    wait_for(lambda: (found("tags:blue"), found("tags:red")) == ([4000, 4002], []), "the change, and the delete")
    assert found("sums:1.50") == [4000]
    world.write(grouped, deletes=[4000], region=None)
    world.write(grouped, [row(4003, region=None, tags=["last"], sums=["0.00"])])  # for a rebuild to find
    wait_for(lambda: found("id:[4000 TO *]") == [4002, 4003], "the delete of the NULL group")
    equal(world)


def test_two_indexers_share_the_work_and_one_may_leave(world: World, codec: RowCodec) -> None:
    """Processes with one name serve one collection; SIGTERM ends one with exit code 0, the other continues."""
    first, second = world.start(), world.start()
    for process in (first, second):
        wait_for(partial(says, process, "indexing"), "it is announced")
    for part in range(4):
        world.write(codec, [row(n, part) for n in range(1000, 1100)], deletes=[1000 + part])
        if part == 1:
            first.terminate()
    assert first.wait(20) == 0
    equal(world)


def test_a_lost_zookeeper_session_is_announced_again(world: World, codec: RowCodec) -> None:
    """Disconnected for longer than its session, the indexer is unknown to HBase; reconnected, it registers again.
    SIGTERM also ends it while ZooKeeper is unavailable.
    """
    process = world.start(environ={"TAILORBIRD_PORT_ZOOKEEPER": str(world.zookeeper.port)})
    lines: list[str] = []
    threading.Thread(target=lambda: lines.extend(process.stderr or ()), daemon=True).start()
    wait_for(lambda: any("announced" in line for line in lines), "it is announced")
    world.zookeeper.cut()
    wait_for(lambda: not world.announced(), "its session ends")
    world.zookeeper.repair()
    wait_for(lambda: sum("event=announced" in line for line in lines) == 2, "it is announced again")
    world.write(codec, [row(1200)])
    equal(world)
    world.zookeeper.cut()
    process.terminate()
    assert process.wait(60) == 0


def test_a_rebuilt_index_is_swapped_in_and_back_while_rows_flow(world: World, codec: RowCodec) -> None:
    """`index reindex` during live writes, killed and resumed: equal after the swap, after the swap back, and at the
    end. A column whose type has changed gets its new field.
    """
    world.start()
    world.write(codec, [row(n) for n in range(2000, 2600)])
    counted = world.store_layout(3, **TYPES, size="int32")
    world.write(counted, [row(n, size=n) for n in range(2000, 2010)])
    wait_for(lambda: world.documents().get(2009, {}).get("size") == 2009, "a field of the old type")
    named = world.store_layout(4, **TYPES, size="string")
    world.write(named, [row(n, 1, size="large") for n in range(2000, 2005)])  # the old field can not hold it
    killed = world.tailorbird("index", "reindex", "--throttle", "200")
    wait_for(lambda: len(world.cores()) == 2, "it has begun")
    world.write(named, [row(n, 1, size="small") for n in range(2010, 2100)], deletes=range(2500, 2520))
    killed.kill()
    killed.communicate()
    rehearsed = world.reported("index", "reindex", "--dry-run", "--json")
    # the old collection lacks the values that its field can not hold
    accepted = ("index", "reindex", "--accept-difference")
    wait_for(lambda: "swapped: True" in world.attempt(*accepted), "the dead holder's lock is gone")
    equal(world)
    assert {world.documents()[n]["size"] for n in (2000, 2009, 2010)} == {"large", "2009", "small"}
    assert world.reported("index", "reindex", "--rollback", "--json")["done"].endswith("before the last reindex")
    world.write(codec, [row(2702, 2)], deletes=[2550])
    wait_for(lambda: 2702 in world.documents(), "the new row")
    assert world.documents()[2009]["size"] == 2009
    done = world.reported("index", "reindex", "--accept-difference", "--json")
    assert (done["rows"], done["dead_letters"]) == (rehearsed["rows"], rehearsed["dead_letters"]) == (done["rows"], 0)
    equal(world)
    assert world.reported("index", "reindex", "--finish", "--json")["dropped"]
    world.write(codec, [row(2703)])
    wait_for(lambda: 2703 in world.documents(), "rows still flow")
    assert len(world.cores()) == 1


def test_mistakes_are_one_line(world: World) -> None:
    """It exits with 2 for a wrong index, with 1 for an unavailable server; one line with the remedy, no traceback."""
    wrong = world.start("--index", "nothing")
    _, errors = wrong.communicate(timeout=30)
    assert (wrong.returncode, errors.strip().splitlines()[-1]) == (
        2,
        f"tailorbird index: {world.file}: no index nothing; it has wide",
    )
    unavailable = world.start(environ={"TAILORBIRD_PORT_ZOOKEEPER": "9"})
    _, errors = unavailable.communicate(timeout=40)
    assert unavailable.returncode == 1
    assert "ZooKeeper at 127.0.0.1:9 does not answer" in errors.strip().splitlines()[-1]
    assert "Traceback" not in errors


@pytest.mark.matrix
def test_a_removed_index_is_made_again_under_another_peer_and_filled(world: World, codec: RowCodec) -> None:
    """`status` reports an index that no process serves; `index rm` removes it; `apply` creates it again, with rows."""
    world.write(codec, [row(n) for n in range(3000, 3100)])
    wait_for(lambda: not world.announced(), "those killed are forgotten")
    idle = world.tailorbird("status", "--json")
    assert json.loads(idle.communicate(timeout=60)[0].splitlines()[-1])["state"] == "idle"
    assert idle.returncode == 1
    assert world.reported("index", "rm", "--yes", "--json")["peer"] == f"{world.topology.name}_wide_1"
    assert world.cores() == []
    outcomes = {outcome.kind: outcome for outcome in provision(world.topology)}
    assert outcomes["peer"].name == f"{world.topology.name}_wide_2"
    assert outcomes["backfill"].done == "made"
    equal(world)
    world.start()
    world.write(codec, [row(3100)], deletes=[3000])
    equal(world)
    world.attempt("dead-letters", "replay", "--all")  # changes that the old collection refused during its rebuild
    wait_for(lambda: world.reported("status", "--json")["state"] == "serving", "it is served")


def _barriers(world: World) -> list[dict[str, Any]]:
    return _search(world, "*:*", kind="barrier")


def _search(world: World, query: str, *, kind: str = "row") -> list[dict[str, Any]]:
    import pysolr

    collection = pysolr.Solr(f"{world.url}/{world.topology.name}_wide")
    return list(collection.search(query, fq=f"_kind:{kind}", rows=10_000))


def _dead_letters(world: World, count: int) -> dict[str, dict[str, Any]]:
    consumer = Consumer(
        {
            "bootstrap.servers": world.topology.log.bootstrap_servers,
            "group.id": uuid.uuid4().hex,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([f"{world.topology.name}.deadletters"])
    found: dict[str, dict[str, Any]] = {}

    def read() -> bool:
        message = consumer.poll(1.0)
        if message is not None and message.error() is None:
            dead_letter = json.loads(message.value() or b"")
            found[dead_letter["row"]] = dead_letter
        return len(found) >= count

    try:
        wait_for(read, "dead letters")
    finally:
        consumer.close()
    return found


def _metric(port: int, name: str) -> float:
    import urllib.request

    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    return next(float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line.startswith(name + " "))
