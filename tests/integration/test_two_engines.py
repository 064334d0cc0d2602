"""One table over MySQL, PostgreSQL and a topic that the real Debezium engine writes: it is correct whatever dies."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest

from cdc.process.file_topology import load_topology
from tailorbird.cli.change.cli_apply import provision
from tailorbird.cli.cli_demo_fleet import DemoFleet
from tailorbird.cli.cli_demo_steps import traffic
from tailorbird.cli.cli_demo_verdict import Comparison, verdicts
from tailorbird.devtools.demo.pg_two_engines import TwoEngineShop, crm_of, engine_of
from tailorbird.devtools.demo.proc_debezium import debezium_command
from tailorbird.devtools.demo.shop import Shop, ShopStatement, ShopTransaction
from tailorbird.devtools.stack.proc_stack import Stack
from tailorbird.devtools.stack.proc_tools import find_java
from tailorbird.devtools.stack.progress import silent
from tailorbird.devtools.stack.settings import LOAD_LOGIN, ServiceName
from tailorbird.operate.pipeline.proc_pipeline import Pipeline
from tailorbird.verify.mysql_tables import read_tables
from tests.support.pg_servers import PgServer
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.integration, pytest.mark.matrix, pytest.mark.timeout(900)]
AGENTS = ("agent catalog", "gateway", "agent shop", "agent crm")
STORES: tuple[ServiceName, ...] = ("kafka", "hbase", "solr")
DATABASES: tuple[ServiceName, ...] = ("mysql-shop", "mysql-crm")
FILE = Path(__file__).parents[2] / "topologies" / "two-engines.yml"


@contextmanager
def live_traffic(shop: TwoEngineShop, generator: Shop) -> Iterator[Callable[[int], None]]:
    """Make changes while the block runs; yield a function that waits for a number of further changes."""
    stop, done, failed = threading.Event(), [0], list[BaseException]()

    def write() -> None:
        try:
            for change in traffic(generator, rate=60.0, until=stop.is_set):
                shop.apply(change)
                done[0] += 1
        except BaseException as error:  # checked below
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


@pytest.mark.parametrize("agents", [False, True], ids=["captures", "agents"])
def test_two_engines_and_a_topic_make_one_table(
    stack: Stack, postgres_server: PgServer, unique: Callable[[str], str], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, agents: bool,
) -> None:  # fmt: skip
    """MySQL, PostgreSQL and Debezium's topic are joined and indexed under live traffic, while captures, the join,
    Debezium itself, Kafka, HBase and Solr are killed, and then both MySQLs and PostgreSQL. HBase and Solr equal the
    databases' answer to the same query.

    With agents, a gateway and an agent for each source replace the captures, and are killed.
    """
    name, file = unique("engines"), tmp_path / "two.yml"
    monkeypatch.setenv("TAILORBIRD_PORT_POSTGRES", str(postgres_server.port))
    with postgres_server.session() as owner:
        owner.execute(f"CREATE DATABASE {name} OWNER app")
    text = FILE.read_text().replace("name: two_engines", f"name: {name}")
    file.write_text(text.replace("dbname: billing", f"dbname: {name}").replace("debezium.crm", f"{name}_dbz.crm"))
    topology = load_topology(str(file))
    crm = crm_of(topology, stack.settings.ports.mysql_crm)
    cache = stack.settings.cache
    debezium = engine_of(
        topology, crm, tmp_path / "debezium.log", debezium_command(cache, find_java(cache, os.environ, silent))
    )
    generator = Shop(random=Random(17))
    shop = TwoEngineShop(topology, crm, LOAD_LOGIN, debezium)
    for database in ("shop", "crm"):
        gone = ShopStatement(server=database, sql=f"DROP DATABASE IF EXISTS {database}", values=())
        shop.apply(ShopTransaction(kind="order removed", statement=gone))
    shop.prepare()
    shop.load(generator.catalogue(customers=300, products=150, orders=3000, now_ms=int(time.time() * 1000)), _none)
    list(provision(topology))
    try:
        fleet = DemoFleet(topology, tmp_path) if agents else None
        with Pipeline(topology, home=tmp_path, captures=fleet.parts() if fleet else ()) as pipeline:
            debezium.start()
            with live_traffic(shop, generator) as more:
                pipeline.start()
                if fleet:
                    fleet.command()
                wait_for(lambda: _shown(topology) > 0, "nothing is joined", 300)
                more(200)
                for part in (*(AGENTS if agents else ("capture catalog", "capture crm")), "join orders_wide"):
                    pipeline.kill(part)
                    more(60)
                    pipeline.start_part(part)
                debezium.check()  # it lived until now
                debezium.kill()
                more(100)
                debezium.start()
                more(200)
                for server in STORES:
                    stack.kill(server)
                    more(60)
                    stack.up()
                    pipeline.check()
                    more(60)
            shop.close()
            for database in DATABASES:
                stack.kill(database)
            postgres_server.kill()
            time.sleep(2.0)
            postgres_server.start()
            stack.up()
            # the program around the engine does not outlive its servers
            debezium.kill()
            debezium.start()
            shop = TwoEngineShop(topology, crm, LOAD_LOGIN, debezium)
            with live_traffic(shop, generator) as more:
                more(200)
            found: dict[str, Comparison] = {}

            def equal() -> bool:
                pipeline.check()
                found.update(verdicts(topology, read_tables(crm)))
                return found["orders_wide"].equal

            wait_for(equal, "the far ends do not become equal", 240)
            debezium.check()
            assert found["orders_wide"].rows > 2500
    finally:
        debezium.kill()
        shop.close()


def _none(rows: int) -> None:
    """Ignore the loading progress."""


def _shown(topology: Any) -> int:
    from indexer.table.hbase_rows import scan_rows

    return len(scan_rows(topology, topology.tables["orders_wide"]))
