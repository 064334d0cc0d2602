"""A MaxScale as a source, over real sockets: our own server acts as one, or a recorded MaxScale is replayed."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import orjson
import pytest

from cdc.model.errors import Fatal, TopologyError, UsageError
from cdc.model.event import Position
from cdc.model.filters import TableRule
from cdc.model.naming import change_topic, dead_letter_topic, history_topic, schemas_topic
from cdc.model.schema import TableId
from cdc.topology.reader import read_topology
from cdc.topology.topology import Topology
from ingest.binlog.format.canonical import Unrepresentable
from ingest.capture.signals import ClosableSignals, Signal
from ingest.ddl.dialect import Dialect
from ingest.events.log_events import RefusedImage, RowsLogged
from ingest.events.tables import Tables
from ingest.log.memory_log import Broker, MemoryLog
from ingest.maxscale.upstream import UpstreamEvents, UpstreamLine
from ingest.maxscale.upstream_values import reads_reported
from ingest.records.capture_interfaces import Checkpoint, OpenLog, PositionLost, Record
from ingest.run_capture import capture
from tests.support.cdc_recorded import recorded
from tests.support.cdc_served import MaxScaleServer, served
from tests.support.changes_made import MemoryChanges, SourceLog, schema_of

TABLE = TableId(source="old", database="d", table="t")


class MortalLog(MemoryLog):
    """The log in memory, as a session opens it; it dies at the commit that is configured as its last."""

    commits = -1

    def ensure_topic(self, name: str) -> None: ...

    def close(self) -> None:
        self.abort()

    def commit(self, checkpoint: Checkpoint) -> None:
        if MortalLog.commits == 0:
            raise KilledAtCommitError
        MortalLog.commits -= 1
        super().commit(checkpoint)


class KilledAtCommitError(Exception):
    """Represents kill -9."""


class ReplayedServer:
    """Replays a server's answers, in turn, to every client that sends the recorded requests."""

    def __init__(self, said: list[tuple[str, bytes]]) -> None:
        self.said, self._listening = said, socket.create_server(("127.0.0.1", 0))
        self.address: tuple[str, int] = self._listening.getsockname()
        self._thread = threading.Thread(target=self._serve, name="replayed")
        self._thread.start()

    def _serve(self) -> None:
        with contextlib.ExitStack() as stack:
            while True:
                client, _ = self._listening.accept()
                stack.enter_context(client)
                for who, data in self.said:
                    if who == "<":
                        client.sendall(data)
                    elif client.recv(len(data), socket.MSG_WAITALL) != data:
                        return

    def end(self) -> None:
        with socket.create_connection(self.address) as last:
            last.sendall(self.said[0][1].upper())
        self._thread.join(20)
        self._listening.close()


@pytest.fixture
def maxscale() -> Iterator[ReplayedServer]:
    """A recorded MaxScale 24.02 that sends a table."""
    server = ReplayedServer(recorded(Path(__file__).parents[2] / "cases" / "maxscale" / "maxscale-24.02.case"))
    yield server
    server.end()


class NoSignals:
    """Signals that never arrive."""

    def read(self, start: int | None) -> tuple[list[Signal], int | None]:
        return [], start

    def close(self) -> None: ...


def topology(server: MaxScaleServer | ReplayedServer, password: str = "foopasswd", **more: Any) -> Topology:
    host, port = server.address
    rest = "".join(f", {name}: {value}" for name, value in more.items())
    text = (
        f"name: top\nsources:\n  old: {{type: maxscale, hostname: {host}, port: {port}, username: foobar, "
        f"password: {password}, database: d, tables: {{t: {{message_key_columns: [id]}}}}{rest}}}\n"
        "tables:\n  w: {query: SELECT t.id FROM old.t t, row_key: [id]}\n"
    )
    return read_topology(text, file="top.yml", environ={})


def run(top: Topology, broker: Broker, wanted: int) -> list[dict[str, Any]]:
    """Capture until so many changes are committed; return the envelopes."""

    class Into:
        def open(self) -> tuple[OpenLog, ClosableSignals]:
            return MortalLog(broker, schemas_topic("top"), history_topic("top")), NoSignals()

    waits = threading.Event()
    capture(
        top,
        top.sources["old"],
        log=Into(),
        stopped=lambda: len(reported(broker)) >= wanted,
        wait=lambda s: waits.wait(0.01),
    )
    return reported(broker)


def reported(broker: Broker) -> list[dict[str, Any]]:
    records: list[Record] = list(broker.records)
    return [orjson.loads(r.value) for r in records if r.topic == change_topic("top", TABLE) and r.value]


def began(log: MemoryChanges) -> SourceLog:
    """Create a table."""
    source = SourceLog(log)
    source.columns(schema_of(name="varchar(20)", at="datetime(6)", raw="blob"))
    return source


def report(source: SourceLog, first: int, last: int) -> None:
    """Append snapshot rows among changes of every kind, over two schemas."""
    random = Random(first)
    for number in range(first, last):
        if number == 40:
            source.columns(schema_of(version=2, name="varchar(20)", at="datetime(6)", raw="blob", c="decimal(10,2)"))
        row = {"id": number, "name": f"é{number}", "at": "2020-01-02T03:04:05.5Z", "raw": "AP8="}
        row |= {"c": "1.50"} if number >= 40 else {}
        source.transaction(("c", None, row), ("u", row, {**row, "name": None}))
        if random.random() < 0.3:
            source.read({**row, "name": None}, source.sequence - 1)
        if random.random() < 0.5:
            source.transaction(("d", {**row, "name": None}, None))
        if random.random() < 0.2:
            source.commit()
    # most of them after the last logged row, so that no GTID to resume at follows them
    for number in range(1000, 1006):
        row = {"id": number, "name": f"{last}", "at": None, "raw": None} | ({"c": None} if last > 40 else {})
        source.read(row, source.sequence)
    source.commit()


def by_row(changes: Iterable[tuple[str, Any, Any]]) -> dict[int, list[tuple[str, Any, Any]]]:
    """Return the changes of each row, in order; snapshot rows have no order relative to changes of other rows."""
    found: dict[int, list[tuple[str, Any, Any]]] = {}
    for op, before, after in changes:
        found.setdefault((after or before)["id"], []).append((op, before, after))
    return found


def expected(source: SourceLog) -> dict[int, list[tuple[str, Any, Any]]]:
    kinds = {"r": "c"}
    return by_row(
        (kinds.get(e.op, e.op), e.before and dict(e.before), e.after and dict(e.after)) for e in source.reported
    )


def test_every_change_is_mirrored_with_its_columns() -> None:
    """Inserts, updates with both images, deletes; times, bytes and decimals unchanged; added columns."""
    log = MemoryChanges()
    source = began(log)
    report(source, 0, 60)
    MortalLog.commits = -1
    with served(log) as server:
        found = run(topology(server), Broker(), len(source.reported))
    assert by_row((e["op"], e["before"], e["after"]) for e in found) == expected(source)
    assert {e["source"]["connector"] for e in found} == {"maxscale"}
    numbers = [e["source"]["sequence"] for e in found]
    assert numbers == sorted(set(numbers))


def test_the_quirks_of_a_maxscale_are_read(maxscale: ReplayedServer) -> None:
    """Two line ends after a login, decimals as doubles, texts for bytes; an ambiguous value is a dead letter."""
    MortalLog.commits = -1
    broker, top = Broker(), topology(maxscale, unrepresentable="dead_letter")
    text = {TABLE: TableRule(message_key_columns=("id",), ignored_columns=("b",))}
    ignoring = replace(top, sources={"old": replace(top.sources["old"], rules=text)})
    found = run(ignoring, broker, 3)
    row = {
        "id": 1, "name": "é", "paid": "1.5", "at": "2017-09-15T10:12:00.5Z", "day": "2017-09-15Z", "raw": "w6k=",
        "note": "", "kind": "02",
    }  # fmt: skip
    changed = {**row, "name": None, "raw": ""}
    assert [(e["op"], e["before"], e["after"]) for e in found] == [
        ("c", None, row), ("u", row, changed), ("d", changed, None),
    ]  # fmt: skip
    (dead_letter,) = [orjson.loads(r.value) for r in broker.records if r.topic == dead_letter_topic("top") and r.value]
    assert "'ff00' may be a text or the hex" in dead_letter["why"]
    schema = orjson.loads(maxscale.said[-1][1].splitlines()[0])
    reads = dict(reads_reported(schema, TableRule(message_key_columns=("id",))).reads)
    with pytest.raises(Unrepresentable, match="0 for every BIT: add the column to ignored_columns"):
        reads["b"](0)


@pytest.mark.long
def test_killed_at_any_commit_each_change_is_published_once() -> None:
    """It resumes at a GTID, and skips what it has published of that transaction, and of the snapshot rows after it."""
    log, random = MemoryChanges(most=2), Random(9)
    source, broker, deaths = began(log), Broker(), 0
    with served(log) as server:
        for first in range(0, 60, 20):
            report(source, first, first + 20)
            server.notify()
            while len(reported(broker)) < len(source.reported):
                MortalLog.commits = random.randrange(2)
                try:
                    run(topology(server), broker, len(source.reported))
                except KilledAtCommitError:
                    deaths += 1
        MortalLog.commits = -1
    assert deaths > 1
    assert by_row((e["op"], e["before"], e["after"]) for e in reported(broker)) == expected(source)


def test_faults_are_named() -> None:
    """A wrong password, a table without its key, a missing GTID."""
    log = MemoryChanges()
    source = began(log)
    report(source, 0, 60)
    MortalLog.commits = -1
    broker = Broker()
    with served(log) as server:
        with pytest.raises(UsageError, match="Authentication failed"):
            run(topology(server, "wrong"), Broker(), 1)
        with pytest.raises(TopologyError, match="without its key"):
            read_topology(
                "name: top\nsources:\n  old: {type: maxscale, hostname: h, username: u, password: p, database: d, "
                "tables: [t]}\ntables:\n  w: {query: SELECT t.id FROM old.t t, row_key: [id]}\n",
                file="top.yml", environ={},
            )  # fmt: skip
        run(topology(server), broker, len(source.reported))
        log.now_ms, log.whole_since = 5, 3
        source.transaction(("c", None, {"id": 99}))
        source.transaction(("c", None, {"id": 100}))
        source.commit()
        with pytest.raises(Fatal, match="not found"):
            run(topology(server), broker, len(source.reported))


def test_invalid_lines_are_dead_letters_and_a_gap_is_reported_as_lost() -> None:
    """Noise, a value of the wrong type; a stream that lacks the last published row."""
    schema = orjson.dumps({"fields": [{"name": "id", "type": ["null", "int"], "real_type": "int", "length": -1}]})

    def row(sequence: int, value: Any, event: int = 1) -> bytes:
        header = {"domain": 0, "server_id": 7, "sequence": sequence, "event_number": event, "timestamp": 5}
        return orjson.dumps({**header, "event_type": "insert", "id": value})

    def log_events(*lines: bytes, start: Checkpoint | None = None) -> tuple[list[Any], Any]:
        tables = Tables("old", {"d"}, lambda d, t: True, Dialect(server="maxscale", version=0))
        begin = Position(file="maxscale", pos=0, gtid_set="", sequence=0)
        at = start or Checkpoint(position=begin, snapshot="done", ts_ms=0)
        one = UpstreamEvents(
            [UpstreamLine(TABLE, line) for line in lines], tables, {TABLE: TableRule(message_key_columns=("id",))}, at
        )
        return [log_event for log_event in one if isinstance(log_event, RowsLogged)], one

    found, one = log_events(b"\xff", schema, row(3, "x"), row(3, 4, 3))
    assert [isinstance(log_event.rows[0], RefusedImage) for log_event in found] == [True, True, False]
    state = Position(file="maxscale", pos=3, gtid_set="", sequence=3)
    start = Checkpoint(position=state, snapshot="done", ts_ms=0, state=one.state)
    assert [log_event.rows for log_event in log_events(schema, row(3, 1), row(3, 4, 3), row(4, 5), start=start)[0]] == [
        [{"id": 5}]
    ]
    with pytest.raises(PositionLost, match="without event 3 of 0-7-3"):
        log_events(schema, row(3, 1), row(4, 5), start=start)
