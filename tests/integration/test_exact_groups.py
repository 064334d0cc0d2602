"""Groups on real servers add up exact changes, and equal the SELECT although exact phases end in the middle of traffic.

A group that misses a change or counts it twice has a wrong sum, and nothing else reports it.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson
import pymysql
import pytest
from confluent_kafka import Consumer
from pymysql.constants import ER

from cdc.model.naming import change_topic
from cdc.model.schema import TableId
from cdc.process.file_topology import load_topology
from cdc.topology.topology import Topology
from joins.engine.file_checkpoint import stored_record
from tailorbird.cli.change.cli_apply import provision
from tailorbird.devtools.stack.proc_stack import Stack
from tailorbird.devtools.stack.settings import LOAD_LOGIN
from tailorbird.operate.pipeline.proc_pipeline import Pipeline
from tests.integration.test_values_thread import SERVERS
from tests.support.commands import tailorbird, verified
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.integration, pytest.mark.matrix, pytest.mark.timeout(2400)]
ROWS = 400


def topology_text(name: str, port: int) -> str:
    return (
        f"name: {name}\nsources:\n"
        f"  shop: {{type: mysql, hostname: 127.0.0.1, port: {port}, username: cdc, password: cdc, database: {name},"
        f" server_id: 8317, tables: [orders, customers]}}\n{SERVERS}tables:\n"
        "  sums: {query: 'SELECT o.region, count(*) AS n, sum(o.amount) AS total FROM shop.orders o GROUP BY o.region',"
        " row_key: [region]}\n"
        "  joined: {query: 'SELECT coalesce(c.country, ''-'') AS country, count(*) AS n, sum(o.amount) AS total"
        " FROM shop.orders o LEFT JOIN shop.customers c ON c.id = o.customer GROUP BY coalesce(c.country, ''-'')',"
        " row_key: [country]}\n"
        "  two_joined: {query: 'SELECT c.country, count(d.id) AS n, max(o.amount) AS most FROM shop.orders o"
        " JOIN shop.customers c ON c.id = o.customer LEFT JOIN shop.customers d ON d.id = o.region"
        " GROUP BY c.country', row_key: [country]}\n"
    )


class Traffic:
    """Random transactions on orders and customers; some rows change their group, or disappear and return."""

    def __init__(self, connect: Any, seed: int) -> None:
        self._connect, self._random, self._ended = connect, random.Random(seed), threading.Event()
        self.count = 0

    def run(self) -> None:
        choose = self._random
        with self._connect() as connection, connection.cursor() as cursor:
            while not self._ended.wait(0.005):
                connection.begin()
                for _ in range(choose.randint(1, 4)):
                    key = choose.randrange(2 * ROWS)
                    statement = choose.choice([
                        f"REPLACE INTO orders (id, customer, region, amount) VALUES ({key}, {choose.randrange(40)},"
                        f" {choose.randrange(6)}, {choose.randrange(10_000) / 100})",
                        f"UPDATE orders SET amount = amount + 1, region = {choose.randrange(6)} WHERE id = {key}",
                        f"UPDATE orders SET customer = {choose.randrange(40)} WHERE id = {key}",
                        f"UPDATE orders SET customer = NULL WHERE id = {key}",
                        f"DELETE FROM orders WHERE id = {key}",
                        f"UPDATE customers SET country = 'c{choose.randrange(5)}' WHERE id = {key % 40}",
                    ])  # fmt: skip
                    try:
                        cursor.execute(statement)
                    except pymysql.err.OperationalError as error:
                        if error.args[0] != ER.LOCK_DEADLOCK:  # with a statement of the test, on many rows
                            raise
                connection.commit() if choose.random() < 0.9 else connection.rollback()
                self.count += 1

    @contextmanager
    def running(self) -> Iterator[None]:
        """Make changes until the block ends."""
        self._ended.clear()
        thread = threading.Thread(target=self.run)
        thread.start()
        try:
            yield
        finally:
            self._ended.set()
            thread.join()


def orders_topic(topology: Topology) -> str:
    """Return the topic of the table `orders`."""
    return change_topic(topology.name, TableId(source="shop", database=topology.name, table="orders"))


def phases(topology: Topology) -> tuple[set[int], int]:
    """Return the numbers of the exact phases of `orders` in its topic, and how many records name an ended one."""
    topic = orders_topic(topology)
    settings = {
        "bootstrap.servers": topology.log.bootstrap_servers,
        "group.id": "phases",
        "auto.offset.reset": "earliest",
        "enable.partition.eof": True,
        "enable.auto.commit": False,
    }
    consumer = Consumer(settings)
    found, ended, open_ones = set[int](), 0, len(consumer.list_topics(topic, timeout=30).topics[topic].partitions)
    consumer.subscribe([topic])
    while open_ones:
        message = consumer.poll(30)
        assert message is not None, f"{topic}: no record within 30 s"
        if message.error():
            open_ones -= 1
        elif value := message.value():
            source = orjson.loads(value)["source"]
            found |= {source["exact"]} if source.get("exact") else set()
            ended += bool(source.get("inexact_after"))
    consumer.close()
    return found, ended


def state_of(home: Path, name: str, table: str) -> tuple[dict[str, int], int]:
    """Return `exact_from` of a join's run, and how many operators of its query have state."""
    folder = home / "checkpoints" / name / table
    record = stored_record(folder)
    assert record is not None, table
    return dict(record.exact_from), len(list((folder / "spark" / "state").iterdir()))


def restart_joins(pipeline: Pipeline) -> None:
    """Kill the process of all joins, and start it again."""
    pipeline.kill("joins")
    pipeline.start_part("joins")


def test_phases_that_end_under_traffic(stack: Stack, unique: Any, tmp_path: Path) -> None:
    """A repeated snapshot, an ALTER that changes rows, other rows under the table's name, TRUNCATE and a lost join.
    After each, table and log equal the databases. The topics really contain several phases, and the ledger found every
    `before` right. At the end, groups add up the changes of the last phase. Those over joins never used a change
    detector."""
    name, port = unique("exact"), stack.settings.ports.mysql_shop
    file = tmp_path / "exact.yml"
    file.write_text(topology_text(name, port))

    def connect(database: str | None = name) -> Any:
        return pymysql.connect(
            host="127.0.0.1", port=port, user=LOAD_LOGIN.user, password=LOAD_LOGIN.password, database=database
        )

    with connect(None) as first, first.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE {name}")
        cursor.execute(f"CREATE TABLE {name}.customers (id INT PRIMARY KEY, country VARCHAR(9))")
        cursor.execute(
            f"CREATE TABLE {name}.orders (id INT PRIMARY KEY, customer INT, region INT, amount DECIMAL(12,2))"
        )
        cursor.executemany(f"INSERT INTO {name}.customers VALUES (%s, %s)", [(i, f"c{i % 5}") for i in range(40)])
        rows = [(i, i % 40, i % 6, i / 4) for i in range(ROWS)]
        cursor.executemany(f"INSERT INTO {name}.orders VALUES (%s, %s, %s, %s)", rows)
        first.commit()
    topology = load_topology(str(file))
    list(provision(topology))
    traffic = Traffic(connect, seed=5)

    def sql(*statements: str) -> None:
        with connect() as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
            connection.commit()

    def equal(stage: str) -> bool:
        found = verified(str(file), "--stage", stage)
        outcomes = {one["outcome"] for one in found.values()}
        assert "different" not in outcomes, tailorbird("verify", str(file), "--stage", stage).stdout
        return outcomes == {"equal"}

    def compared() -> None:
        for stage in ("log", "table"):
            wait_for(lambda stage=stage: equal(stage), f"{stage} is never equal", 400)  # type: ignore[misc]

    ends: dict[str, Callable[[Pipeline], object]] = {
        "snapshot": lambda _: tailorbird("snapshot", str(file), "shop.orders", "shop.customers"),
        "alter": lambda _: sql("ALTER TABLE orders ADD COLUMN note INT NOT NULL DEFAULT 5"),
        "swap": lambda _: sql(  # rows move without a record
            "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
            "CREATE TABLE other_orders LIKE orders",
            "INSERT INTO other_orders SELECT * FROM orders",
            "UPDATE other_orders SET customer = (customer + 1) % 40 WHERE id % 3 = 0",
            "RENAME TABLE orders TO former_orders, other_orders TO orders",
        ),
        "truncate": lambda _: sql("TRUNCATE orders"),
        "killed": restart_joins,
        "again": lambda _: tailorbird("snapshot", str(file), "shop.orders"),
    }
    with Pipeline(topology, home=tmp_path) as pipeline:
        pipeline.start()
        with traffic.running():
            wait_for(lambda: len(phases(topology)[0]) == 1, "no exact phase begins", 300)
        compared()
        for end in ends.values():
            ended = max(phases(topology)[0])
            with traffic.running():
                made = traffic.count
                wait_for(lambda made=made: traffic.count > made + 100, "no traffic", 60)  # type: ignore[misc]
                end(pipeline)
                made = traffic.count
                wait_for(lambda made=made: traffic.count > made + 400, "no traffic", 60)  # type: ignore[misc]
            compared()
        with traffic.running():
            wait_for(lambda: max(phases(topology)[0]) > ended, "no exact phase begins at the end", 300)
        compared()
        found, named = phases(topology)
        assert len(found) >= 3
        assert named
        first = state_of(tmp_path, name, "sums")[0][orders_topic(topology)]
        assert first <= max(found), "the last phase is not added up"
        # a lookup join and a group: a change detector would be a third operator with state
        assert [state_of(tmp_path, name, table) for table in ("joined", "two_joined")] == [({}, 2), ({}, 3)]
