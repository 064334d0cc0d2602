"""Chunks of a table that is altered while they are read: the log reader gets time to reach the change."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from random import Random

import pytest

from cdc.model.errors import Fatal, Retriable, TableChanged, TailorbirdError, UsageError
from cdc.model.event import Position
from ingest.capture import proc_chunks
from ingest.capture.proc_chunks import ChunkThreads
from ingest.events.values import image_of
from ingest.records.chunk_requests import PASS, Chunk, ChunkRequest
from ingest.records.waiting import WaitingTable, keep, note, reasons, waiting_of
from ingest.repair.rounds import SharedChunkReader
from tests.support.changes_made import schema_of
from tests.support.waiting import wait_for

PLACE = Position(file="f", pos=1, gtid_set="", sequence=1)
REQUEST = ChunkRequest(number=1, schema=schema_of(old="int"), position=PLACE, after=None, last=None, where="")

CHUNK = Chunk(request=REQUEST, images=[], after=None, last=None, high=PLACE)


@dataclass
class AlteredTable:
    """A table that has the column `new` instead of `old`."""

    asked: list[int] = field(default_factory=list)

    def read(self, request: ChunkRequest) -> Chunk:
        self.asked.append(request.number)
        if request.schema.column("new") is None:
            raise TableChanged("Unknown column 'old'")
        return Chunk(request=request, images=[], after=None, last=None, high=PLACE)


def threads(table: AlteredTable) -> ChunkThreads:
    @contextmanager
    def opened() -> Iterator[AlteredTable]:
        yield table

    return ChunkThreads(opened)


def numbered(number: int, table: int) -> ChunkRequest:
    schema = schema_of(new="int")
    named = replace(schema, table_id=replace(schema.table_id, table=f"t{table}"))
    return replace(REQUEST, number=number, schema=named)


def counted(reusable: bool) -> tuple[list[int], ChunkThreads]:
    """Return the connections that were opened, and a chunk reader."""
    found: list[int] = []

    @contextmanager
    def opened() -> Iterator[AlteredTable]:
        found.append(1)
        yield AlteredTable()

    return found, ChunkThreads(opened, reusable=lambda _: reusable)


def first(chunks: ChunkThreads) -> list[Chunk]:
    deadline = time.monotonic() + 20
    while not (found := chunks.ready()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return found


@pytest.mark.parametrize("reusable", [True, False])
def test_small_tables_share_a_connection(reusable: bool) -> None:
    """A table of one chunk is followed by another one, unless the connection still shows an older state."""
    opened, chunks = counted(reusable)
    for number in range(20):
        chunks.request(numbered(number, number))
        assert [chunk.request.number for chunk in first(chunks)] == [number]
    assert opened == [1] * (1 if reusable else 20)
    chunks.close()


@pytest.mark.parametrize("lingers", [0.0, 0.001, 5.0])
def test_the_last_request_of_each_table_is_answered(lingers: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if a table is read again while its thread reads another table, waits for one, or is ending."""
    monkeypatch.setattr(proc_chunks, "_LINGERS", lingers)
    _, chunks = counted(True)
    random, wanted, answered = Random(1), dict[int, int](), set[int]()
    for number in range(400):
        table = random.randrange(6)
        chunks.request(numbered(number, table))
        wanted[table] = number
        if random.random() < 0.5:
            time.sleep(random.choice([0.0, 0.0005, 0.002]))
        answered |= {chunk.request.number for chunk in chunks.ready()}
    deadline = time.monotonic() + 20
    while not answered.issuperset(wanted.values()):
        assert time.monotonic() < deadline
        answered |= {chunk.request.number for chunk in chunks.ready()}
    chunks.close()


def test_a_chunk_of_an_altered_table_waits_for_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """The session continues: once the log reader has processed the change, the table is read again."""
    monkeypatch.setattr(proc_chunks, "_PAUSE", 0.01)
    table = AlteredTable()
    chunks = threads(table)
    chunks.request(REQUEST)
    while len(table.asked) < 3:
        assert chunks.ready() == []
        time.sleep(0.01)
    chunks.request(replace(REQUEST, number=2, schema=schema_of(new="int")))
    assert [chunk.request.number for chunk in first(chunks)] == [2]
    asked = len(table.asked)
    time.sleep(0.1)
    assert len(table.asked) == asked, "the old request is not tried any more"


def test_an_alter_that_the_log_does_not_contain_ends_the_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """PostgreSQL logs an altered table only with its next row: the next session reads the catalogue."""
    monkeypatch.setattr(proc_chunks, "_PAUSE", 0.01)
    monkeypatch.setattr(proc_chunks, "TIMEOUT", 0.1)
    chunks = threads(AlteredTable())
    chunks.request(REQUEST)
    with pytest.raises(TableChanged, match="Unknown column"):
        first(chunks)


def test_a_condition_that_the_server_refuses_ends_only_its_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be wrong for good, and a new session would send it again: the session continues, without the request."""
    monkeypatch.setattr(proc_chunks, "_PAUSE", 0.01)
    monkeypatch.setattr(proc_chunks, "TIMEOUT", 0.1)
    chunks = threads(AlteredTable())
    chunks.request(replace(REQUEST, where="nothing = 1"))
    (chunk,) = first(chunks)
    assert chunk.failed is not None
    assert "Unknown column" in chunk.failed.message


def test_a_replica_that_is_unavailable_does_not_end_the_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """The log has another server and is read; the chunk is tried again. Of the log's own server, the session ends."""
    monkeypatch.setattr(proc_chunks, "RETRY", 0.01)
    table, left = AlteredTable(), [2]

    @contextmanager
    def opened() -> Iterator[AlteredTable]:
        if left[0]:
            left[0] -= 1
            raise Retriable("connection refused")
        yield table

    chunks = ChunkThreads(opened, apart=True)
    chunks.request(replace(REQUEST, schema=schema_of(new="int")))
    found = first(chunks)
    while found[-1].waits is not None:
        found += first(chunks)
    assert [(chunk.request.number, str(chunk.waits or "")) for chunk in found] == [(1, "connection refused"), (1, "")]
    assert left == [0]
    left[0] = 1
    one_server = ChunkThreads(opened)
    one_server.request(REQUEST)
    with pytest.raises(Retriable, match="connection refused"):
        first(one_server)


@pytest.mark.parametrize("kind", [UsageError, Fatal, Retriable])
def test_a_replica_that_must_not_be_read_is_waited_for(
    kind: type[TailorbirdError], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The capture of its log continues. The reason is reported once while it stays the same, and the attempts become
    rare."""
    monkeypatch.setattr(proc_chunks, "RETRY", 0.02)
    times = list[float]()

    class Unusable:
        def read(self, request: ChunkRequest) -> Chunk:
            times.append(time.monotonic())
            raise kind("it has a filter" if len(times) < 6 else "it is late", "choose another")

    @contextmanager
    def opened() -> Iterator[Unusable]:
        yield Unusable()

    chunks = ChunkThreads(opened, apart=True)
    chunks.request(REQUEST)
    found = first(chunks)
    while len(found) < 2:
        found += first(chunks)
    chunks.close()
    assert [str(chunk.waits) for chunk in found] == ["it has a filter; choose another", "it is late; choose another"]
    assert times[5] - times[0] >= 0.02 * (1 + 2 + 4 + 8 + 16)


def test_the_reasons_of_waiting_tables_are_kept_until_they_are_read() -> None:
    """The time is that of the first reason. A table that nothing reads any more is removed."""

    class Ready:
        def __init__(self) -> None:
            self.chunks = [replace(CHUNK, waits=Retriable("late"))]

        def request(self, request: ChunkRequest) -> None: ...

        def ready(self) -> list[Chunk]:
            found, self.chunks = self.chunks, []
            return found

    reader, waits = Ready(), dict[str, WaitingTable]()
    shared = SharedChunkReader(reader)
    assert shared.ready() == []
    assert note(waits, shared.waits(), 5)
    assert waits == {"d.t": {"since_ms": 5, "why": "late", "remedy": ""}}
    assert note(waits, {"d.t": UsageError("filtered", "choose another")}, 9)
    assert reasons(waits) == {"d.t": "filtered; choose another"}
    assert waiting_of({"waits": waits}) == {"d.t": {"since_ms": 5, "why": "filtered", "remedy": "choose another"}}
    assert not keep(waits, ["d.t"])
    reader.chunks = [CHUNK] * 2
    assert len(shared.ready()) == 2
    assert note(waits, shared.waits(), 9)
    assert waits == {}
    assert not note(waits, shared.waits(), 9)
    note(waits, {"d.u": Retriable("late")}, 9)
    assert keep(waits, ["d.t"])
    assert waits == {}


def test_a_pass_over_an_unusable_replica_begins_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its chunks show one moment, which the next connection cannot. The next session starts it again."""

    class Unusable:
        def read(self, request: ChunkRequest) -> Chunk:
            raise UsageError("it has a filter")

    @contextmanager
    def opened() -> Iterator[Unusable]:
        yield Unusable()

    chunks = ChunkThreads(opened, apart=True)
    chunks.request(replace(REQUEST, after=PASS))
    with pytest.raises(Retriable, match="it has a filter"):
        first(chunks)


def test_a_value_of_another_type_is_an_altered_table() -> None:
    """A column was altered after its schema was read: the log reader reaches the change; no value is exposed."""
    with pytest.raises(TableChanged, match="column v") as error:
        image_of([("v", int)], ("secret",))
    assert "secret" not in str(error.value)


def test_ranges_of_a_table_are_read_at_the_same_time() -> None:
    """Each range has a connection of its own, which ends with the range, or when the table is read again."""
    opened, barrier = list[int](), threading.Barrier(2)

    class Range:
        def read(self, request: ChunkRequest) -> Chunk:
            if request.part:
                barrier.wait(20)  # both ranges are being read
            return Chunk(request=request, images=[], after=[5] if request.number == 1 else None, last=[9], high=PLACE)

    @contextmanager
    def connected() -> Iterator[Range]:
        opened.append(1)
        try:
            yield Range()
        finally:
            opened.remove(1)

    chunks = ChunkThreads(connected)
    chunks.request(REQUEST)
    assert [chunk.request.part for chunk in first(chunks)] == [0]
    for part in (1, 2):
        chunks.request(replace(REQUEST, number=1 + part, after=[part], last=[9], part=part))
    found = first(chunks)
    while len(found) < 2:
        found += first(chunks)
    assert {chunk.request.part for chunk in found} == {1, 2}
    wait_for(lambda: len(opened) == 1, "the range that ended keeps its connection", 20)
    chunks.request(replace(REQUEST, number=4))
    assert [chunk.request.number for chunk in first(chunks)] == [4]
    wait_for(lambda: not opened, "the former range keeps its connection", 20)
