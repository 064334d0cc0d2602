"""A demo starts from any state that another demo, or a killed one, has left in the databases, and reaches Solr."""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import islice, permutations
from pathlib import Path
from random import Random
from typing import Any

import pymysql
import pytest

from cdc.process.file_topology import load_topology
from tailorbird.cli.change.cli_apply import provision
from tailorbird.devtools.demo.mysql_demo import MySqlShop
from tailorbird.devtools.demo.pg_two_engines import TwoEngineShop, crm_of
from tailorbird.devtools.demo.shop import Shop
from tailorbird.devtools.stack.proc_stack import Stack
from tailorbird.devtools.stack.settings import LOAD_LOGIN
from tailorbird.operate.pipeline.proc_pipeline import Pipeline
from tests.integration.test_init_whole import must_be_equal
from tests.support.commands import verified
from tests.support.pg_servers import PgServer

pytestmark = [pytest.mark.integration, pytest.mark.kafka("mysql-shop", "mysql-crm")]
TOPOLOGIES = Path(__file__).parents[2] / "topologies"
SIZES = {"customers": 30, "products": 12, "orders": 60}
DEMOS = ("shop", "two-engines")


def shop_of(demo: str, stack: Stack) -> MySqlShop:
    """The databases as a demo writes to them."""
    topology = load_topology(str(TOPOLOGIES / f"{demo}.yml"))
    if demo == "shop":
        return MySqlShop(topology.sources, user=LOAD_LOGIN.user, password=LOAD_LOGIN.password)
    debezium: Any = None  # it starts only when the demo's captures do
    return TwoEngineShop(topology, crm_of(topology, stack.settings.ports.mysql_crm), LOAD_LOGIN, debezium)


def demo(name: str, stack: Stack, *, batches: int | None = None) -> None:
    """Write the demo's first load and some traffic; `batches`: stop after so many batches, like a killed demo."""
    shop, generator = shop_of(name, stack), Shop(random=Random(5))
    try:
        shop.prepare()
        shop.recall(generator)
        load = generator.catalogue(**SIZES, now_ms=10**12)
        shop.load(islice(load, batches), lambda rows: None)
        if batches is None:
            assert generator.lacks(**SIZES) == 0
            for _ in range(150):
                shop.apply(generator.traffic(10**12))
    finally:
        shop.close()


def empty(server: PgServer) -> None:
    """Drop what former demos left."""
    for name in ("SHOP", "CRM"):
        port = int(os.environ[f"TAILORBIRD_PORT_MYSQL_{name}"])
        user, password = LOAD_LOGIN.user, LOAD_LOGIN.password
        with (
            pymysql.connect(host="127.0.0.1", port=port, user=user, password=password) as connected,
            connected.cursor() as cursor,
        ):
            cursor.execute("DROP DATABASE IF EXISTS shop")
            cursor.execute("DROP DATABASE IF EXISTS crm")
    with server.session() as session:
        session.execute("DROP SCHEMA IF EXISTS shop CASCADE")


@pytest.mark.parametrize("interrupted", [(1,), pytest.param((0, 2, 3), marks=pytest.mark.matrix)])
def test_demos_start_from_the_state_of_another_demo(
    stack: Stack, postgres_server: PgServer, monkeypatch: pytest.MonkeyPatch, interrupted: tuple[int, ...]
) -> None:
    """Both demos in both orders, and again; each after a first load of the other that was interrupted after so many
    batches."""
    monkeypatch.setenv("TAILORBIRD_PORT_POSTGRES", str(postgres_server.port))
    for first, second in permutations(DEMOS):
        empty(postgres_server)
        for name in (first, second, first, second):
            demo(name, stack)
        for batches in interrupted:
            empty(postgres_server)
            demo(first, stack, batches=batches)
            demo(second, stack, batches=batches)
            demo(first, stack)
            demo(second, stack)
    empty(postgres_server)


@pytest.mark.matrix
@pytest.mark.kafka("mysql-shop", "mysql-crm", "hbase", "thrift", "solr")
@pytest.mark.timeout(1200)
def test_a_demo_after_another_reaches_solr(
    stack: Stack, postgres_server: PgServer, unique: Callable[[str], str], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """The demo over two MySQL servers, after one over two engines was killed: its rows reach HBase and Solr, also after
    further demos, and `verify` of all stages reports equality. The other order: test_two_engines.py.
    """
    monkeypatch.setenv("TAILORBIRD_PORT_POSTGRES", str(postgres_server.port))
    empty(postgres_server)
    demo("two-engines", stack, batches=1)
    demo("shop", stack)
    name, file = unique("states"), tmp_path / "states.yml"
    file.write_text((TOPOLOGIES / "shop.yml").read_text().replace("\nname: shop\n", f"\nname: {name}\n"))
    topology = load_topology(str(file))
    list(provision(topology))
    with Pipeline(topology, home=tmp_path) as pipeline:
        pipeline.start()
        must_be_equal(topology, pipeline)
        for again in DEMOS:
            demo(again, stack)
        must_be_equal(topology, pipeline)
        found = verified(str(file), environ=pipeline.environ)
    empty(postgres_server)
    assert {stage for stage, _ in found} == {"log", "table", "index"}
    assert {one["outcome"] for one in found.values()} == {"equal"}, found
