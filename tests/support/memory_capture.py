"""Capture a real server into a log in memory, and read its topics without Kafka."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import orjson

from cdc.model.naming import TRUNCATE_KEY, change_topic, history_topic, schemas_topic
from cdc.model.schema import Column, TableId, TableSchema, schema_from_json
from cdc.topology.reader import read_topology
from cdc.topology.topology import Source, Topology
from ingest.capture.groups import Limits
from ingest.capture.observer import Observer
from ingest.capture.session import Session
from ingest.log.memory_log import Broker, MemoryLog
from ingest.records.records import Recorder
from ingest.run_capture import phases_of, tables_of
from ingest.sources import server_of
from joins.query.convert import Unfit, fit_of
from tests.ingest.binlog.binlog_servers import Server
from tests.support.waiting import wait_for

Row = dict[str, Any]
NAME = "memory"


def topology_of(
    server: Server, database: str, tables: str = "[]", *, policy: str = "accept", server_id: int = 9201, more: str = ""
) -> Topology:
    """Return a topology of one source, `shop`, over a database of the server; `tables` is YAML."""
    kind = "mariadb" if server.maria else "mysql"
    name = orjson.dumps(database).decode()
    return read_topology(
        f"name: {NAME}\nsources:\n  shop: {{type: {kind}, hostname: 127.0.0.1, port: {server.port}, username: cdc, "
        f"password: cdc, database: {name}, filter_policy: {policy}, tables: {tables}, server_id: {server_id}{more}}}\n"
        "tables:\n  wide: {query: SELECT a.id FROM shop.t a, row_key: [id]}\n",
        file="memory.yml",
        environ={},
    )


class SessionReports(Observer):
    """Remembers the reports of a session."""

    def __init__(self) -> None:
        self.phases: list[tuple[str, Mapping[str, object]]] = []

    def phase(self, what: str, **details: object) -> None:
        """See `Observer`."""
        self.phases.append((what, details))


@dataclass
class MemoryCapture:
    """Sessions of one source over one broker, each in a thread; `check` raises the error that ended a session."""

    topology: Topology
    broker: Broker = field(default_factory=Broker)
    heard: SessionReports = field(default_factory=SessionReports)
    failed: BaseException | None = None
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    @property
    def source(self) -> Source:
        """The only source."""
        (source,) = self.topology.sources.values()
        return source

    def start(self) -> None:
        """Start a session."""
        self._stop.clear()
        self._thread = threading.Thread(target=self._run, name="capture", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop the session; raise the error that ended it before."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(60)
        self.check()

    def check(self) -> None:
        """Raise the error that ended the session."""
        if self.failed is not None:
            raise self.failed

    def _run(self) -> None:
        try:
            Session(
                source=server_of(NAME, self.source),
                log=MemoryLog(self.broker, schemas_topic(NAME), history_topic(NAME)),
                recorder=Recorder(NAME, self.source.type, phases=phases_of(self.source)),
                tables=tables_of(self.source),
                mode="initial",
                clock=time.time,
                stopped=self._stop.is_set,
                observer=self.heard,
                limits=Limits(ask=0.2),
                parallel=4,
            ).run()
        except BaseException as error:  # noqa: BLE001  # raised by the test's own thread: `check`
            self.failed = error

    def caught_up(self, server: Server) -> None:
        """Wait until everything that the server has logged is committed, and no table is being re-read."""
        with server.session() as connected, connected.cursor() as cursor:
            variable = "gtid_binlog_pos" if server.maria else "gtid_executed"
            cursor.execute(f"SELECT @@GLOBAL.{variable}")
            (wanted,) = cursor.fetchone()

            def reached() -> bool:
                self.check()
                if not self.broker.checkpoints:
                    return False
                newest = self.broker.checkpoints[-1]
                if (
                    newest.snapshot != "done"
                    or newest.state.get("snapshots")
                    or {*newest.state.get("mends", ())} - {"relations"}
                ):
                    return False
                if server.maria:
                    return bool(newest.position.gtid_set == wanted)
                cursor.execute("SELECT GTID_SUBTRACT(%s, %s)", (wanted, newest.position.gtid_set))
                return bool(cursor.fetchone()[0] == "")

            try:
                wait_for(reached, "the capture does not catch up", seconds=120)
            except AssertionError as error:
                raise AssertionError(f"{error}: {self.broker.checkpoints[-1:]}, {self.heard.phases[-5:]}") from error

    def table(self, name: str, database: str | None = None) -> TableId:
        """Return the id of a table of the source."""
        return TableId(source="shop", database=database or self.source.database, table=name)

    def schema(self, table: TableId) -> TableSchema:
        """Return the newest published schema of a table."""
        found = [
            schema_from_json(orjson.loads(record.value))
            for record in list(self.broker.records)
            if record.topic == schemas_topic(NAME) and record.value is not None
        ]
        return [schema for schema in found if schema.table_id == table][-1]

    def folded(self, table: TableId) -> dict[bytes, Row]:
        """Return a reader's rows at the end of the topic, by their records' keys, as they were published."""
        rows: dict[bytes, tuple[int, Row]] = {}
        for record in list(self.broker.records):
            if record.topic != change_topic(NAME, table) or record.value is None:
                continue
            event = orjson.loads(record.value)
            number = event["source"]["sequence"]
            if record.key == TRUNCATE_KEY:
                rows = {key: row for key, row in rows.items() if row[0] >= number}
            elif event["after"] is None:
                rows.pop(record.key, None)
            else:
                rows[record.key] = number, event["after"]
        return {key: row for key, (_, row) in rows.items()}

    def read(self, table: TableId) -> list[tuple[Any, ...]]:
        """Return the same rows as a join reads them, in the types of the newest schema, sorted."""
        schema = self.schema(table)
        rows = [tuple(_read(row, column) for column in schema.columns) for row in self.folded(table).values()]
        return sorted(rows, key=repr)


def _read(row: Row, column: Column) -> Any:
    try:
        return fit_of(column.type)(row.get(column.name, column.default))
    except Unfit:
        return ("unfit", row.get(column.name))


@contextmanager
def captured(topology: Topology, server: Server) -> Iterator[MemoryCapture]:
    """Start a capture and wait until it has read all rows of the server."""
    capture = MemoryCapture(topology)
    capture.start()
    try:
        capture.caught_up(server)
        yield capture
        capture.stop()
    finally:
        capture._stop.set()
