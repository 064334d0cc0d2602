"""Capture on durable servers of its own under live traffic, while whatever can die dies.

Afterwards a read_committed reader must have seen each row change that the binary logs hold exactly once, in order, and
the rows that its records make must be the table's. The truth is read from the servers' files, past all of capture.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pymysql
import pytest

from cdc.naming import TRUNCATE_KEY
from console.proc_stack import Stack
from ingest.binlog import Flavour, RowBatch, StreamOptions, open_reader
from tests.ingest.binlog.binlog_servers import Server, start
from tests.integration.conftest import Captured, servers, wait_for

pytestmark = pytest.mark.timeout(1800)
DURABLE = ("--sync-binlog=1", "--innodb-flush-log-at-trx-commit=1")
ROUNDS = int(os.environ.get("TAILORBIRD_CHAOS_KILLS", "50"))


@dataclass
class Writer(threading.Thread):
    """Live traffic that survives its server: what it could not commit it forgets."""

    server: Server
    random: Random
    enough: threading.Event = field(default_factory=threading.Event)
    pause: threading.Lock = field(default_factory=threading.Lock)
    failed: BaseException | None = None
    serial: int = 1_000_000

    def __post_init__(self) -> None:
        super().__init__(name="writer")

    def __hash__(self) -> int:
        return id(self)

    def run(self) -> None:
        try:
            while not self.enough.is_set():
                try:
                    with self.server.session(database="d", autocommit=False, connect_timeout=5) as connected:
                        while not self.enough.is_set():
                            with self.pause, connected.cursor() as cursor:
                                for _ in range(self.random.choice((1, 1, 3, 40))):
                                    self._change(cursor)
                                connected.commit()
                            self.enough.wait(0.01)
                except (pymysql.err.OperationalError, pymysql.err.InterfaceError):
                    self.enough.wait(0.1)
        except BaseException as error:  # looked at by the test's own thread
            self.failed = error
            raise

    def _change(self, cursor: Any) -> None:
        self.serial += 1
        key = self.random.randrange(3000)
        kind = self.random.random()
        if kind < 0.4:
            cursor.execute("INSERT INTO t (id, v) VALUES (%s, %s)", (self.serial, self.serial))
        elif kind < 0.7:
            cursor.execute("UPDATE t SET v = %s WHERE id = %s", (self.serial, key))
        elif kind < 0.85:
            cursor.execute("DELETE FROM t WHERE id = %s", (key,))
        else:
            cursor.execute("UPDATE t SET id = %s, v = %s WHERE id = %s", (self.serial, self.serial, key))


def topology(name: str, server: Server, file: Path, extra: str = "") -> None:
    kind = "mariadb" if server.maria else "mysql"
    file.write_text(
        f"name: {name}\nsources:\n  shop: {{type: {kind}, hostname: 127.0.0.1, port: {server.port}, username: cdc, "
        f"password: cdc, database: d, tables: [t], server_id: 9123{extra}}}\n"
        f"log: {{bootstrap_servers: '{servers()}'}}\n"
        "tables:\n  wide: {query: SELECT a.id FROM shop.t a, row_key: [id]}\n"
    )


@dataclass
class Run:
    """One capture over one server, and how to look at what it did."""

    server: Server
    file: Path
    captured: Captured
    process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        with (self.file.parent / "capture.log").open("a") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "ingest", str(self.file), "--source", "shop"], stderr=log
            )

    def kill(self, number: int = signal.SIGKILL) -> None:
        assert self.process is not None
        assert self.process.poll() is None, (self.file.parent / "capture.log").read_text()[-3000:]
        self.process.send_signal(number)
        self.process.wait(60)

    def topic(self) -> str:
        return f"{self.captured.name}.shop.d.t"

    def end(self) -> int:
        position = self.captured.position()
        return 0 if position is None else int(position["position"]["sequence"])

    def caught_up(self) -> None:
        """Wait until the committed position is the server's."""
        with self.server.session() as connected, connected.cursor() as cursor:
            if self.server.maria:
                cursor.execute("SELECT @@GLOBAL.gtid_binlog_pos")
            else:
                cursor.execute("SELECT @@GLOBAL.gtid_executed")
            (wanted,) = cursor.fetchone()

            def reached() -> bool:
                position = self.captured.position()
                if position is None or position["snapshot"] != "done" or position.get("state", {}).get("snapshots"):
                    return False
                found = position["position"]["gtid_set"]
                if self.server.maria:
                    return bool(found == wanted)
                cursor.execute("SELECT GTID_SUBTRACT(%s, %s)", (wanted, found))
                return bool(cursor.fetchone()[0] == "")

            wait_for(reached, "the capture stays behind", seconds=180)

    def rows(self) -> dict[int, tuple[Any, ...]]:
        with self.server.session(database="d") as connected, connected.cursor(pymysql.cursors.DictCursor) as cursor:
            cursor.execute("SELECT * FROM t")
            return {row["id"]: row for row in cursor.fetchall()}


def published(run: Run) -> tuple[list[tuple[str, int, int | None]], dict[int, Any]]:
    """The changes of the log in order, and the rows that all records make; checks the order within each partition."""
    records = run.captured.read(run.topic())
    changes: dict[int, tuple[str, int, int | None]] = {}
    state: dict[int, tuple[int, Any]] = {}
    newest: dict[bytes, int] = {}
    for _, key, value in records:
        if value is None:
            continue
        event = json.loads(value)
        number = event["source"]["sequence"]
        if key == TRUNCATE_KEY:
            state = {k: (n, row) for k, (n, row) in state.items() if n >= number}
            continue
        assert number >= newest.get(key, 0), "the changes of a key are out of order"
        newest[key] = number
        row = event["after"] or event["before"]
        if event["op"] != "r":
            assert number not in changes, "a change was published twice"
            changes[number] = (event["op"], row["id"], event["after"] and event["after"]["v"])
        if event["after"] is None:
            state.pop(row["id"], None)
        else:
            state[row["id"]] = (number, event["after"])
    return [changes[number] for number in sorted(changes)], {key: row for key, (_, row) in state.items()}


def logged(server: Server, table: str = "t") -> Iterator[tuple[str, int, int | None]]:
    """The row changes that the server's binary logs hold, columns by place: id, v."""
    for path in server.binlogs():
        for change in open_reader(str(path), options=StreamOptions(flavour=Flavour(unknown_sign="signed"))).changes():
            if not isinstance(change, RowBatch) or change.decoder.table.table != table:
                continue
            for row in change.rows:
                before, after = row if change.operation == "update" else (None, row)
                first, second = (list(image.values())[:2] if image else [None, None] for image in (before, after))
                if change.operation == "insert":
                    yield "c", second[0], second[1]
                elif change.operation == "delete":
                    yield "d", second[0], None
                elif first[0] != second[0]:
                    yield from (("d", first[0], None), ("c", second[0], second[1]))
                else:
                    yield "u", second[0], second[1]


@pytest.fixture
def run_of(stack: Stack, unique: Callable[[str], str], tmp_path: Path) -> Iterator[Callable[..., Run]]:
    runs: list[Run] = []

    def make(flavour: str, *flags: str) -> Run:
        server = start(flavour, tmp_path / f"{flavour}{len(runs)}", *DURABLE, *flags)
        with server.session() as connected, connected.cursor() as cursor:
            cursor.execute("CREATE DATABASE d DEFAULT CHARSET utf8mb4")
            cursor.execute("CREATE TABLE d.t (id BIGINT PRIMARY KEY, v BIGINT, w VARCHAR(20) DEFAULT 'x')")
            for low in range(0, 12_000, 4_000):
                cursor.execute(
                    "INSERT INTO d.t (id, v) VALUES " + ",".join(f"({i},{i})" for i in range(low, low + 4_000))
                )
        name = unique("chaos")
        file = tmp_path / f"{name}.yml"
        topology(name, server, file)
        runs.append(Run(server, file, Captured(name, file, ("t",))))
        return runs[-1]

    yield make
    for run in runs:
        if run.process is not None and run.process.poll() is None:
            run.process.kill()
        for consumer in run.captured._consumers.values():
            consumer.close()
        run.server.stop()


def swap(server: Server) -> None:
    """What gh-ost ends with: a copy with another column takes the table's place."""
    with server.session(database="d") as connected, connected.cursor() as cursor:
        cursor.execute("DROP TABLE IF EXISTS old")
        cursor.execute("CREATE TABLE ghost LIKE t")
        cursor.execute("ALTER TABLE ghost MODIFY w VARCHAR(30) DEFAULT 'y'")
        cursor.execute("INSERT INTO ghost SELECT * FROM t")
        cursor.execute("RENAME TABLE t TO old, ghost TO t")


def batter(run: Run, kills: int, seed: int, stack: Stack | None = None) -> None:
    """Kill the capture again and again, now and then its server or the broker; alter and swap the table meanwhile."""
    random = Random(seed)
    writer = Writer(run.server, Random(seed + 1))
    writer.start()
    try:
        for number in range(kills):
            run.start()
            seen, more = run.end(), random.choice((0, 1, 100, 400))
            wait_for(lambda seen=seen, more=more: run.end() >= seen + more, "no progress", seconds=120)  # type: ignore[misc]
            with writer.pause:
                if number % 5 == 2:
                    swap(run.server)
                if number % 5 == 3:
                    with run.server.session(database="d") as connected, connected.cursor() as cursor:
                        cursor.execute(f"ALTER TABLE t ADD c{number} INT DEFAULT {number}")
                if number % 5 == 4:
                    run.server.restart()
            if stack is not None and number == 1:
                stack.kill("kafka")
                stack.start("kafka")
            run.kill()
        assert writer.failed is None
    finally:
        writer.enough.set()
        writer.join()
    run.start()
    run.caught_up()
    run.kill(signal.SIGTERM)


def check(run: Run) -> None:
    """Exactly once, in order, and the same rows: what came before the first change is in the snapshot's rows."""
    changes, state = published(run)
    truth = list(logged(run.server))
    assert len(changes) > 50
    assert changes == truth[-len(changes) :]
    assert {key: row["v"] for key, row in state.items()} == {key: row["v"] for key, row in run.rows().items()}


@pytest.mark.integration
def test_capture_survives_kills_restarts_and_swaps(run_of: Callable[..., Run]) -> None:
    """MySQL 8.0: kill -9 of capture and of the server, DDL and a rename swap, in the snapshot and in the stream."""
    run = run_of("mysql80")
    batter(run, 5, 3)
    check(run)


@pytest.mark.chaos
@pytest.mark.parametrize("flavour", ["mysql80", "mysql57", "maria10"])
def test_capture_survives_chaos(run_of: Callable[..., Run], stack: Stack, flavour: str) -> None:
    """The same for long, on every family of servers, with a restart of the broker."""
    run = run_of(flavour)
    batter(run, ROUNDS, 11, stack)
    check(run)


@pytest.mark.integration
def test_capture_fails_over_to_another_server(run_of: Callable[..., Run]) -> None:
    """A replica takes over with its own file names and positions: the GTID set goes on, nothing is lost or repeated."""
    run, replica = run_of("mysql80"), run_of("mysql80", "--server-id=78")
    with replica.server.session() as connected, connected.cursor() as cursor:
        cursor.execute("DROP DATABASE d")
        cursor.execute("RESET MASTER")
        cursor.execute(
            f"CHANGE MASTER TO MASTER_HOST='127.0.0.1', MASTER_PORT={run.server.port}, MASTER_USER='cdc', "
            "MASTER_PASSWORD='cdc', MASTER_AUTO_POSITION=1, GET_MASTER_PUBLIC_KEY=1"
        )
        cursor.execute("START SLAVE")
    run.start()
    wait_for(lambda: (run.captured.position() or {}).get("snapshot") == "done", "no snapshot", seconds=120)
    with run.server.session(database="d") as connected, connected.cursor() as cursor:
        for key in range(20_000, 20_100):
            cursor.execute("INSERT INTO t (id, v) VALUES (%s, 1)", (key,))
        cursor.execute("SELECT @@GLOBAL.gtid_executed")
        (executed,) = cursor.fetchone()
    run.caught_up()
    with replica.server.session() as connected, connected.cursor() as cursor:
        cursor.execute("SELECT WAIT_FOR_EXECUTED_GTID_SET(%s, 120)", (executed,))
        assert cursor.fetchone() == (0,)
        cursor.execute("STOP SLAVE")
    run.kill()
    truth = list(logged(run.server))
    run.server.process.kill()
    run.server.process.wait()
    with replica.server.session(database="d") as connected, connected.cursor() as cursor:
        cursor.execute("FLUSH BINARY LOGS")
        for key in range(20_050, 20_150):
            cursor.execute("REPLACE INTO t (id, v) VALUES (%s, 2)", (key,))
    run.server, replica.server = replica.server, run.server
    topology(run.captured.name, run.server, run.file)
    run.start()
    run.caught_up()
    run.kill(signal.SIGTERM)
    changes, state = published(run)
    truth += list(logged(run.server))[len(truth) :]
    assert len(changes) == 200
    assert changes == truth[-200:]
    assert {key: row["v"] for key, row in state.items()} == {key: row["v"] for key, row in run.rows().items()}


@pytest.mark.integration
def test_rows_whose_columns_are_not_known_are_kept_and_decoded_later(run_of: Callable[..., Run]) -> None:
    """Columns that the log does not tell: the table's rows are kept as bytes, the rest flows; the server, or a person,
    tells the columns, and the rows follow in their order."""
    run = run_of("mysql80", "--binlog-row-metadata=MINIMAL")
    with run.server.session(database="d") as connected, connected.cursor() as cursor:
        cursor.execute("CREATE TABLE other (id INT PRIMARY KEY)")
        run.file.write_text(run.file.read_text().replace("tables: [t]", "tables: [t, other]"))
        run.start()
        wait_for(lambda: (run.captured.position() or {}).get("snapshot") == "done", "no snapshot", seconds=90)
        cursor.execute("SET sql_log_bin = 0")
        cursor.execute("ALTER TABLE t ADD secretly INT DEFAULT 7")
        cursor.execute("SET sql_log_bin = 1")
        for key in range(30_000, 30_020):
            cursor.execute("INSERT INTO t (id, v) VALUES (%s, 1)", (key,))
            cursor.execute("UPDATE t SET v = 2 WHERE id = %s", (key,))
        cursor.execute("INSERT INTO other VALUES (1)")
        letters = f"{run.captured.name}.quarantine"
        wait_for(lambda: len(run.captured.read(letters, 1)) == 40, "nothing was kept", seconds=60)
        # the server is asked, and every row follows; so do the next ones, at once
        wait_for(lambda: len(published(run)[0]) == 40, "what was kept was not published", seconds=60)
        cursor.execute("UPDATE t SET v = 3 WHERE id = 30000")
    run.caught_up()
    run.kill(signal.SIGTERM)
    changes, state = published(run)
    assert changes == list(logged(run.server))[-len(changes) :]
    assert len(changes) == 41
    assert state[30_000] == {"id": 30_000, "v": 3, "w": "x", "secretly": 7}
    assert len(run.captured.read(letters, 1)) == 40
    assert len(run.captured.read(f"{run.captured.name}.shop.d.other")) == 1
