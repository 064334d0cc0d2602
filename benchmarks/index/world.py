"""Create a temporary topology on the local stack, with a table written like the join's sink, for benchmarks and chaos.

All of it is removed at the end.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import happybase
import pysolr
import requests
from confluent_kafka.admin import AdminClient

from cdc.model.naming import dead_letter_topic, hbase_table, layouts_table
from cdc.model.types import Canonical, parse_type
from cdc.stored.cells import RowCodec
from cdc.stored.layout import Layout, LayoutColumn, dump_layout, layout_row
from cdc.topology.reader import read_topology
from cdc.topology.topology import IndexKind, Topology
from indexer.peer import wire_pb2 as pb
from indexer.solr.solr_http import reading_session
from indexer.table.hbase_rpc import HBaseRpc
from joins.runtime.records import Record, RowGone, RowPut
from joins.runtime.sink import barriers, next_timestamp, writes_of
from joins.stores.hbase_table import HBaseConnection, JoinedTable, write_rows
from tailorbird.cli.change.cli_apply import provision
from tailorbird.provision.hbase_admin import HBaseAdmin
from tailorbird.provision.solr_cloud import admin_of_solr

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
solr: {solr}
opensearch: {{url: "http://127.0.0.1:${{TAILORBIRD_PORT_OPENSEARCH:-9200}}"}}
tables:
  wide: {{query: SELECT o.id FROM shop.orders o, row_key: [id], salt_buckets: {buckets}}}
indexes:
  wide:
    {{table: wide, search: [customer, product, note], commit_within: {commit_within}, stub_retention: {retention},
     shards: {shards}, type: {type}}}
"""
STACK_SOLR = "{url: 'http://127.0.0.1:${TAILORBIRD_PORT_SOLR}/solr'}"
# An additional foreign table; its index is `people`.
FOREIGN_INDEX = (
    "  people: {{table: people, commit_within: {commit_within}, stub_retention: {retention}, shards: {shards}}}\n"
)
FOREIGN_TABLE = """
foreign_tables:
  people:
    table: {name}_people
    fields:
      key: {{source: row, type: string}}
      name: {{source: "d:name", type: string}}
      age: {{source: "d:age", type: int32}}
      big: {{source: "d:big", type: int64}}
      rate: {{source: "d:rate", type: float64}}
      tags: {{source: "t:tag_*", take: qualifier, type: string}}
"""
# The table of the demo (topologies/shop.yml): two databases' tables joined, 15 columns.
TYPES = {
    "id": "int64",
    "status": "string",
    "quantity": "int32",
    "amount": "decimal(10,2)",
    "note": "string",
    "created_at": "datetime",
    "revision": "int64",
    "customer_id": "int64",
    "customer": "string",
    "country": "string",
    "email": "string",
    "product_id": "int64",
    "product": "string",
    "category": "string",
    "price": "decimal(10,2)",
}
Row = dict[str, Canonical]


def row(key: int, revision: int = 0) -> Row:
    """Return a row whose values depend only on its key and revision."""
    customer, product = key % 5000, key % 300
    return {
        "id": key,
        "status": ("new", "paid", "sent", "returned")[(key + revision) % 4],
        "quantity": key % 9 + 1,
        "amount": f"{key % 997}.{revision % 100:02d}",
        "note": None if key % 3 else f"please ring at door {key % 41}, thank you #{revision}",
        "created_at": f"2026-11-{key % 28 + 1:02d}T10:{key % 60:02d}:{revision % 60:02d}.123456Z",
        "revision": revision,
        "customer_id": customer,
        "customer": f"Ada Lovelace {customer}",
        "country": ("NZ", "FR", "DE", "JP", "BR")[customer % 5],
        "email": f"ada{customer}@example.com",
        "product_id": product,
        "product": f"Teapot no. {product}",
        "category": ("kitchen", "garden", "office")[product % 3],
        "price": f"{product}.99",
    }


class World:
    """An applied topology; use it as a context manager, which removes all of it at the end.

    `foreign` adds the foreign table `people`; `solr` is the section of the topology; `shards` are those of each index.
    """

    def __init__(
        self,
        *,
        buckets: int = 2,
        commit_within: str = "200ms",
        tombstones: str = "1h",
        foreign: bool = False,
        solr: str = STACK_SOLR,
        shards: int = 1,
        engine: IndexKind = "solr",
    ) -> None:
        self.name = f"bench_{uuid.uuid4().hex[:10]}"
        self._folder = tempfile.TemporaryDirectory(prefix="tailorbird-")
        self.file = Path(self._folder.name) / "bench.yml"
        text = TOPOLOGY + FOREIGN_INDEX + FOREIGN_TABLE if foreign else TOPOLOGY
        timing = {"commit_within": commit_within, "retention": tombstones}
        settings = {"buckets": buckets, "solr": solr, "shards": shards, "type": engine, **timing}
        self.file.write_text(text.format(name=self.name, **settings))
        self.topology: Topology = read_topology(self.file.read_text(), file=str(self.file), environ=os.environ)
        self.index = self.topology.indexes["wide"]
        self.buckets = buckets
        self.timestamp = self.batch = 0
        # pysolr logs every failed request with a stack trace, even if it is retried
        logging.getLogger("pysolr").setLevel(logging.CRITICAL)
        self.processes: list[subprocess.Popen[bytes]] = []
        self._address = self.topology.hbase.thrift
        if foreign:
            with self.hbase() as connection:
                connection.create_table(f"{self.name}_people", {"d": {}, "t": {}})
        list(provision(self.topology))
        self.codec = self._store_layout()

    def __enter__(self) -> World:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self.processes:
            process.kill()
            process.wait()
        hbase = self.topology.hbase
        with HBaseAdmin(zookeeper=hbase.zookeeper, thrift=hbase.thrift) as admin:
            for made in admin.peers():  # the peer of a recreated index has a higher number
                if made.startswith(f"{self.name}_"):
                    admin.remove_peer(made)
            foreign = [table.table for table in self.topology.foreign_tables.values()]
            for table in [*admin.tables(self.name), *foreign]:
                admin.drop_table(table)
            admin.drop_namespace(self.name)
        if self.index.type == "opensearch":
            self._remove_from_opensearch()
        else:
            self._remove_from_solr()
        kafka = AdminClient({"bootstrap.servers": self.topology.log.bootstrap_servers, "log_level": 0})
        for deleted in kafka.delete_topics([dead_letter_topic(self.name)]).values():
            with contextlib.suppress(Exception):  # exists only after the first dead-letter record
                deleted.result(20)
        self._folder.cleanup()

    def _remove_from_opensearch(self) -> None:
        for index in requests.get(f"{self.topology.opensearch.url}/_alias/{self.name}*", timeout=30).json():
            requests.delete(f"{self.topology.opensearch.url}/{index}", timeout=30).raise_for_status()

    def _remove_from_solr(self) -> None:
        with reading_session(self.topology.solr) as session:
            cores = session.get(f"{self.topology.solr.url}/admin/cores", params={"wt": "json"}, timeout=30).json()
            ours = {name: core for name, core in cores["status"].items() if name.startswith(self.name)}
            for found in {core.get("cloud", {}).get("collection", name) for name, core in ours.items()}:
                admin_of_solr(self.topology.solr).remove(found)

    @contextlib.contextmanager
    def hbase(self) -> Iterator[happybase.Connection]:
        """Yield a new connection, because threads cannot share one."""
        host, _, port = self._address.rpartition(":")
        with contextlib.closing(happybase.Connection(host, int(port), timeout=60_000)) as connection:
            yield connection

    def _store_layout(self) -> RowCodec:
        layout = Layout(
            topology=self.name,
            table="wide",
            id=1,
            family="d",
            columns=tuple(LayoutColumn(name=n, type=parse_type(t), origin="") for n, t in TYPES.items()),
            row_key=("id",),
            salt_buckets=self.buckets,
        )
        with self.hbase() as connection:
            connection.table(layouts_table(self.name)).put(layout_row("wide", 1), {b"f:json": dump_layout(layout)})
        return RowCodec(layout)

    @contextlib.contextmanager
    def sink(self) -> Iterator[JoinedTable]:
        """Yield the table as the join's driver writes it."""
        hbase = HBaseConnection(self._address)
        with contextlib.closing(hbase):
            yield JoinedTable(
                hbase,
                table=hbase_table(self.name, "wide"),
                layouts=layouts_table(self.name),
                name="wide",
                family="d",
                buckets=self.buckets,
            )

    def next_timestamp(self) -> int:
        """Return the timestamp of the next batch."""
        self.batch += 1
        self.timestamp = next_timestamp(time.time_ns() // 1_000_000, self.timestamp)
        return self.timestamp

    def write(
        self, sink: JoinedTable, rows: Sequence[Row], deletes: Sequence[int] = (), *, barrier: bool = True
    ) -> None:
        """Write one batch like the join's sink: deletes at its timestamp, rows at timestamp + 1, barriers."""
        timestamp = self.next_timestamp()
        records: list[Record] = [RowGone([key]) for key in deletes]
        records += [RowPut([one[name] for name in TYPES], timestamp) for one in rows]
        writes = writes_of(records, self.codec, self.batch)
        write_rows(sink.hbase, sink.table, sink.family, writes.deletes, writes.puts, timestamp)
        if barrier:
            self.write_barriers(sink)

    def write_barriers(self, sink: JoinedTable) -> None:
        """Write a barrier per bucket at the last batch's timestamp."""
        sink.write_barriers(barriers(self.buckets, self.batch, self.timestamp, {}), self.timestamp)

    def flush(self) -> None:
        """Let HBase write the table from memory to files, as it does by itself once an hour."""
        with self.hbase() as connection:
            regions = connection.table(hbase_table(self.name, "wide")).regions()
        for region in regions:
            request = pb.FlushRegionRequest()
            request.region.type, request.region.value = pb.RegionSpecifier.REGION_NAME, region["name"]
            with HBaseRpc(
                region["server_name"].decode(), region["port"], "AdminService", name="region server"
            ) as server:
                server.call("FlushRegion", request, pb.FlushRegionResponse)

    def start(self, *arguments: str, log: Path | None = None) -> subprocess.Popen[bytes]:
        """Start an indexer process."""
        errors = log.open("ab") if log else subprocess.DEVNULL
        command = [sys.executable, "-m", "indexer", str(self.file), *(arguments or ("--index", "wide"))]
        process = subprocess.Popen(command, stderr=errors)
        if log:
            errors.close()  # type: ignore[union-attr]  # a file, since log is given
        self.processes.append(process)
        return process

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        """kill -9."""
        process.send_signal(signal.SIGKILL)
        process.wait()
        self.processes.remove(process)

    def solr(self, collection: str | None = None) -> pysolr.Solr:
        """Return a pysolr client of the collection."""
        url = f"{self.topology.solr.url}/{collection or self.index.collection}"
        return pysolr.Solr(url, timeout=60, session=reading_session(self.topology.solr))

    def visible_timestamp(self, solr: pysolr.Solr) -> int:
        """Return the batch timestamp that the visible barriers of all buckets have reached; 0 before the first cut."""
        found = list(solr.search("*:*", fq="_kind:barrier", rows=300))
        return min((int(b["_stamp"]) for b in found), default=0) if len(found) == self.buckets else 0

    def wait_visible(self, solr: pysolr.Solr, *, seconds: float, pause: float = 0.02) -> float:
        """Wait until everything written is visible to queries; return the time of that query (epoch seconds)."""
        deadline = time.time() + seconds
        while True:
            # retry while Solr is unavailable
            with contextlib.suppress(pysolr.SolrError, requests.RequestException):
                if self.visible_timestamp(solr) >= self.timestamp:
                    return time.time()
            if time.time() > deadline:
                raise TimeoutError(f"the last batch is not visible within {seconds:.0f} s")
            time.sleep(pause)


def environment() -> dict[str, Any]:
    """Return the local stack's addresses as environment variables for topologies and child processes."""
    from tailorbird.devtools.stack.settings import StackSettings

    return dict(StackSettings.from_environ(os.environ, Path.cwd()).environ())
