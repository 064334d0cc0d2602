"""One table over MySQL, PostgreSQL and a topic that the real Debezium engine writes: whatever dies, it is right."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from benchmarks.capture.proc_captures import debezium_command
from cdc.process.file_topology import load_topology
from cdc.topology.topology import Source
from cdc.words.artefacts import cache_folder
from cdc.words.schema import TableId
from console.commands.change.cli_apply import provision
from console.commands.cli_demo_steps import traffic
from console.commands.cli_demo_verdict import Comparison, verdicts
from console.demo.mysql_demo import MySqlShop
from console.demo.shop import Shop, ShopStatement, ShopTransaction
from console.pipeline.proc_pipeline import Pipeline
from console.stack.proc_stack import Stack
from console.stack.settings import LOAD_LOGIN
from console.verify.mysql_tables import read_tables
from tests.integration.conftest import servers
from tests.support.pg_servers import PgServer
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.integration, pytest.mark.matrix, pytest.mark.timeout(900)]
FILE = Path(__file__).parents[2] / "topologies" / "two-engines.yml"
PRODUCTS = (
    "CREATE SCHEMA shop",
    "CREATE TABLE shop.products (id INT PRIMARY KEY, title VARCHAR(200) NOT NULL, category VARCHAR(40) NOT NULL, "
    "price NUMERIC(10,2) NOT NULL)",
    "ALTER TABLE shop.products REPLICA IDENTITY FULL",
)


class Shops(MySqlShop):
    """The demo's shop, whose products are in PostgreSQL."""

    def __init__(self, sources: dict[str, Source], postgres: Any) -> None:
        super().__init__(sources, user=LOAD_LOGIN.user, password=LOAD_LOGIN.password)
        self._postgres = postgres

    def load(self, batches: Any, loaded: Callable[[int], None]) -> None:
        def theirs() -> Iterator[list[ShopStatement]]:
            for batch in batches:
                if "shop.products" not in batch[0].sql:
                    yield batch
                    continue
                with self._postgres.cursor() as cursor:
                    cursor.executemany(batch[0].sql, [statement.values for statement in batch])

        super().load(theirs(), loaded)

    def apply(self, change: ShopTransaction) -> float:
        if "shop.products" not in change.statement.sql:
            return super().apply(change)
        self._postgres.execute(change.statement.sql, change.statement.values)
        return time.monotonic()


class Debezium:
    """The engine, which keeps no offsets: started again, it reads its table again and tells all of it once more."""

    def __init__(self, prefix: str, port: int, log: Path) -> None:
        settings = {
            "topic.prefix": prefix, "table.include.list": "crm.customers", "snapshot.mode": "initial",
            "snapshot.locking.mode": "none", "database.server.id": "9507",
        }  # fmt: skip
        given = {"brokers": servers(), "port": str(port), "user": "cdc", "password": "cdc", "table": "customers"}
        words = [word for name, value in given.items() for word in (f"--{name}", value)]
        words += [word for name, value in settings.items() for word in (f"--set.{name}", value)]
        self._command = [*debezium_command(cache_folder(os.environ).absolute()), *words]
        self._log = log
        self._process: Any = None

    def start(self) -> None:
        with self._log.open("ab") as output:
            self._process = subprocess.Popen(self._command, stdout=output, stderr=output)

    def kill(self) -> None:
        if self._process is not None:
            assert self._process.poll() is None, self._log.read_text()[-2000:]
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()


@contextmanager
def beside(shop: Shops, generator: Shop) -> Iterator[Callable[[int], None]]:
    """Live traffic while the block runs; it is given a function that waits for so many more changes."""
    stop, done, failed = threading.Event(), [0], list[BaseException]()

    def write() -> None:
        try:
            for change in traffic(generator, rate=60.0, until=stop.is_set):
                shop.apply(change)
                done[0] += 1
        except BaseException as error:  # looked at below
            failed.append(error)
            raise

    def more(changes: int) -> None:
        wanted = done[0] + changes
        wait_for(lambda: done[0] >= wanted or bool(failed), "the traffic stands still", 120)
        assert not failed

    writer = threading.Thread(target=write, name="traffic")
    writer.start()
    try:
        yield more
    finally:
        stop.set()
        writer.join()


def test_two_engines_and_a_topic_make_one_table(
    stack: Stack, postgres_server: PgServer, unique: Callable[[str], str], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """MySQL, PostgreSQL and Debezium's topic, joined and indexed under live traffic, while captures, the join and
    Debezium itself are killed: HBase and Solr equal what the databases answer to the same query."""
    name, file = unique("engines"), tmp_path / "two.yml"
    monkeypatch.setenv("TAILORBIRD_PORT_POSTGRES", str(postgres_server.port))
    with postgres_server.session() as owner:
        owner.execute(f"CREATE DATABASE {name} OWNER app")
    text = FILE.read_text().replace("name: two_engines", f"name: {name}")
    file.write_text(text.replace("dbname: billing", f"dbname: {name}").replace("debezium.crm", f"{name}_dbz.crm"))
    topology = load_topology(str(file))
    customers = TableId(source="crm", database="crm", table="customers")
    crm = replace(
        topology.sources["shop"], name="crm", port=stack.settings.ports.mysql_crm, database="crm", tables=(customers,),
        rules={},
    )  # fmt: skip
    for future in (
        AdminClient({"bootstrap.servers": servers()})
        .create_topics([NewTopic(f"{name}_dbz.crm.customers", 2, 1)])
        .values()
    ):
        future.result()
    generator = Shop(random=Random(17))
    debezium = Debezium(f"{name}_dbz", crm.port, tmp_path / "debezium.log")
    with postgres_server.session(name) as postgres:
        for statement in PRODUCTS:
            postgres.execute(statement)
        shop = Shops({"shop": topology.sources["shop"], "crm": crm}, postgres)
        for database in ("shop", "crm"):
            gone = ShopStatement(server=database, sql=f"DROP DATABASE IF EXISTS {database}", values=())
            shop.apply(ShopTransaction(kind="order removed", statement=gone))
        shop.prepare()
        shop.load(generator.catalogue(customers=300, products=150, orders=3000, now_ms=int(time.time() * 1000)), _none)
        list(provision(topology))
        try:
            with Pipeline(topology, home=tmp_path) as pipeline:
                debezium.start()
                with beside(shop, generator) as more:
                    pipeline.start()
                    wait_for(lambda: _shown(topology) > 0, "nothing is joined", 300)
                    more(200)
                    for part in ("capture catalog", "capture crm", "join orders_wide"):
                        pipeline.kill(part)
                        more(60)
                        pipeline.start_part(part)
                    debezium.kill()
                    more(100)
                    debezium.start()
                    more(200)
                found: dict[str, Comparison] = {}

                def equal() -> bool:
                    pipeline.check()
                    found.update(verdicts(topology, read_tables(crm)))
                    return found["orders_wide"].equal

                wait_for(equal, "the far ends do not become equal", 240)
                assert found["orders_wide"].rows > 2500
        finally:
            debezium.kill()
            shop.close()


def _none(rows: int) -> None:
    """Nobody is told how far the loading is."""


def _shown(topology: Any) -> int:
    from indexer.table.hbase_rows import scan_rows

    return len(scan_rows(topology, topology.tables["orders_wide"]))
