"""Databases that are polled through SQLAlchemy, by sessions into a log in memory."""

from __future__ import annotations

import itertools
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol
from unittest.mock import patch

import orjson

from cdc.model.naming import TRUNCATE_KEY, change_topic, schemas_topic
from cdc.model.polling import Poll
from cdc.model.schema import TableId
from cdc.topology.reader import read_topology
from cdc.topology.topology import Source, Topology
from ingest.capture.observer import Observer
from ingest.capture.signals import Signal, signal_of
from ingest.log.memory_log import Broker, MemoryLog
from ingest.poll.run_poll import poll
from ingest.poll.sql_reader import SqlReader, sql_reader
from ingest.records.capture_interfaces import Checkpoint, Record
from tests.support.pg_servers import PgServer

# Names of the same types in different databases.
_WORDS = {
    "sqlite": {"TIME6": "DATETIME", "BYTES": "BLOB", "REAL8": "FLOAT", "HEX": "x'00ff'"},
    "postgresql": {"TIME6": "TIMESTAMP(6)", "BYTES": "BYTEA", "REAL8": "DOUBLE PRECISION", "HEX": r"'\x00ff'"},
}


class PolledDatabase(Protocol):
    """A database; `schema` contains its tables."""

    dialect: str
    schema: str
    url: str

    def run(self, *sql: str) -> list[tuple[Any, ...]]:
        """Run statements, each in its own transaction; return the rows of the last one."""


class PolledSqlite:
    """A SQLite file."""

    dialect, schema = "sqlite", "main"

    def __init__(self, file: Path) -> None:
        self._file, self.url = file, f"sqlite:///{file}"

    def run(self, *sql: str) -> list[tuple[Any, ...]]:
        rows: list[tuple[Any, ...]] = []
        connection = sqlite3.connect(self._file, isolation_level=None)
        for statement in sql:
            rows = connection.execute(spelt(statement, self.dialect)).fetchall()
        connection.close()
        return rows


class PolledPostgres:
    """A database of a real server."""

    dialect, schema = "postgresql", "public"

    def __init__(self, server: PgServer, name: str) -> None:
        self._server, self._name, self.name = server, name, name
        self.url = f"postgresql+psycopg://app:app@127.0.0.1:{server.port}/{name}"
        with server.session() as connection:
            connection.execute(f"CREATE DATABASE {name} OWNER app")

    def run(self, *sql: str) -> list[tuple[Any, ...]]:
        rows: list[tuple[Any, ...]] = []
        with self._server.session(self._name) as connection:
            for statement in sql:
                cursor = connection.execute(spelt(statement, self.dialect))
                rows = cursor.fetchall() if cursor.description else []
        return rows

    def close(self) -> None:
        with self._server.session() as connection:
            connection.execute(f"DROP DATABASE {self._name} WITH (FORCE)")


def spelt(sql: str, dialect: str) -> str:
    """Replace the type names of `_WORDS` in SQL by those of a database."""
    for word, meant in _WORDS[dialect].items():
        sql = sql.replace(word, meant)
    return sql


class PollKilledError(Exception):
    """The process was killed."""


class _DyingLog(MemoryLog):
    def __init__(self, broker: Broker, name: str, dies_at: int) -> None:
        super().__init__(broker, schemas_topic(name))
        self._left = dies_at

    def commit(self, checkpoint: Checkpoint) -> None:
        self._left -= 1
        if self._left == 0:
            raise PollKilledError
        super().commit(checkpoint)


@dataclass
class PollReports(Observer):
    """Collects the reports of sessions."""

    said: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)

    def phase(self, what: str, **details: object) -> None:
        self.said.append((what, details))

    def of(self, what: str) -> list[Mapping[str, Any]]:
        return [details for said, details in self.said if said == what]


@dataclass
class PolledTable:
    """Table `t` of a database, polled; `signals` are all signals that were ever sent."""

    database: PolledDatabase
    topology: Topology
    broker: Broker = field(default_factory=Broker)
    reported: PollReports = field(default_factory=PollReports)
    signals: list[Signal] = field(default_factory=list)

    def read(self, start: int | None) -> tuple[list[Signal], int | None]:
        """See `signals.Signals`."""
        start = len(self.signals) if start is None else start
        return self.signals[start:], len(self.signals)

    def send(self, kind: str, where: str = "", table: str = "t", **data: Any) -> None:
        """Send a signal about a table."""
        name = f"{self.database.schema}.{table}"
        said: dict[str, Any] = {"data-collections": [name], **data}
        if where:
            said["additional-conditions"] = [{"data-collection": name, "filter": where}]
        self.signals.append(signal_of({"type": kind, "data": said}))

    def run(self, cycles: int = 3, dies_at: int = 0, each: Callable[[], object] = lambda: None) -> None:
        """Run a session of at least so many turns, until no dump is running; call `each` after every turn.

        Its clock advances by more than an interval at each look, so that a turn has one page of every dump.
        """
        source, left, looks = self.source, [cycles], itertools.count()
        assert source.poll is not None

        def wait(seconds: float) -> None:
            left[0] -= 1
            assert left[0] > -5000, "a dump does not end"
            each()

        with patch("ingest.poll.run_poll._steady_clock", lambda: lambda: time.time() + 0.02 * next(looks)):
            poll(
                self.topology, source, source.poll, _DyingLog(self.broker, self.topology.name, dies_at),
                observer=self.reported, stopped=lambda: left[0] <= 0 and not self.state.get("snapshots"), wait=wait,
                signals=self,
            )  # fmt: skip

    @property
    def source(self) -> Source:
        return self.topology.sources["s"]

    @property
    def state(self) -> Mapping[str, Any]:
        """Return the committed polling state."""
        return self.broker.checkpoints[-1].state if self.broker.checkpoints else {}

    @property
    def table_id(self) -> TableId:
        return self.source.tables[0]

    def records(self) -> list[Record]:
        topic = change_topic(self.topology.name, self.table_id)
        return [record for record in self.broker.records if record.topic == topic]

    def events(self) -> list[dict[str, Any]]:
        """Return all published rows, in order."""
        return [orjson.loads(r.value) for r in self.records() if r.value and r.key != TRUNCATE_KEY]

    def rows(self) -> list[dict[str, Any]]:
        """Return the rows of a reader that keeps the greatest number of each key, and applies markers."""
        found: dict[bytes, tuple[int, dict[str, Any]]] = {}
        for record in self.records():
            assert record.value is not None
            event = orjson.loads(record.value)
            number = event["source"]["sequence"]
            if record.key == TRUNCATE_KEY:
                found = {key: row for key, row in found.items() if row[0] >= number}
            elif record.key not in found or number > found[record.key][0]:
                found[record.key] = number, event["after"]
        return [row for _, row in found.values()]

    @contextmanager
    def reading(self) -> Iterator[tuple[SqlReader, Source, Poll]]:
        assert self.source.poll is not None
        with sql_reader(self.source, self.source.poll) as reader:
            yield reader, self.source, self.source.poll


def polled_table(database: PolledDatabase, extra: str = "", *, tables: str = "[t]", limit: int = 3) -> PolledTable:
    """Poll `t`; `extra` are more keys of the source."""
    text = (
        f"name: top\nsources:\n  s: {{type: sql, capture: poll, url: '{database.url}', database: {database.schema}, "
        f"tables: {tables}, limit: {limit}, interval: 10ms{extra}}}\n"
        "tables:\n  t: {query: SELECT t.id FROM s.t t, row_key: [id]}\n"
    )
    return PolledTable(database, read_topology(text, file="top.yml", environ={}))
