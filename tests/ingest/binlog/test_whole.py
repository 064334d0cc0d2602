"""The fast path for one-row transactions returns the same as the general one: rows, ends, checkpoints and errors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cdc.model.errors import TailorbirdError
from ingest.binlog import BinlogPosition, BinlogReader, Committed, RowBatch, StreamOptions
from ingest.binlog.format.errors import ConnectionLost
from ingest.binlog.reading.whole import PACKET_GAP, ReadBuffer, WholeTransactions
from ingest.binlog.transports.file_transport import FileTransport
from ingest.binlog.transports.mysql_transport import MysqlTransport, _Source
from ingest.binlog.transports.uri import ServerAddress, parse_uri
from ingest.binlog.writer.writer import BinlogWriter
from tests.ingest.binlog.made_binlogs import NOW, TABLES, UUIDS, a_binlog, a_row, damage


class Socket:
    """Delivers packets of a server in pieces of any size, then the end of the stream."""

    def __init__(self, rng: Random, events: list[bytes], sequence: int) -> None:
        self._rng = rng
        packets = [
            (len(event) + 1).to_bytes(3, "little") + bytes((place + sequence & 0xFF, 0)) + event
            for place, event in enumerate(events)
        ]
        self._data = b"".join(packets) + b"\x05\0\0\0\xfe\0\0\2\0"

    def recv(self, size: int) -> bytes:
        size = min(size, self._rng.choice((7, 100, 1000, 5000, 50_000)))
        part, self._data = self._data[:size], self._data[size:]
        return part


class ServerPackets(MysqlTransport):
    """The packets of a server that is only a list of events."""

    reconnects = False

    def __init__(self, source: Any) -> None:
        address = parse_uri("mysql://u:p@127.0.0.1?follow=0")
        assert isinstance(address, ServerAddress)
        self.address, self._given = address, source
        self.checksum, self._closed = 0, False
        self.buffer = ReadBuffer(PACKET_GAP)

    def packets(self, start: BinlogPosition) -> Iterator[Any]:
        try:
            yield from self._events(_Source(self._given, self.buffer), start)
        except ConnectionError as error:
            raise ConnectionLost(str(error)) from error

    def close(self) -> None: ...


def outcome(transport: Any, *, tables: Any = None, stop: int = 1 << 30) -> tuple[list[Any], str, str]:
    """Return everything that a reader returns, with the checkpoint at each step; the final error; the last position."""
    reader = BinlogReader(transport, None, StreamOptions(tables=tables))
    found: list[Any] = []
    error = ""
    try:
        for change in reader.changes():
            at, progress = reader.checkpoint, reader.stream.progress
            rows = change.rows if isinstance(change, RowBatch) else getattr(change, "identity", None)
            state = (at, str(at.gtids), progress.in_transaction, progress.gtid, progress.transactions)
            found.append((type(change).__name__, rows, change.raw, state))
            if len(found) == stop:
                break
    except TailorbirdError as raised:
        error = str(raised)
    return found, error, repr(reader.checkpoint)


@pytest.fixture
def general(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run a reader without the fast path."""

    def run(transport: Any, **options: Any) -> Any:
        with monkeypatch.context() as patch:
            patch.setattr(WholeTransactions, "changes", lambda self, buffer: iter(()))
            return outcome(transport, **options)

    return run


SETTINGS = settings(
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


@SETTINGS
@given(st.randoms(use_true_random=False), st.booleans(), st.booleans())
def test_files_are_read_as_on_the_general_path(
    tmp_path: Path, general: Any, rng: Random, damaged: bool, filtered: bool
) -> None:
    """Valid and damaged files: the same changes with the same checkpoints, and the same error at the same position."""
    events = a_binlog(rng, 30)
    if damaged:
        damage(rng, events)
    path = tmp_path / "binlog.000001"
    path.write_bytes(b"\xfebin" + b"".join(events))
    tables = (lambda database, table: table == "short") if filtered else None
    expected = general(FileTransport(path), tables=tables)
    assert outcome(FileTransport(path), tables=tables) == expected
    assert damaged or not expected[1] or "without its TABLE_MAP" in expected[1]


@SETTINGS
@given(st.randoms(use_true_random=False), st.booleans(), st.integers(0, 255))
def test_servers_are_read_as_on_the_general_path(general: Any, rng: Random, damaged: bool, sequence: int) -> None:
    """The same with the packets of a server, wherever the network splits them."""
    events = a_binlog(rng, 30)
    if damaged:
        damage(rng, events)
    seed = rng.randrange(1 << 30)
    expected = general(ServerPackets(Socket(Random(seed), events, sequence)))
    assert outcome(ServerPackets(Socket(Random(seed + 1), events, sequence))) == expected


@pytest.mark.parametrize("server", [True, False])
def test_most_of_an_oltp_binlog_is_read_whole(server: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparisons above are valid only if the fast path is taken, which must be so for an OLTP binlog."""
    writer, rng = BinlogWriter(), Random(1)
    events = [writer.begin(NOW)[4:]]
    for number in range(1, 201):
        table = rng.choice(list(TABLES))
        columns, table_id = TABLES[table], 70 + list(TABLES).index(table)
        events += [writer.gtid(UUIDS[0], number, NOW), writer.query("d", "BEGIN", NOW)]
        events += [writer.table_map(table_id, "d", table, columns, NOW)]
        events += [writer.rows("insert", table_id, columns, [a_row(rng, table)], NOW), writer.xid(number, NOW)]
    taken: Counter[str] = Counter()
    whole = WholeTransactions.changes

    def counted(self: WholeTransactions, buffer: ReadBuffer) -> Iterator[RowBatch | Committed]:
        for change in whole(self, buffer):
            taken[type(change).__name__] += 1
            yield change

    monkeypatch.setattr(WholeTransactions, "changes", counted)
    path = tmp_path / "binlog.000001"
    path.write_bytes(b"\xfebin" + b"".join(events))
    transport = ServerPackets(Socket(Random(2), events, 1)) if server else FileTransport(path)
    found, error, _ = outcome(transport)
    assert (len(found), error) == (400, "")
    # Two tables must be mapped first, and a network's pieces end inside transactions.
    least = 100 if server else 196
    assert taken["RowBatch"] == taken["Committed"] >= least


def test_small_pieces_of_tls_are_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    """TLS delivers one record at a time: received records are joined, so that transactions can be read whole."""
    sock = Socket(Random(1), [bytes(100)] * 1000, 0)
    sizes = iter([1000] * 1000)
    monkeypatch.setattr(sock, "_rng", type("Sizes", (), {"choice": lambda self, _: next(sizes)})())
    source = _Source(sock, buffer := ReadBuffer(PACKET_GAP))  # type: ignore[arg-type]  # it delivers bytes, and does no more
    monkeypatch.setattr(source, "_encrypted", True)
    monkeypatch.setattr(source, "_arrived", lambda: bool(sock._data))
    source.packet()
    assert len(buffer.block) == 1000 * 105 + 9


def test_packets_before_the_end_of_a_connection_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of a socket is reported only after the complete packets that were received before it."""
    sock = Socket(Random(1), [bytes(100)] * 10, 0)
    source = _Source(sock, ReadBuffer(PACKET_GAP))  # type: ignore[arg-type]  # it delivers bytes, and does no more
    monkeypatch.setattr(source, "_encrypted", True)
    monkeypatch.setattr(source, "_arrived", lambda: True)
    assert [len(source.packet()[1]) for _ in range(10)] == [100] * 10


def test_a_reader_may_stop_between_rows_and_their_end(tmp_path: Path, general: Any) -> None:
    """Stopped after any number of changes, the checkpoint equals that of the general path."""
    path = tmp_path / "binlog.000001"
    path.write_bytes(b"\xfebin" + b"".join(a_binlog(Random(5), 40)))
    for stop in range(1, 90, 3):
        assert outcome(FileTransport(path), stop=stop) == general(FileTransport(path), stop=stop)
