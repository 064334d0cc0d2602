"""Capture a real MySQL or MariaDB server in this process, over a log in memory: it can be killed at any record."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import orjson

from cdc.model.errors import Retriable
from cdc.model.naming import change_topic, history_topic, schemas_topic
from cdc.model.schema import TableId
from cdc.process.file_topology import load_topology
from cdc.topology.topology import Source
from ingest.binlog.format.gtid import covers, parse_gtid_set
from ingest.capture.groups import Limits
from ingest.capture.observer import Observer
from ingest.capture.session import Session
from ingest.log.memory_log import Broker, MemoryLog
from ingest.mysql.mysql_log_start import log_start
from ingest.mysql.mysql_source import MySqlSource
from ingest.records.capture_interfaces import Checkpoint, Record
from ingest.records.exact_phases import ExactPhases
from ingest.records.records import Recorder
from ingest.run_capture import tables_of
from tests.ingest.binlog.binlog_servers import Server
from tests.support.waiting import wait_for


class Phases(Observer):
    """Collects what a capture reports: (what, details)."""

    def __init__(self) -> None:
        self.said: list[tuple[str, dict[str, object]]] = []

    def phase(self, what: str, **details: object) -> None:
        self.said.append((what, details))


class KilledError(Retriable):
    """The process is killed here; the next one starts at once."""


class MortalLog(MemoryLog):
    """A log whose process dies at the `fuse`-th record from now (None: never), or at the commit that follows it."""

    def __init__(self, broker: Broker, capture: MemoryCapture) -> None:
        super().__init__(broker, schemas_topic("top"), history_topic("top"))
        self._capture = capture

    def append(self, record: Record) -> None:
        super().append(record)
        self._capture.burn("while a record is appended")

    def commit(self, checkpoint: Checkpoint) -> None:
        self._capture.burn("before a commit")
        super().commit(checkpoint)
        self._capture.burn("after a commit")


@dataclass
class MemoryCapture:
    """Captures tables of one database, session after session, in a thread; `kills` counts its deaths."""

    server: Server
    folder: Path
    database: str
    tables: tuple[str, ...]
    extra: str = ""
    limits: Limits = field(default_factory=lambda: Limits(rows=50, linger=0.02, idle_commit=0.05, largest=20))
    broker: Broker = field(default_factory=Broker)
    phases: Phases = field(default_factory=Phases)
    begin: str = ""
    kills: int = 0
    failed: BaseException | None = None
    _fuse: int | None = None
    _thread: threading.Thread | None = None
    _stop: threading.Event = field(default_factory=threading.Event)

    def source(self) -> Source:
        """The source's settings."""
        kind = "mariadb" if self.server.maria else "mysql"
        file = self.folder / "memory.yml"
        file.write_text(
            f"name: top\nsources:\n  s: {{type: {kind}, hostname: 127.0.0.1, port: {self.server.port}, "
            f"username: cdc, password: cdc, database: {self.database}, tables: [{', '.join(self.tables)}], "
            f"server_id: 9321{self.extra}}}\nlog: {{bootstrap_servers: 'nowhere:1'}}\n"
            f"tables:\n  wide: {{query: SELECT a.id FROM s.{self.tables[0]} a, row_key: [id]}}\n"
        )
        return load_topology(str(file)).sources["s"]

    def kill(self, records: int) -> None:
        """Die after a number of further records or commits."""
        self._fuse = records

    def burn(self, where: str) -> None:
        """Count down the fuse by one; raise Killed at its end."""
        if self._fuse is not None:
            self._fuse -= 1
            if self._fuse < 0:
                self._fuse = None
                self.kills += 1
                raise KilledError(where)

    def start(self) -> None:
        """Start to capture."""
        self._stop.clear()
        source = self.source()
        self._thread = threading.Thread(target=self._sessions, args=(source,), name="capture", daemon=True)
        self._thread.start()

    def _sessions(self, source: Source) -> None:
        try:
            while not self._stop.is_set():
                try:
                    self._session(source).run()
                except Retriable as error:
                    if not isinstance(error, KilledError):
                        time.sleep(0.05)
        except BaseException as error:  # checked in the test's own thread
            self.failed = error
            raise

    def _session(self, source: Source) -> Session:
        return Session(
            source=MySqlSource(source),
            log=MortalLog(self.broker, self),
            recorder=Recorder("top", phases=ExactPhases(lambda table: "")),
            tables=tables_of(source),
            mode=source.snapshot_mode,
            clock=time.time,
            stopped=self._stop.is_set,
            observer=self.phases,
            limits=self.limits,
            start=partial(log_start, source, self.begin, self._stop.is_set) if self.begin else None,
        )

    def stop(self) -> None:
        """Stop cleanly."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(30)
            assert not self._thread.is_alive(), "the capture does not end"

    def caught_up(self) -> None:
        """Wait until the committed position is the server's, with every table read."""
        with self.server.session() as connected, connected.cursor() as cursor:
            cursor.execute(f"SELECT @@GLOBAL.{'gtid_binlog_pos' if self.server.maria else 'gtid_executed'}")
            wanted = parse_gtid_set(str(cursor.fetchone()[0]).replace("\n", ""))

        def reached() -> bool:
            assert self.failed is None, self.failed
            if not self.broker.checkpoints:
                return False
            newest = self.broker.checkpoints[-1]
            waits = newest.state.get("snapshots") or newest.state.get("mends")
            if newest.open is not None or waits or newest.snapshot != "done" or not newest.position.gtid_set:
                return False
            return covers(parse_gtid_set(newest.position.gtid_set), wanted)

        wait_for(reached, "the capture does not catch up", seconds=60)

    def events(self, table: str) -> list[dict[str, Any]]:
        """Return all change events of a table, in order."""
        topic = change_topic("top", TableId(source="s", database=self.database, table=table))
        return [orjson.loads(r.value) for r in self.broker.records if r.topic == topic and r.value is not None]

    def rows(self, table: str) -> dict[Any, dict[str, Any]]:
        """Return the rows that a reader of the topic ends with, by id; a marker deletes the rows older than it."""
        rows: dict[Any, tuple[int, dict[str, Any]]] = {}
        for event in self.events(table):
            before, after, number = event["before"], event["after"], event["source"]["sequence"]
            if event["op"] == "t":
                rows = {key: row for key, row in rows.items() if row[0] >= number}
            elif after is None:
                rows.pop(before["id"], None)
            else:
                rows[after["id"]] = number, after
        return {key: row for key, (_, row) in rows.items()}

    def held(self, table: str) -> dict[Any, dict[str, Any]]:
        """Return the same from the table itself."""
        with self.server.session(database=self.database) as connected, connected.cursor() as cursor:
            cursor.execute(f"SELECT * FROM {table}")
            names = [column[0] for column in cursor.description]
            return {row[0]: dict(zip(names, row, strict=True)) for row in cursor.fetchall()}
