"""A test's database on a real PostgreSQL, captured into a log in memory by sessions in a thread."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import orjson
import psycopg

from cdc.model.errors import Retriable
from cdc.model.naming import TRUNCATE_KEY, change_topic, history_topic, schemas_topic
from cdc.model.schema import TableId
from cdc.topology.reader import read_topology
from cdc.topology.topology import Source, Topology
from ingest.capture.groups import Limits
from ingest.capture.observer import Observer
from ingest.capture.session import Session
from ingest.log.memory_log import Broker, MemoryLog
from ingest.postgres.messages import lsn_of
from ingest.records.capture_interfaces import Checkpoint, Record
from ingest.records.records import Recorder
from ingest.run_capture import tables_of
from ingest.sources import server_of
from tests.support.pg_servers import PgServer
from tests.support.waiting import wait_for

Row = dict[str, Any]


class DyingLog(MemoryLog):
    """A log whose process dies at its n-th commit: uncommitted records are lost, as with kill -9."""

    def __init__(self, captured: PgCaptured, dies_at: int) -> None:
        super().__init__(captured.broker, schemas_topic(captured.name), history_topic(captured.name))
        self._left = dies_at

    def commit(self, checkpoint: Checkpoint) -> None:
        self._left -= 1
        if self._left == 0:
            raise KilledError
        super().commit(checkpoint)


class KilledError(Exception):
    """The process was killed."""


@dataclass
class Phases(Observer):
    """Collects the reports of the sessions."""

    said: list[str] = field(default_factory=list)

    def phase(self, what: str, **details: object) -> None:
        self.said.append(what)


@dataclass
class PgCaptured:
    """A captured database, and helpers to inspect it."""

    server: PgServer
    name: str
    topology: Topology
    broker: Broker = field(default_factory=Broker)
    phases: Phases = field(default_factory=Phases)
    failed: BaseException | None = None
    retried: list[str] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    @property
    def source(self) -> Source:
        """Return the source that sessions capture."""
        return self.topology.sources["shop"]

    def sql(self, *statements: str, values: Any = None) -> list[tuple[Any, ...]]:
        """Run statements as the owner, each in its own transaction; return the rows of the last one."""
        rows: list[tuple[Any, ...]] = []
        with self.server.session(self.name) as connection:
            for statement in statements:
                cursor = connection.execute(statement, values)
                rows = cursor.fetchall() if cursor.description else []
        return rows

    def connect(self, *, autocommit: bool = True) -> Any:
        return self.server.session(self.name, autocommit=autocommit)

    def start(self, *, limits: Limits | None = None, dies_at: int = 0, once: bool = False) -> None:
        """Run sessions one after another, as `ingest.run_capture.capture` does; `dies_at` is a commit."""
        self._stop.clear()
        self.failed = None
        source = self.source

        def run() -> None:
            while not self._stop.is_set():
                session = Session(
                    source=server_of(self.name, source), log=DyingLog(self, dies_at),
                    recorder=Recorder(self.name, source.type, unrepresentable=source.unrepresentable),
                    tables=tables_of(source), mode=source.snapshot_mode,
                    clock=time.time, stopped=self._stop.is_set, observer=self.phases, cascades="ignore",
                    limits=limits or Limits(), position_lost=source.position_lost, dumps=source.dumps,
                )  # fmt: skip
                try:
                    session.run()
                    return
                except Retriable as error:
                    self.retried.append(str(error))
                    if once:
                        self.failed = error
                        return
                    self._stop.wait(min(error.retry_after, 0.3))
                except BaseException as error:  # noqa: BLE001  # looked at by the test's own thread
                    self.failed = error
                    return

        self._thread = threading.Thread(target=run, name="captured")
        self._thread.start()

    def stop(self) -> None:
        """Stop the sessions cleanly."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(30)
            assert not self._thread.is_alive()

    def ended(self, seconds: float = 60) -> BaseException | None:
        """Wait until the sessions end by themselves; return the reason."""
        assert self._thread is not None
        self._thread.join(seconds)
        assert not self._thread.is_alive(), self.phases.said
        return self.failed

    @property
    def checkpoint(self) -> Checkpoint | None:
        return self.broker.checkpoints[-1] if self.broker.checkpoints else None

    def caught_up(self, seconds: float = 60) -> None:
        """Wait until all present commits are in the log, and no row is being read or held."""
        ((end,),) = self.sql("SELECT pg_current_wal_insert_lsn()::text")
        self.sql("SELECT pg_logical_emit_message(true, 'test', '')")

        def reached() -> bool:
            if self.failed is not None:
                raise self.failed
            found = self.checkpoint
            rest = found.state if found else {}
            return (
                found is not None and found.snapshot == "done" and found.position.pos >= lsn_of(end)
                and found.open is None and not rest.get("snapshots") and not rest.get("mends")
            )  # fmt: skip

        wait_for(reached, f"the capture does not reach {end}: {self.checkpoint}, {self.retried[-2:]}", seconds=seconds)

    def topic(self, table: str, schema: str = "public") -> str:
        return change_topic(self.name, TableId(source="shop", database=schema, table=table))

    def records(self, table: str, schema: str = "public") -> list[Record]:
        return [record for record in self.broker.records if record.topic == self.topic(table, schema)]

    def events(self, table: str, schema: str = "public") -> list[Row]:
        """Return the envelopes of a table's changes in log order."""
        found = [json.loads(r.value) for r in self.records(table, schema) if r.value is not None]
        return [event for event in found if event["op"] != "r"]

    def state(self, table: str, schema: str = "public") -> dict[bytes, Row]:
        """Return a reader's rows at the topic's end, by key; snapshot rows are ordered by sequence."""
        rows: dict[bytes, tuple[int, Row | None]] = {}
        for record in self.records(table, schema):
            if record.value is None:
                continue
            event = orjson.loads(record.value)
            number = event["source"]["sequence"]
            if record.key == TRUNCATE_KEY:
                rows = {key: found for key, found in rows.items() if found[0] >= number}
            elif record.key not in rows or number >= rows[record.key][0]:
                rows[record.key] = number, event["after"]
        return {key: row for key, (_, row) in rows.items() if row is not None}

    def dead_letters(self) -> list[Row]:
        return [orjson.loads(r.value) for r in self.broker.records if r.topic.endswith(".deadletters") and r.value]

    def slot(self) -> str:
        return f"tailorbird_{self.name}_shop"

    def close(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join(30)
        with self.server.session() as connection:
            deadline = time.monotonic() + 10
            while time.monotonic() < deadline:
                try:
                    connection.execute(
                        "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = %s",
                        (self.name,),
                    )
                    break
                except psycopg.errors.ObjectInUse:
                    time.sleep(0.05)
            connection.execute(f"DROP DATABASE {self.name} WITH (FORCE)")


def topology_text(server: PgServer, name: str, tables: str, extra: str = "") -> str:
    """Return a topology that captures tables of the test's database."""
    return (
        f"name: {name}\nsources:\n  shop: {{type: postgresql, hostname: 127.0.0.1, port: {server.port}, username: cdc, "
        f"password: cdc, dbname: {name}, tables: {tables}{extra}}}\n"
        "tables:\n  wide: {query: SELECT a.id FROM shop.t a, row_key: [id]}\n"
    )


def captured(server: PgServer, name: str, tables: str = "[t]", extra: str = "") -> PgCaptured:
    """Create an empty database and its capture."""
    with server.session() as connection:
        connection.execute(f"CREATE DATABASE {name} OWNER app")
    return PgCaptured(
        server, name, read_topology(topology_text(server, name, tables, extra), file=f"{name}.yml", environ={})
    )


Capture = Callable[..., PgCaptured]
