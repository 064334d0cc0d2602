"""A capture does not disturb an application of MySQL or MariaDB."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Any

import pymysql
import pytest

from tailorbird.operate.doctor.doctor import LONG_TRANSACTION, ServerInspection, judge
from tailorbird.operate.doctor.mysql_doctor import server_inspection
from tests.databases.capturing import ThreadedCapture
from tests.databases.cases import Line
from tests.databases.harm import altered, effects, harmed
from tests.databases.mysql_harm import statements
from tests.databases.mysql_server import MySqlDatabase, MySqlServer, serve

pytestmark = pytest.mark.integration
OTHERS = ["mysql-5.7", "mysql-9", "mariadb-10.11", "mariadb-11.4"]
# Variables that change by themselves while a server works.
_MOVING = (
    "gtid",
    "timestamp",
    "innodb_version",
    "innodb_buffer_pool",
    "last_insert_id",
    "slow_query_log_file",
    "rand_seed",
)


@pytest.fixture(scope="module", params=["mysql-8.0", *(pytest.param(one, marks=pytest.mark.matrix) for one in OTHERS)])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MySqlServer]:
    found = serve(request.param, tmp_path_factory.mktemp(request.param))
    yield found
    found.stop()


class Application:
    """Sessions of an application in a database of its own."""

    def __init__(self, database: MySqlDatabase) -> None:
        self.database = database
        self._sessions: dict[int, Any] = {}

    def run(self, line: Line) -> tuple[str, int, tuple[tuple[object, ...], ...]]:
        """Run a statement; return the error's code, the affected rows, and the result."""
        if line.session not in self._sessions:
            self._sessions[line.session] = self.database.at.server.session(
                database=self.database.name, ssl_disabled=True, init_command="SET lock_wait_timeout = 20"
            )
        with self._sessions[line.session].cursor() as cursor:
            try:
                affected = cursor.execute(line.sql)
                shown = line.sql.startswith(("SELECT", "(SELECT"))
                return "", affected, tuple(cursor.fetchall()) if shown else ()
            except pymysql.err.MySQLError as error:
                return str(error.args[0]), 0, ()

    def close(self) -> None:
        for one in self._sessions.values():
            one.close()


def variables(server: MySqlServer) -> dict[str, object]:
    """Return global settings and users, without those that change by themselves."""
    with server.server.session() as connected, connected.cursor() as cursor:
        cursor.execute("SHOW GLOBAL VARIABLES")
        found: dict[str, object] = {name: value for name, value in cursor.fetchall() if not name.startswith(_MOVING)}
        cursor.execute("SELECT user, host FROM mysql.user ORDER BY 1, 2")
        found["users"] = cursor.fetchall()
        return found


def ours(server: MySqlServer, capturing: ThreadedCapture) -> int:
    """Return the number of the capture's sessions; the test's own sessions have a database."""
    with server.server.session() as connected, connected.cursor() as cursor:
        cursor.execute("SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE user = 'cdc' AND db IS NULL")
        return int(cursor.fetchone()[0]) - 1


def caught_up(database: MySqlDatabase, capturing: ThreadedCapture) -> None:
    """Wait until the capture has published every commit."""
    end = database.end_of_log()
    reached = capturing.wait(lambda found: database.reached(end, found), 120)
    assert reached, (capturing.failed, capturing.retried[-2:], capturing.said.lines[-5:])


def test_an_applications_statements_have_the_same_effects(server: MySqlServer) -> None:
    """Every statement has the same error, affected rows and result without a capture, while one starts and dies, and
    with one."""
    lines, runs, most = statements(server.server.maria), [], 0
    settings = variables(server)
    for moment in ("without", "starting", "with"):
        database = server.database()
        application = Application(database)
        capturing = ThreadedCapture(database.topology(), Random(1), kills=5 if moment == "starting" else 0)
        if moment == "with":
            capturing.start()
            caught_up(database, capturing)
        try:
            first, rest = lines[: len(lines) // 3], lines[len(lines) // 3 :]
            found = effects(application.run, first)
            if moment == "starting":
                capturing.start()
            found += effects(application.run, rest)
            if moment != "without":
                most = max(most, ours(server, capturing))
                caught_up(database, capturing)
        finally:
            capturing.stop()
            application.close()
        runs.append(found)
        database.drop()
    assert sum(not one.error for one in runs[0]) > 0.8 * len(lines)
    assert harmed(runs[0], runs[1]) == []
    assert harmed(runs[0], runs[2]) == []
    assert most < 10
    assert altered(settings, variables(server)) == []


@pytest.mark.parametrize(
    "key", [pytest.param("id INT PRIMARY KEY, f DOUBLE", marks=pytest.mark.matrix), "id INT, f DOUBLE PRIMARY KEY"]
)
def test_a_snapshot_does_not_block_ddl(server: MySqlServer, key: str) -> None:
    """While a large table is read, in chunks or in one pass, it can be altered and locked within a bounded time."""
    database = server.database()
    with server.server.session(database=database.name, ssl_disabled=True) as connected, connected.cursor() as cursor:
        cursor.execute(f"CREATE TABLE big ({key}, t CHAR(200))")
        cursor.execute("INSERT INTO big VALUES (1, 1, REPEAT('x', 200))")
        rows = 1
        while rows < 60_000:
            cursor.execute(f"INSERT INTO big SELECT id + {rows}, f + {rows}, t FROM big")
            rows *= 2
        capturing = ThreadedCapture(database.topology(), Random(1))
        capturing.start()
        try:
            deadline = time.monotonic() + 60
            while not capturing.records().get(f"{capturing.topology.name}.s.{database.name}.big"):
                assert time.monotonic() < deadline, (capturing.failed, capturing.retried)
                time.sleep(0.005)
            for sql in ("ALTER TABLE big ADD COLUMN n INT", "LOCK TABLES big WRITE", "UNLOCK TABLES"):
                began = time.monotonic()
                cursor.execute(sql)
                assert time.monotonic() - began < 15, sql
            caught_up(database, capturing)
        finally:
            capturing.stop()
    database.drop()


def test_no_transaction_of_a_capture_stays_open(server: MySqlServer) -> None:
    """Once all tables are read, the server keeps no old row versions for the capture."""
    database = server.database()
    with server.server.session(database=database.name, ssl_disabled=True) as connected, connected.cursor() as cursor:
        cursor.execute("CREATE TABLE a (f DOUBLE PRIMARY KEY)")
        cursor.execute("CREATE TABLE b (id INT PRIMARY KEY)")
        cursor.execute("INSERT INTO a VALUES (1), (2)")
        capturing = ThreadedCapture(database.topology(), Random(1))
        capturing.start()
        try:
            caught_up(database, capturing)
            deadline = time.monotonic() + 10
            while True:
                cursor.execute("SELECT COUNT(*) FROM information_schema.INNODB_TRX")
                if cursor.fetchone() == (0,):
                    break
                assert time.monotonic() < deadline, "a transaction of the capture is open"
                threading.Event().wait(0.05)
        finally:
            capturing.stop()
    database.drop()


def test_doctor_sees_a_transaction_that_stays_open(server: MySqlServer) -> None:
    """`doctor` reports how long the transaction of a slow snapshot has been open."""
    database = server.database()
    source = database.topology().sources["s"]
    with server.server.session(database=database.name, ssl_disabled=True) as connected, connected.cursor() as cursor:
        cursor.execute("CREATE TABLE a (id INT PRIMARY KEY)")
        cursor.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT")
        cursor.execute("SELECT * FROM a")
        deadline = time.monotonic() + 20
        while not (isinstance(log_events := server_inspection(source), ServerInspection) and log_events.longest):
            assert time.monotonic() < deadline, log_events
            threading.Event().wait(0.2)
    assert isinstance(log_events, ServerInspection)
    checks = judge(source, replace(log_events, longest=log_events.longest + LONG_TRANSACTION))
    assert [one.status for one in checks if one.check == "row versions"] == ["warning"]
    database.drop()


def test_a_statement_with_another_effect_is_named() -> None:
    """The comparison finds another error, another count and a slower statement."""
    lines = [Line(0, "a"), Line(0, "b"), Line(0, "c")]
    before = effects(lambda _: ("", 1, ()), lines)
    after = effects(lambda line: ("1205" if line.sql == "b" else "", 1 + (line.sql == "c"), ()), lines)
    assert [one[:1] for one in harmed(before, after)] == ["b", "c"]
    assert altered({"x": 1, "y": 2}, {"x": 1, "y": 3}) == ["y: 2 → 3"]
