"""Capture a table on a durable server of its own under live traffic, and check what a reader must have seen."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Protocol

import pymysql

from cdc.model.naming import TRUNCATE_KEY
from ingest.binlog import Flavour, RowBatch, StreamOptions, open_reader
from tailorbird.devtools.stack.proc_stack import Stack
from tests.ingest.binlog.binlog_servers import Server, start
from tests.integration.conftest import CapturedDatabase, servers
from tests.support.gateways import GatewayProcess
from tests.support.waiting import wait_for

KEYS = range(-28_000, 12_000)  # enough rows for several ranges of a snapshot
DURABLE = ("--sync-binlog=1", "--innodb-flush-log-at-trx-commit=1")


@dataclass
class Writer(threading.Thread):
    """Live traffic that survives its server: it forgets changes that it could not commit."""

    server: Server
    random: Random
    keys: range = KEYS
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
        except BaseException as error:  # checked in the test's own thread
            self.failed = error
            raise

    def _change(self, cursor: Any) -> None:
        self.serial += 1
        key = self.random.choice((range(3000), self.keys)[self.random.random() < 0.5])
        kind = self.random.random()
        if kind < 0.4:
            cursor.execute("INSERT INTO t (id, v) VALUES (%s, %s)", (self.serial, self.serial))
        elif kind < 0.7:
            cursor.execute("UPDATE t SET v = %s WHERE id = %s", (self.serial, key))
        elif kind < 0.85:
            cursor.execute("DELETE FROM t WHERE id = %s", (key,))
        else:
            cursor.execute("UPDATE t SET id = %s, v = %s WHERE id = %s", (self.serial, self.serial, key))


class Traffic(Protocol):
    """A thread that writes until `enough` is set."""

    enough: threading.Event
    failed: BaseException | None

    def start(self) -> None: ...

    def join(self) -> None: ...


@contextmanager
def running(writer: Traffic) -> Iterator[None]:
    """Write during the block; afterwards check that nothing but lost connections stopped the writer."""
    writer.start()
    try:
        yield
    finally:
        writer.enough.set()
        writer.join()
    assert writer.failed is None


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
    """One capture of one server, and helpers to inspect it."""

    server: Server
    file: Path
    captured: CapturedDatabase
    process: subprocess.Popen[bytes] | None = None
    gateway: GatewayProcess | None = None

    def start(self) -> None:
        options = [] if self.gateway is None else self.gateway.options
        with (self.file.parent / "capture.log").open("a") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "ingest", str(self.file), "--source", "shop", *options], stderr=log
            )

    def kill(self, number: int = signal.SIGKILL) -> None:
        assert self.process is not None
        assert self.process.poll() is None, (self.file.parent / "capture.log").read_text()[-3000:]
        self.process.send_signal(number)
        self.process.wait(60)

    def progresses(self, more: int) -> None:
        """Wait until a number of further changes are committed."""
        assert self.process is not None
        process, seen = self.process, self.end()

        def reached() -> bool:
            assert process.poll() is None, (self.file.parent / "capture.log").read_text()[-3000:]
            return self.end() >= seen + more

        wait_for(reached, "no progress", seconds=120)

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

            wait_for(reached, "the capture does not catch up", seconds=180)

    def rows(self) -> dict[int, dict[str, Any]]:
        with self.server.session(database="d") as connected, connected.cursor(pymysql.cursors.DictCursor) as cursor:
            cursor.execute("SELECT * FROM t")
            found: Any = cursor.fetchall()
            return {row["id"]: row for row in found}

    def close(self) -> None:
        """Stop all processes and remove their data."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for consumer in self.captured._consumers.values():
            consumer.close()
        self.server.stop()


def run_on(flavour: str, folder: Path, name: str, *flags: str, keys: range = KEYS) -> Run:
    """Start a durable server whose table d.t has a row for each key, and a topology that captures it."""
    server = start(flavour, folder / name, *DURABLE, *flags)
    with server.session() as connected, connected.cursor() as cursor:
        cursor.execute("CREATE DATABASE d DEFAULT CHARSET utf8mb4")
        cursor.execute("CREATE TABLE d.t (id BIGINT PRIMARY KEY, v BIGINT, w VARCHAR(20) DEFAULT 'x')")
        for at in range(0, len(keys), 4_000):
            cursor.execute("INSERT INTO d.t (id, v) VALUES " + ",".join(f"({i},{i})" for i in keys[at : at + 4_000]))
    file = folder / f"{name}.yml"
    topology(name, server, file)
    return Run(server, file, CapturedDatabase(name, file, ("t",)))


class Published(Protocol):
    """A capture whose records can be read."""

    @property
    def captured(self) -> CapturedDatabase: ...

    def topic(self) -> str:
        """Return the topic of the table."""


def published(run: Published) -> tuple[list[tuple[str, int, int | None]], dict[int, Any]]:
    """Return the changes of the log in order, and the rows of all records; check the order within each partition."""
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
    """Return the row changes in the server's binary logs, columns by position: id, v."""
    for path in server.binlogs():
        for change in open_reader(str(path), options=StreamOptions(flavour=Flavour(unknown_sign="signed"))).changes():
            if not isinstance(change, RowBatch) or change.decoder.table.table != table:
                continue
            for row in change.rows:
                before, after = row if change.operation == "update" else (None, row)
                first, second = (_pair(image) for image in (before, after))
                if change.operation == "insert":
                    yield "c", second[0], second[1]
                elif change.operation == "delete":
                    yield "d", second[0], None
                elif first[0] != second[0]:
                    yield from (("d", first[0], None), ("c", second[0], second[1]))
                else:
                    yield "u", second[0], second[1]


def _pair(image: Any) -> list[Any]:
    return list(image.values())[:2] if image else [None, None]


def swap(server: Server) -> None:
    """Replace the table by a copy with another column, as gh-ost does at its end."""
    with server.session(database="d") as connected, connected.cursor() as cursor:
        cursor.execute("DROP TABLE IF EXISTS old")
        cursor.execute("CREATE TABLE ghost LIKE t")
        cursor.execute("ALTER TABLE ghost MODIFY w VARCHAR(30) DEFAULT 'y'")
        cursor.execute("INSERT INTO ghost SELECT * FROM t")
        cursor.execute("RENAME TABLE t TO old, ghost TO t")


def update_all(server: Server) -> None:
    """Run one transaction with more records than one Kafka transaction takes."""
    with server.session(database="d", autocommit=False) as connected, connected.cursor() as cursor:
        for _ in range(2):
            cursor.execute("UPDATE t SET v = v + 1")
        connected.commit()


def disturb(run: Run, number: int) -> None:
    """Disturb the source in a round."""
    if number % 5 == 2:
        swap(run.server)
    elif number % 5 == 3:
        with run.server.session(database="d") as connected, connected.cursor() as cursor:
            cursor.execute(f"ALTER TABLE t ADD c{number} INT DEFAULT {number}")
    elif number % 5 == 4:
        run.server.restart()
    elif number % 10 == 0:
        update_all(run.server)


def batter(run: Run, kills: int, seed: int, stack: Stack | None = None, first: int = 0) -> None:
    """Kill the capture repeatedly, sometimes its server or the broker; alter and swap the table in between.

    `first` is the number of the first round: a column is named after the round that adds it.
    """
    random = Random(seed)
    writer = Writer(run.server, Random(seed + 1), serial=seed * 10_000_000)
    with running(writer):
        for number in range(first, first + kills):
            run.start()
            run.progresses(random.choice((0, 1, 100, 400)))
            with writer.pause:
                disturb(run, number)
            if stack is not None and number % 10 == 1:
                stack.kill("kafka")
                stack.start("kafka")
                if number % 20 == 1:  # otherwise it would be killed while it waits for the broker
                    run.progresses(1)
            if run.gateway is not None and number % 3 == 1:
                run.gateway.end()
                run.gateway.start()
                run.progresses(1)
            writer.enough.wait(random.random() / 2)
            run.kill()
    run.start()
    run.caught_up()
    run.kill(signal.SIGTERM)


def check(run: Run) -> int:
    """Check exactly-once, order and rows; changes before the first published one are in the snapshot's rows. Return the
    number of changes."""
    changes, state = published(run)
    truth = list(logged(run.server))
    assert len(changes) > 50
    assert changes == truth[-len(changes) :]
    must_equal({key: row["v"] for key, row in state.items()}, {key: row["v"] for key, row in run.rows().items()})
    return len(changes)


def must_equal(found: dict[int, Any], wanted: dict[int, Any]) -> None:
    """Raise AssertionError with some of the differences; pytest would compare the texts of all rows."""
    different = {key: (found.get(key), wanted.get(key)) for key in found.keys() | wanted.keys()}
    different = {key: both for key, both in different.items() if both[0] != both[1]}
    assert not different, f"{len(different)} rows differ, as {dict(sorted(different.items())[:5])}"
