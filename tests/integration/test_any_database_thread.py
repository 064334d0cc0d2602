"""Odd databases, from their tables to Solr: every row is there as the server shows it, and `verify` reports equality.

First a capture runs alone, in a topology without tables, as a user with the least privileges: it reads the tables and
follows their transactions and alterations. Then the joins and indexes start, while everything changes again and the
capture is killed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest

from cdc.topology.reader import read_topology
from indexer.table.hbase_rows import scan_rows
from tailorbird.devtools.stack.proc_stack import Stack
from tests.databases import mysql_server, pg_server
from tests.databases.cases import Case, Line, read
from tests.databases.far_ends import declared
from tests.databases.kafka_capturing import ThreadedKafkaCapture
from tests.databases.running import Database
from tests.integration.conftest import servers as brokers
from tests.support.commands import objects, verified

pytestmark = [
    pytest.mark.integration, pytest.mark.matrix, pytest.mark.kafka("hbase", "thrift", "solr"),
    pytest.mark.timeout(3600),
]  # fmt: skip
CASES = Path(__file__).parents[1] / "cases" / "threads"
BY_DAY = (
    "  by_day: {query: 'SELECT dayofweek(m.at) AS k, count(*) AS n FROM s.moves m WHERE m.at IS NOT NULL"
    " GROUP BY dayofweek(m.at)', row_key: [k]}\n"
)
PRICED = (
    "  priced: {query: \"SELECT c.id, p.v FROM s.children c LEFT JOIN s.prices p ON p.id = c.parent AND p.region = 'eu'"
    '", row_key: [id]}\n'
)
NAMED = (
    "  named: {query: 'SELECT a.u, b.i6 FROM s.addresses a LEFT JOIN s.addresses b ON b.u = a.other', row_key: [u]}\n"
)
DAYS = "SELECT DAYOFWEEK(at), COUNT(*) FROM moves WHERE at IS NOT NULL GROUP BY 1"
PRICES = "SELECT c.id, CAST(p.v AS CHAR) FROM children c LEFT JOIN prices p ON p.id = c.parent AND p.region = 'eu'"
PAIRS = "SELECT CAST(a.u AS CHAR), CAST(b.i6 AS CHAR) FROM addresses a LEFT JOIN addresses b ON b.u = a.other"


@dataclass(frozen=True, kw_only=True)
class Odd:
    """A thread: the tables to copy, queries over them with the server's own SQL for each, and what `status` names."""

    tables: tuple[str, ...]
    queries: str = ""
    answers: tuple[tuple[str, str], ...] = ()
    left_out: tuple[str, ...] = ()
    refused: str = ""  # a table with a row whose key cannot be represented


THREADS = {
    "mysql-8.0": Odd(
        tables=("moves", "days", "daykeys", "shapes", "large", "order details", "orders", "rewritten", "rekeyed",
                "parts", "children", "hexes", "prices"),
        queries=BY_DAY + PRICED, answers=(("by_day", DAYS), ("priced", PRICES)),
        left_out=("nokey", "isam", "later"), refused="daykeys",
    ),
    "mysql-9": Odd(tables=("vectors", "keyless", "hidden")),
    "mariadb-11.4": Odd(
        tables=("moves", "versions", "hashed", "packed", "addresses", "days", "order details", "rewritten", "rekeyed",
                "replaced"),
        queries=BY_DAY + NAMED, answers=(("by_day", DAYS), ("named", PAIRS)), left_out=("nokey", "aria"),
    ),
    "postgresql-18": Odd(
        tables=("moves", "odd", "daykeys", "generated", "parts", "parents", "rewritten", "rekeyed", "order details",
                "prices", "children", "later"),
        queries=BY_DAY + PRICED,
        answers=(
            ("by_day", DAYS.replace("DAYOFWEEK(at)", "extract(dow FROM at)::int + 1")),
            ("priced", PRICES.replace("CHAR", "TEXT")),
        ),
        left_out=("nokey",), refused="daykeys",
    ),
}  # fmt: skip


@pytest.fixture(params=list(THREADS))
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    """A server of each kind."""
    found: Any = (
        mysql_server.serve("mysql-8.0", tmp_path / "server", "--lower-case-table-names=1")
        if request.param == "mysql-8.0"
        else (pg_server if request.param.startswith("postgres") else mysql_server).serve(
            request.param, tmp_path / "server"
        )
    )
    yield found
    found.stop()


@pytest.fixture
def database(server: Any) -> Iterator[Any]:
    """An empty database there."""
    found = server.database()
    yield found
    found.close()


@dataclass
class OddThread:
    """The statements of a case, run part by part while its database is captured into Kafka."""

    database: Database
    case: Case

    def parts(self) -> list[list[Line]]:
        """Return the lines before each mark that waits, and after the last one."""
        found: list[list[Line]] = [[]]
        for line in self.case.lines:
            if line.mark in ("capture", "caught up"):
                found.append([])
            else:
                found[-1].append(line)
        return found

    def run(self, lines: list[Line], kill: Callable[[], None]) -> None:
        """Run statements; each must be accepted, unless it says that it fails."""
        for line in lines:
            if line.mark == "kill":
                kill()
                continue
            error = self.database.run("case", line)
            assert bool(error) == line.sql.startswith("/* fails */"), (line.sql, error)

    def answer(self, sql: str) -> list[tuple[Any, ...]]:
        """Return the server's rows."""
        server: Any = self.database.at.server  # type: ignore[attr-defined]
        if "postgresql" in self.case.server:
            with server.session(self.database.name) as connected:
                return sorted(connected.execute(sql).fetchall())
        with server.session(database=self.database.name) as connected, connected.cursor() as cursor:
            cursor.execute(sql)
            return sorted(cursor.fetchall())


def test_odd_tables_reach_solr_and_are_proved(
    stack: Stack, database: Any, unique: Callable[[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """XA transactions, rollbacks, odd values, types and names, rewrites, partitions, changes without log events: HBase
    and Solr have the server's rows. `verify` of all stages reports no difference, a repair changes nothing, and
    `status` names exactly the tables that are left out, and a refused row until it is deleted. A changed query is built
    alongside the old one.
    """
    monkeypatch.setenv("TAILORBIRD_HOME", str(tmp_path))
    server_name = database.at.name
    odd, thread = THREADS[server_name], OddThread(database, read((CASES / f"{server_name}.case").read_text()))
    before, alone, *during = thread.parts()
    thread.run(before, lambda: None)
    name, alone_file = unique("odd"), tmp_path / "alone.yml"
    must_capture_with_what_doctor_grants(database, name, alone_file)
    capturing = alone_into_kafka(database, name, Random(1))
    capturing.start()
    try:
        assert capturing.wait(lambda _: True, 120), capturing.said.lines
        thread.run(alone, capturing.kill)
        assert capturing.wait(reached(database), 120), (capturing.failed, capturing.retried, capturing.said.lines[-9:])
        must_be_proved_without_tables(alone_file, set(odd.tables))
    finally:
        capturing.stop()
    with declared(database, name, odd.tables, tmp_path / "odd.yml", odd.queries) as far:
        far.pipeline.start()
        far.must_equal(1200)

        def killed() -> None:
            far.pipeline.kill("capture s")
            far.pipeline.start_part("capture s")

        left_out = {("left out", f"s.{schema(database)}.{name}") for name in odd.left_out}
        for number, lines in enumerate(during[:-1]):
            thread.run(lines, killed)
            assert far.must_equal(600) > 0
            far.must_be_proved()
            refused = {("capture", f"s.{schema(database)}.{odd.refused}")} if odd.refused and not number else set()
            far.must_report(left_out | refused)
        for table, sql in odd.answers:
            held = [tuple(row.values.values()) for row in scan_rows(far.topology, far.topology.tables[table]).values()]
            assert sorted(held) == thread.answer(sql), table
        far.must_repair_nothing()
        far.must_build_alongside("t0")


def alone_text(database: Database, name: str) -> str:
    """Return a topology that has a source and no tables."""
    text = database.topology_text(f"log: {{bootstrap_servers: '{brokers()}'}}\n", name)
    return text.partition("tables:\n")[0]


def alone_into_kafka(database: Database, name: str, random: Random, kills: int = 0) -> ThreadedKafkaCapture:
    """Return a capture into Kafka that runs in the test's own process, without joins."""
    topology = read_topology(alone_text(database, name), file="alone.yml", environ={})
    return ThreadedKafkaCapture(topology, random, kills, servers=brokers())


def must_capture_with_what_doctor_grants(database: Any, name: str, file: Path) -> None:
    """Write a topology without tables. For its user without privileges, `doctor` names those that are missing and
    nothing else. With its own statements it finds no fault."""
    mysql = "postgresql" not in database.at.name  # least privileges on PostgreSQL: test_postgres_whole.py
    if mysql:
        database.demote()
    file.write_text(alone_text(database, name))
    if mysql:
        code, said, _ = objects("doctor", str(file))
        faults = [one for one in said if one["status"] == "fault"]
        assert (code, [one["check"] for one in faults]) == (1, ["grants"]), said
        for statement in faults[0]["remedy"].split("; "):
            database.execute(statement)
    code, said, errors = objects("doctor", str(file))
    assert code == 0, (said, errors)


def must_be_proved_without_tables(file: Path, tables: set[str]) -> None:
    """Where a topology has no tables, `apply` has nothing to create, and `verify` compares each source table with its
    topic."""
    code, _, errors = objects("apply", str(file))
    assert (code, "nothing to create" in errors) == (0, True), errors

    deadline = time.monotonic() + 300
    while True:
        found = verified(str(file))
        assert {stage for stage, _ in found} == {"log"}
        assert {place: one for place, one in found.items() if one["outcome"] == "different"} == {}
        equal = {table.split(".", 2)[2] for (_, table), one in found.items() if one["outcome"].startswith("equal")}
        if tables <= equal:
            return
        assert time.monotonic() < deadline, {place: (one["outcome"], one["unknown"]) for place, one in found.items()}


def schema(database: Database) -> str:
    """Return the name of the schema (PostgreSQL) or database that has the tables."""
    return "public" if "postgresql" in database.topology_text() else database.name


def reached(database: Database) -> Callable[[Any], bool]:
    """Return a condition on checkpoints: the present end of the log is covered."""
    end = database.end_of_log()
    return lambda checkpoint: database.reached(end, checkpoint)
