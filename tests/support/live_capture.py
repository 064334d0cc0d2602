"""Capture a real MySQL or MariaDB server into a log in memory, in a thread of the test: no Kafka, no processes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from cdc.model.errors import Retriable
from cdc.model.naming import TRUNCATE_KEY, change_topic, history_topic, schemas_topic
from cdc.model.schema import TableId
from cdc.topology.reader import read_topology
from cdc.topology.topology import Source
from ingest.capture.groups import Limits
from ingest.capture.observer import Observer
from ingest.capture.session import Session
from ingest.events.left_out import left_out_of
from ingest.log.memory_log import Broker, MemoryLog
from ingest.mysql.mysql_source import MySqlSource
from ingest.records.records import Recorder
from ingest.run_capture import phases_of, tables_of
from tests.support.waiting import wait_for

TOPOLOGY = """
name: live
sources:
  s: {{type: {type}, hostname: 127.0.0.1, port: {port}, username: {user}, password: cdc, database: {database},
    tables: [{tables}], server_id: {server_id}{extra}}}
log: {{bootstrap_servers: '127.0.0.1:1'}}
tables:
  wide: {{query: SELECT a.id FROM s.{first} a, row_key: [id]}}
"""


class SessionReports(Observer):
    """Keeps the reports of a session."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def phase(self, what: str, **details: object) -> None:
        self.lines.append(f"{what} {details}")

    def waits(self, tables: Mapping[str, str]) -> None:
        self.lines += [f"waits {table}: {why}" for table, why in tables.items()]


@dataclass
class LiveCapture:
    """A capture that can be started and stopped any number of times; committed records stay in `broker`."""

    server: Any  # tests.ingest.binlog.binlog_servers.Server
    database: str
    tables: tuple[str, ...]
    extra: str = ""
    user: str = "cdc"
    broker: Broker = field(default_factory=Broker)
    reported: SessionReports = field(default_factory=SessionReports)
    failed: list[BaseException] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    @property
    def source(self) -> Source:
        text = TOPOLOGY.format(
            type="mariadb" if self.server.maria else "mysql", port=self.server.port, database=self.database,
            tables=", ".join(self.tables), first=self.tables[0], extra=self.extra, user=self.user,
            server_id=7000 + threading.get_native_id() % 50_000,
        )  # fmt: skip
        return read_topology(text, file="live.yml", environ={}).sources["s"]

    def sql(self, *statements: str) -> list[tuple[Any, ...]]:
        """Run statements, each in its own transaction; return the rows of the last one."""
        rows: list[tuple[Any, ...]] = []
        with self.server.session(database=self.database) as connection, connection.cursor() as cursor:
            cursor.execute("SET time_zone = '+00:00'")
            for statement in statements:
                cursor.execute(statement)
                rows = list(cursor.fetchall())
        return rows

    def start(self) -> LiveCapture:
        """Capture until `stop`, session after session."""
        self._stop.clear()
        source = self.source

        def run() -> None:
            while not self._stop.is_set():
                try:
                    self._session(source)
                except Retriable:
                    time.sleep(0.1)
                except BaseException as error:  # noqa: BLE001  # told to the test, which fails by it
                    self.failed.append(error)
                    return

        self._thread = threading.Thread(target=run, daemon=True)
        self._thread.start()
        return self

    def _session(self, source: Source) -> None:
        Session(
            source=MySqlSource(source),
            log=MemoryLog(self.broker, schemas_topic("live"), history_topic("live")),
            recorder=Recorder("live", source.type, unrepresentable=source.unrepresentable, phases=phases_of(source)),
            tables=tables_of(source),
            mode="initial",
            clock=time.time,
            stopped=self._stop.is_set,
            observer=self.reported,
            limits=Limits(idle_commit=0.05, ask=1.0),
        ).run()

    def session(self) -> None:
        """Run a session in this thread, until it fails."""
        self._session(self.source)

    def stop(self) -> None:
        """Stop it between two transactions."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(60)
        assert not self.failed, self.failed

    def state(self) -> dict[str, Any]:
        """Return the newest committed state."""
        return dict(self.broker.checkpoints[-1].state) if self.broker.checkpoints else {}

    def left_out(self) -> set[str]:
        """Return the tables that the newest position lists as left out."""
        return {name.rpartition(".")[2] for name in left_out_of(self.state())}

    def rows(self, table: str) -> list[dict[str, Any]]:
        """Return the rows of a table's topic as any reader folds it: markers delete what is older."""
        topic = change_topic("live", TableId(source="s", database=self.database, table=table))
        held: dict[bytes, tuple[int, Any]] = {}
        for record in list(self.broker.records):
            if record.topic != topic or record.value is None:
                continue
            event = orjson.loads(record.value)
            number = event["source"]["sequence"]
            if record.key == TRUNCATE_KEY:
                held = {key: row for key, row in held.items() if row[0] >= number}
            else:
                held[record.key] = (number, event["after"])
        return sorted((row for _, row in held.values() if row is not None), key=lambda row: str(list(row.values())))

    def wait(self, condition: Callable[[], bool], otherwise: str) -> None:
        """Wait until a condition holds; fail the test if the capture has ended."""

        def holds() -> bool:
            assert not self.failed, self.failed
            return condition()

        wait_for(holds, otherwise)

    def wait_rows(self, table: str, wanted: list[dict[str, Any]]) -> None:
        """Wait until a table's topic has these rows."""
        try:
            self.wait(lambda: self.rows(table) == wanted, "rows differ")
        except AssertionError as error:
            raise AssertionError(f"{table}: {self.rows(table)}, not {wanted}; {self.reported.lines[-8:]}") from error

    def wait_quiet(self) -> None:
        """Wait until no table has rows left to read."""
        self.wait(
            lambda: not self.state().get("snapshots") and not self.state().get("mends"), "it does not stop reading"
        )


def live(server: Any, database: str, *tables: str, extra: str = "", user: str = "cdc") -> LiveCapture:
    """Start a capture of tables of a new, empty database."""
    with server.session() as connection, connection.cursor() as cursor:
        cursor.execute(f"DROP DATABASE IF EXISTS {database}")
        cursor.execute(f"CREATE DATABASE {database} DEFAULT CHARSET utf8mb4")
    return LiveCapture(server, database, tables, extra, user)
