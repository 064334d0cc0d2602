"""Measure the latency of the join of topologies/shop.yml at 500 changes/s, from Kafka's log to a readable HBase row.

    make bench-join-latency
    make bench-join-latency ARGS="--seconds 60 --rate 500"

Needs the servers (`tailorbird stack up`). This program writes the log as capture does: first it fills the tables, then
it writes changes at a steady rate. When the join has caught up and has run for `--warm` seconds at that rate, the
program reads the rows of a sample until they show the change: 5 changes of orders a second, and all changes of
customers and products, 2.5 a second each, which affect 10 and 50 rows. Prints p50, p90 and p99 in seconds, and the mean
batch by phase. The sample is small and read every 20 ms, because more reads would slow down HBase and the result.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import happybase
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from benchmarks.decode.proc_peers import machine
from benchmarks.ending import end
from benchmarks.joins.latency import LEAST_SAMPLES, RunFacts, Sample, document, found, phases_of
from benchmarks.page import bullets, write_page
from cdc.formats.debezium import to_envelope
from cdc.model import naming
from cdc.model.event import ChangeEvent, Row, SourceInfo
from cdc.model.schema import Column, TableId, TableSchema
from cdc.process.file_topology import load_topology
from cdc.stored.cells import TS, RowCodec
from cdc.topology.topology import Topology
from joins.select.compiler import compile_plan
from tailorbird.cli.change.cli_apply import provision
from tailorbird.operate.probes.proc_steal import CpuSteal
from tailorbird.provision.hbase_admin import HBaseAdmin

ROOT = Path(__file__).parent.parent
CUSTOMERS, PRODUCTS, ORDERS = 5_000, 1_000, 50_000
_WATCHED_AT_ONCE: Final = 16
_LOOK_EVERY: Final = 0.02
_TIMEOUT: Final = 10
_COLUMNS = {
    "shop.orders": {
        "id": "int", "customer_id": "int", "product_id": "int", "status": "varchar(20)", "quantity": "int",
        "amount": "decimal(10,2)", "note": "varchar(200)", "created_at": "datetime(3)", "revision": "bigint",
    },
    "crm.customers": {"id": "int", "name": "varchar(80)", "country": "varchar(2)", "email": "varchar(80)"},
    "shop.products": {"id": "int", "title": "varchar(80)", "category": "varchar(40)", "price": "decimal(10,2)"},
}  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code: 1 if there are too few samples."""
    parser = argparse.ArgumentParser(
        prog="make bench-join-latency", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--rate", type=int, default=500, help="changes/s")
    parser.add_argument("--warm", type=int, default=60, help="seconds of changes before the first sample")
    parser.add_argument("--output", type=Path, help="also write the result to this file")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder))
        try:
            bench.run(options.warm, options.seconds, options.rate)
        finally:
            bench.close()
    if len(bench.samples) < LEAST_SAMPLES:
        print(f"only {len(bench.samples)} samples: is the join running?", file=sys.stderr)
        return 1
    figures = found(bench.samples, phases_of(bench.log), rate=options.rate)
    if bench.unseen:
        figures.append(f"{bench.unseen} changes of the sample were not visible {_TIMEOUT} s after the last one")
    print(bullets(figures), f"CPU steal during the run: {bench.withheld:.1%}", sep="\n")
    if options.output:
        facts = RunFacts(
            date=f"{datetime.now(UTC):%Y-%m-%d}",
            machine=machine(),
            orders=ORDERS,
            rate=options.rate,
            seconds=options.seconds,
            warm=options.warm,
        )
        write_page(options.output, document(figures, bench.samples, facts))
    return 0


class Bench:
    """The benchmark with its topology (the query of shop.yml), its log, and the join over it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.name = folder, f"latency_{uuid.uuid4().hex[:8]}"
        text = (ROOT / "topologies" / "shop.yml").read_text().replace("name: shop\n", f"name: {self.name}\n", 1)
        head, _, _ = text.partition("\nindexes:")
        (folder / "topology.yml").write_text(head)
        self.topology: Topology = load_topology(str(folder / "topology.yml"))
        self.table = self.topology.tables["orders_wide"]
        self.schemas = {self._id(name): self._schema(name) for name in _COLUMNS}
        self.plan = compile_plan(self.topology, self.table, self.schemas)
        self.producer = Producer(
            {"bootstrap.servers": self.topology.log.bootstrap_servers, "linger.ms": 5, "partitioner": "murmur2_random"}
        )
        self.random, self.sequence, self.rows = random.Random(5), 0, dict[tuple[str, int], Row]()
        self.waiting: dict[bytes, tuple[str, int, float]] = {}
        self.samples: list[Sample] = []
        self.log, self.unseen, self.withheld = "", 0, 0.0
        self.lock, self.stop = threading.Lock(), threading.Event()
        self.join: subprocess.Popen[bytes] | None = None

    @staticmethod
    def _id(name: str) -> TableId:
        source, table = name.split(".")
        return TableId(source=source, database=source, table=table)

    def _schema(self, name: str) -> TableSchema:
        columns = [Column(name=n, column_type=t, nullable=n != "id") for n, t in _COLUMNS[name].items()]
        return TableSchema(table_id=self._id(name), version=1, columns=tuple(columns), primary_key=("id",))

    def run(self, warm: int, seconds: int, rate: int) -> None:
        """Fill the tables, start the join, wait until it has caught up, then write changes and sample them.

        Sets `samples` and the join's `log` of that time.
        """
        self._provision()
        for key in range(CUSTOMERS):
            self.change("crm.customers", key)
        for key in range(PRODUCTS):
            self.change("shop.products", key)
        for key in range(ORDERS):
            self.change("shop.orders", key)
        last = self.change("shop.orders", 0)
        self.producer.flush(60)
        file = self.folder / "join.log"
        with file.open("w") as log:
            self.join = subprocess.Popen(
                [sys.executable, "-m", "joins", str(self.folder / "topology.yml")],
                env={**os.environ, "TAILORBIRD_HOME": str(self.folder)}, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        watcher = threading.Thread(target=self._watch)
        self.waiting[self._key(0)] = ("shop.orders", last, time.time())
        watcher.start()
        self._seen(file)
        self._changes(warm, rate, sample=False)
        self.samples.clear()
        reported, cpu_steal = file.stat().st_size, CpuSteal()
        self._changes(seconds, rate, sample=True)
        self.withheld = cpu_steal.share()
        self.log = file.read_bytes()[reported:].decode()
        deadline = time.monotonic() + _TIMEOUT
        while self.waiting and time.monotonic() < deadline:
            time.sleep(0.1)
        self.unseen = len(self.waiting)
        self.stop.set()
        watcher.join()

    def _seen(self, log: Path) -> None:
        """Wait until all changes of the sample are visible; exit with the end of the join's log if it ends."""
        while self.waiting:
            assert self.join is not None, "the join was started"
            if self.join.poll() is not None:
                raise SystemExit(log.read_text()[-3000:])
            time.sleep(0.2)

    def _changes(self, seconds: int, rate: int, *, sample: bool) -> None:
        """Write changes at a steady rate: 99 % to orders, the others to customers and products."""
        started = time.monotonic()
        for number in range(seconds * rate):
            draw = self.random.random()
            name = "crm.customers" if draw < 0.005 else "shop.products" if draw < 0.01 else "shop.orders"
            key = self.random.randrange({"crm.customers": CUSTOMERS, "shop.products": PRODUCTS}.get(name, ORDERS))
            at = self.change(name, key)
            if sample and (number % (rate // 5 or 1) == 0 or name != "shop.orders"):
                with self.lock:
                    # the order with the same number references this customer or product
                    self.waiting.setdefault(self._key(key), (name, at, time.time()))
            self.producer.poll(0)
            time.sleep(max(0.0, started + number / rate - time.monotonic()))

    def change(self, name: str, key: int) -> int:
        """Write one change to the log; return its source time in ms, which is unique."""
        before = self.rows.get((name, key))
        self.sequence += 1
        after = self._row(name, key)
        self.rows[name, key] = after
        ts_ms = 1_700_000_000_000 + self.sequence
        source = SourceInfo(
            table_id=self._id(name), ts_ms=ts_ms, server_id=1, gtid=None, file="f", pos=4, row=0, sequence=self.sequence
        )
        event = ChangeEvent(op="c" if before is None else "u", before=before, after=after, source=source, ts_ms=ts_ms)
        topic = naming.change_topic(self.name, self._id(name))
        while True:
            try:
                value = json.dumps(to_envelope(event, self.name))
                self.producer.produce(topic, key=json.dumps({"id": key}), value=value)
                return ts_ms
            except BufferError:
                self.producer.poll(0.1)

    def _row(self, name: str, key: int) -> Row:
        number = self.sequence
        if name == "crm.customers":
            return {"id": key, "name": f"name {number}", "country": "NL", "email": f"{number}@example.org"}
        if name == "shop.products":
            return {"id": key, "title": f"title {number}", "category": "c", "price": "9.50"}
        return {
            "id": key, "customer_id": key % CUSTOMERS, "product_id": key % PRODUCTS, "status": "paid", "quantity": 1,
            "amount": "12.00", "note": f"n{number}", "created_at": "2026-01-01T00:00:00Z", "revision": number,
        }  # fmt: skip

    def _key(self, order: int) -> bytes:
        return RowCodec(self.plan.layout(1)).row_key({"id": order})

    def _watch(self) -> None:
        host, _, port = self.topology.hbase.thrift.rpartition(":")
        connection = happybase.Connection(host, int(port))
        table = connection.table(naming.hbase_table(self.name, self.table.name))
        column = f"{self.table.family}:".encode() + TS
        while not self.stop.is_set():
            with self.lock:
                oldest = dict(list(self.waiting.items())[:_WATCHED_AT_ONCE])
            for row, cells in table.rows(list(oldest), columns=[column]) if oldest else ():
                name, wanted, appended = oldest[row]
                if int.from_bytes(cells[column], "big") >= wanted:
                    self.samples.append(Sample(table=name, appended=appended, seconds=time.time() - appended))
                    with self.lock:
                        del self.waiting[row]
            time.sleep(_LOOK_EVERY)
        connection.close()

    def _provision(self) -> None:
        list(provision(self.topology))
        admin = AdminClient({"bootstrap.servers": self.topology.log.bootstrap_servers})
        topics = [NewTopic(naming.change_topic(self.name, table), 2, 1) for table in self.schemas]
        singles = (naming.schemas_topic, naming.positions_topic, naming.dead_letter_topic)
        topics += [NewTopic(name(self.name), 1, 1) for name in singles]
        for made in admin.create_topics(topics).values():
            made.result(30)
        for schema in self.schemas.values():
            topic = naming.schemas_topic(self.name)
            self.producer.produce(topic, key=str(schema.table_id), value=json.dumps(schema.to_json()))
        self.producer.flush(30)

    def close(self) -> None:
        """Stop all processes and remove all data: an old table would keep its share of HBase's heap."""
        self.stop.set()
        if self.join is not None and self.join.poll() is None:
            os.killpg(self.join.pid, signal.SIGTERM)
            try:
                self.join.wait(30)
            except subprocess.TimeoutExpired:
                os.killpg(self.join.pid, signal.SIGKILL)
                self.join.wait()
        self.producer.flush(10)
        hbase = self.topology.hbase
        with HBaseAdmin(zookeeper=hbase.zookeeper, thrift=hbase.thrift) as tables:
            for table in tables.tables(self.name):
                tables.drop_table(table)
            tables.drop_namespace(self.name)
        kafka = AdminClient({"bootstrap.servers": self.topology.log.bootstrap_servers, "log_level": 0})
        mine = [topic for topic in kafka.list_topics(timeout=20).topics if topic.startswith(f"{self.name}.")]
        for deleted in kafka.delete_topics(mine).values() if mine else ():
            with contextlib.suppress(Exception):  # the broker may delete it at its next start
                deleted.result(20)


if __name__ == "__main__":
    sys.exit(end(main))
