"""`tailorbird wait` on real servers: a query after it shows the commit, whatever else runs and whatever dies."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from random import Random
from statistics import median
from typing import Any

import pymysql
import pytest
import requests

from cdc.process.file_topology import load_topology
from cdc.topology.topology import Topology
from tailorbird.cli.change.cli_apply import provision
from tailorbird.devtools.stack.proc_stack import Stack
from tailorbird.devtools.stack.settings import LOAD_LOGIN
from tailorbird.operate.pipeline.proc_pipeline import Pipeline
from tailorbird.operate.wait.goal import NotYet
from tailorbird.operate.wait.run_wait import Waiter
from tests.support.ports import free_port
from tests.support.waiting import wait_for

# after a whole running pipeline, in `make test`: test_thread.py
pytestmark = [pytest.mark.integration, pytest.mark.matrix, pytest.mark.timeout(3600)]

NAME = "waited"


class WrittenPipeline:
    """A pipeline over two tables of a test's database, whose third table is not captured, and its writer."""

    def __init__(self, topology: Topology, pipeline: Pipeline, page: int) -> None:
        source = topology.sources["shop"]
        self.topology, self.pipeline, self.page = topology, pipeline, f"http://127.0.0.1:{page}"
        self.connection = pymysql.connect(
            host=source.hostname, port=source.port, user=LOAD_LOGIN.user, password=LOAD_LOGIN.password,
            database=NAME, autocommit=True,
        )  # fmt: skip
        self.index = f"{topology.solr.url}/{topology.indexes['wide'].collection}"
        self.amounts: dict[int, int] = {}

    def execute(self, sql: str, *values: object) -> None:
        with self.connection.cursor() as cursor:
            cursor.execute(sql, values)

    def write(self, chance: Random) -> int | None:
        """Make one random write; return the order it concerns, or None if the table is not captured."""
        key = chance.randrange(50)
        match chance.randrange(6):
            case 0:
                self.execute("INSERT INTO unseen (note) VALUES ('x')")
                return None
            case 1 if key in self.amounts:
                self.execute("DELETE FROM orders WHERE id = %s", key)
                del self.amounts[key]
            case 2:
                # a customer has many rows: the join must write each of them again
                self.execute("UPDATE customers SET name = concat(name, 'x') WHERE id = %s", key % 5)
            case _:
                self.amounts[key] = chance.randrange(10**6)
                self.execute("REPLACE INTO orders VALUES (%s, %s, %s)", key, key % 5, self.amounts[key])
        return key

    def shown(self, key: int) -> int | None:
        """Return the amount that the index shows for an order, or None."""
        found = requests.get(
            f"{self.index}/select", params={"q": f"id:{key} AND _kind:row", "fl": "amount"}, timeout=10
        )
        documents: list[dict[str, Any]] = found.json()["response"]["docs"]
        return int(documents[0]["amount"]) if documents else None

    def command(self, *more: str) -> tuple[int, str, str]:
        """Run `tailorbird wait`; return its exit code, output and errors."""
        words = [sys.executable, "-m", "tailorbird", "wait", self.topology.file, *more]
        done = subprocess.run(words, env=self.pipeline.environ, capture_output=True, text=True, timeout=120)
        return done.returncode, done.stdout, done.stderr


@pytest.fixture(scope="module")
def written(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WrittenPipeline]:
    folder = tmp_path_factory.mktemp("waited")
    port, page = os.environ.get, free_port()
    at = port("TAILORBIRD_PORT_MYSQL_SHOP", "3307")
    with pymysql.connect(
        host="127.0.0.1", port=int(at), user=LOAD_LOGIN.user, password=LOAD_LOGIN.password, autocommit=True
    ) as made, made.cursor() as cursor:  # fmt: skip
        for sql in (
            f"DROP DATABASE IF EXISTS {NAME}",
            f"CREATE DATABASE {NAME}",
            f"CREATE TABLE {NAME}.orders (id INT PRIMARY KEY, customer_id INT, amount INT NOT NULL)",
            f"CREATE TABLE {NAME}.customers (id INT PRIMARY KEY, name TEXT NOT NULL)",
            f"CREATE TABLE {NAME}.unseen (id INT AUTO_INCREMENT PRIMARY KEY, note VARCHAR(9))",
            f"INSERT INTO {NAME}.customers VALUES (0, 'a'), (1, 'b'), (2, 'c'), (3, 'd'), (4, 'e')",
        ):
            cursor.execute(sql)
    file = folder / "waited.yml"
    file.write_text(f"""name: {NAME}_{time.time_ns()}
sources:
  shop: {{type: mysql, hostname: 127.0.0.1, port: {at}, username: cdc, password: cdc, database: {NAME},
          tables: [orders, customers], server_id: {10_000 + time.time_ns() % 1_000_000_007}}}
log: {{bootstrap_servers: '127.0.0.1:{port("TAILORBIRD_PORT_KAFKA", "9092")}'}}
hbase:
  thrift: 127.0.0.1:{port("TAILORBIRD_PORT_THRIFT", "9090")}
  zookeeper: 127.0.0.1:{port("TAILORBIRD_PORT_ZOOKEEPER", "2181")}
solr: {{url: 'http://127.0.0.1:{port("TAILORBIRD_PORT_SOLR", "8983")}/solr'}}
tables:
  wide:
    query: |
      SELECT o.id, o.amount, c.name FROM shop.orders o LEFT JOIN shop.customers c ON c.id = o.customer_id
    row_key: [id]
indexes:
  wide: {{table: wide, commit_within: 100ms}}
dashboards:
  wide: {{index: wide, title: Waited, columns: [id, amount, name]}}
""")
    topology = load_topology(str(file))
    list(provision(topology))
    with Pipeline(topology, home=folder, page_port=page) as pipeline:
        pipeline.start()
        written = WrittenPipeline(topology, pipeline, page)
        yield written
        written.connection.close()


def test_written_changes_are_read_after_a_wait(written: WrittenPipeline) -> None:
    """Random writes, some to a table that is not captured: after each wait a query shows the write, also at the first
    start.
    """
    chance = Random(3)
    with Waiter(written.topology) as waiter:
        for _ in range(12):
            key = written.write(chance)
            waiter.wait(waiter.now("shop"), timeout=240)
            if key is not None:
                assert written.shown(key) == written.amounts.get(key)


def test_the_command_and_the_page_wait_too(written: WrittenPipeline) -> None:
    """`--now`, `--gtid`, each stage, `GET /wait`; wrong arguments are reported in one line without waiting."""
    written.execute("REPLACE INTO orders VALUES (60, 1, 600)")
    code, output, errors = written.command("--source", "shop", "--now", "--json")
    assert (code, errors) == (0, "")
    assert written.shown(60) == 600
    gtid_set = json.loads(output)["gtid_set"]
    for until in ("log", "table"):
        code, output, errors = written.command("--source", "shop", "--gtid", gtid_set, "--until", until)
        assert (code, errors) == (0, ""), output
        assert output.startswith(f"{until} has all of shop up to ")
    written.execute("REPLACE INTO orders VALUES (60, 1, 601)")
    found = requests.get(f"{written.page}/wait", params={"source": "shop", "timeout": "30"}, timeout=60)
    assert (found.status_code, found.json()["reached"]) == (200, True)
    assert written.shown(60) == 601
    head = gtid_set.split(":")[0]
    late = requests.get(f"{written.page}/wait?source=shop&gtid={head}:1-99999999&timeout=0.2", timeout=60)
    assert (late.status_code, late.json()["reached"]) == (504, False)
    for wrong in ("source=none", "source=shop&until=far", "source=shop&gtid=x", "source=shop&timeout=1e9", ""):
        assert requests.get(f"{written.page}/wait?{wrong}", timeout=60).status_code in (400, 422), wrong
    for more, said in {
        ("--source", "shop"): "nothing to wait for",
        ("--source", "none", "--now"): "no source none; --source shop",
        ("--source", "shop", "--gtid", "7-x"): "'7-x' is not a GTID set",
        ("--source", "shop", "--now", "--table", "none"): "no table none; --table wide",
    }.items():
        code, output, errors = written.command(*more)
        assert (code, output, len(errors.splitlines())) == (2, "", 1)
        assert said in errors


def test_a_wait_times_out(written: WrittenPipeline) -> None:
    """A stage that does not progress: it exits with 1 and names the stage; when the stage continues, the wait ends."""
    stopped = written.pipeline.pid("join wide")
    os.kill(stopped, signal.SIGSTOP)
    try:
        written.execute("REPLACE INTO orders VALUES (61, 1, 610)")
        with Waiter(written.topology) as waiter:
            goal = waiter.now("shop")
            assert waiter.wait(goal, until="log", timeout=30).offset > 0
            with pytest.raises(NotYet, match=r"after 1\.5 s table wide does not contain all of shop up to"):
                waiter.wait(goal, until="table", timeout=1.5)
    finally:
        os.kill(stopped, signal.SIGCONT)
    with Waiter(written.topology) as waiter:
        waiter.wait(goal, timeout=120)
    assert written.shown(61) == 610


@pytest.mark.parametrize("rate", [0, 20], ids=["alone", "beside_20_writes_a_second"])
def test_the_cost_of_a_wait(written: WrittenPipeline, rate: int) -> None:
    """Print how long after the first query that shows the write a wait ends; no query after a wait misses it.

    A row is visible before its batch has ended and written its barrier: this time is spent in the join, then in Solr.
    """
    stop, cost = threading.Event(), list[float]()
    others = pymysql.connect(
        host="127.0.0.1", port=written.connection.port, user=LOAD_LOGIN.user, password=LOAD_LOGIN.password,
        database=NAME, autocommit=True,
    )  # fmt: skip

    def write() -> None:
        number = 0
        with others, others.cursor() as cursor:
            while not stop.wait(1 / rate):
                number += 1
                cursor.execute("REPLACE INTO orders VALUES (%s, %s, %s)", (100 + number % 40, number % 5, number))

    traffic = threading.Thread(target=write, name="traffic")
    if rate:
        traffic.start()
    try:
        with Waiter(written.topology) as waiter:
            written.execute("REPLACE INTO orders VALUES (62, 2, -1)")
            waiter.wait(waiter.now("shop"), timeout=240)  # before its first row the index has no columns
            for number in range(40):
                written.execute("REPLACE INTO orders VALUES (62, 2, %s)", number)
                goal = waiter.now("shop")
                wait_for(lambda number=number: written.shown(62) == number, "it is not shown", 240)  # type: ignore[misc]
                seen = time.monotonic()
                waiter.wait(goal, timeout=240)
                cost.append(time.monotonic() - seen)
                assert written.shown(62) == number
    finally:
        stop.set()
        if rate:
            traffic.join()
    tenth = sorted(cost)[len(cost) * 9 // 10]
    print(f"{rate} other writes a second: a wait ends {median(cost) * 1000:.0f} ms late, 1 in 10 {tenth * 1000:.0f} ms")


def test_a_thousand_writes_are_read(written: WrittenPipeline) -> None:
    """No wait misses a write or hangs, though join and indexer are killed now and then; prints the cost of a wait."""
    chance, cost = Random(4), list[float]()
    with Waiter(written.topology) as waiter:
        for number in range(1000):
            if number % 100 == 50:
                part = chance.choice(["join wide", "index wide"])
                written.pipeline.kill(part)
                written.pipeline.start_part(part)
            key, before = written.write(chance), time.monotonic()
            goal = waiter.now("shop")
            if number % 2 == 0 and key is not None:
                wait_for(
                    lambda key=key: written.shown(key) == written.amounts.get(key),  # type: ignore[misc]
                    "it is not shown",
                    240,
                )
                seen = time.monotonic()
                waiter.wait(goal, timeout=240)
                cost.append(time.monotonic() - max(seen, before))
                continue
            waiter.wait(goal, timeout=240)
            if key is not None:
                assert written.shown(key) == written.amounts.get(key)
    print(f"a wait ends {median(cost) * 1000:.0f} ms after the first query that shows the write (median)")
    assert len(cost) > 300
