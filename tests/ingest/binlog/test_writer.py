"""Binlogs that this library writes are read back equal, accepted by the tools, and replayed by a server."""

from __future__ import annotations

import base64
import gzip
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ingest.binlog import (
    Binlog,
    BinlogPosition,
    BinlogReader,
    Committed,
    RowBatch,
    Statement,
    create_transport,
    open_reader,
)
from ingest.binlog.format.codes import ColumnType as T
from ingest.binlog.format.codes import EventType
from ingest.binlog.format.columns import LoggedColumn
from ingest.binlog.format.errors import BinlogError
from ingest.binlog.format.gtid import GtidSet
from ingest.binlog.reading import events as e
from ingest.binlog.reading.events import RawEvent
from ingest.binlog.reading.position import gtid_text, identity_of
from ingest.binlog.reading.stream import StreamOptions
from ingest.binlog.transports.file_transport import FileTransport
from ingest.binlog.writer.file_writer import BinlogFile, copy_binlog, insert_events
from ingest.binlog.writer.writer import BinlogWriter
from tests.ingest.binlog.binlog_servers import Server
from tests.ingest.binlog.type_cases import cases_of
from tests.ingest.binlog.type_matrix import prepare

UUID = "11111111-2222-3333-4444-555555555555"
NOW = 1_700_000_000
T_ROTATE, T_XID = EventType.ROTATE, EventType.XID


def column(index: int, name: str, kind: T, **log_events: Any) -> LoggedColumn:
    return LoggedColumn(index=index, name=name, type=kind, named=True, **log_events)


COLUMNS = [
    column(0, "id", T.LONG, unsigned=False, nullable=False),
    column(1, "big", T.LONGLONG, unsigned=True),
    column(2, "price", T.NEWDECIMAL, precision=12, scale=3, unsigned=False),
    column(3, "name", T.VARCHAR, width=200, size=1, charset="utf8mb4"),
    column(4, "fixed", T.STRING, width=6, size=1, charset="binary"),
    column(5, "note", T.BLOB, size=2, charset="utf8mb4"),
    column(6, "ratio", T.DOUBLE, unsigned=False),
    column(7, "day", T.DATE),
    column(8, "made", T.DATETIME2, digits=6),
    column(9, "seen", T.TIMESTAMP2, digits=3),
    column(10, "span", T.TIME2, digits=2),
    column(11, "kind", T.ENUM, size=1, labels=("a", "größe"), charset="utf8mb4"),
    column(12, "tags", T.SET, size=1, labels=("x", "y", "z"), charset="utf8mb4"),
    column(13, "bits", T.BIT, width=10, size=2),
    column(14, "born", T.YEAR),
]
TABLE = (
    "id INT NOT NULL PRIMARY KEY, big BIGINT UNSIGNED, price DECIMAL(12,3), name VARCHAR(50), fixed BINARY(6), "
    "note TEXT, ratio DOUBLE, day DATE, made DATETIME(6), seen TIMESTAMP(3) NULL, span TIME(2), "
    "kind ENUM('a','größe'), "
    "tags SET('x','y','z'), bits BIT(10), born YEAR"
)
FIRST = {
    "id": 1, "big": 18446744073709551615, "price": "-123456789.125", "name": "größe 漢字 😀", "fixed": b"a\0b\0\0\0",
    "note": "text", "ratio": 0.1, "day": "2024-02-29", "made": "2024-02-29 23:59:58.999999",
    "seen": "2024-02-29 12:34:56.789", "span": "-12:34:56.78", "kind": "größe", "tags": "x,z", "bits": 513,
    "born": 2024,
}  # fmt: skip
SECOND: dict[str, Any] = {**dict.fromkeys(FIRST, None), "id": 2, "kind": "a", "tags": ""}


def write(path: Path, database: str, *, checksum: bool = True) -> None:
    writer = BinlogWriter(server_id=9, checksum=checksum)
    changed = {**FIRST, "name": "changed", "price": "0.001"}
    with BinlogFile(path, writer) as file:
        file.append(writer.begin(NOW, GtidSet.parse(f"{UUID}:1-4")))
        for number, (operation, rows) in enumerate(
            [("insert", [FIRST, SECOND]), ("update", [(FIRST, changed)]), ("delete", [SECOND])], 5
        ):
            file.append(writer.gtid(UUID, number, NOW))
            file.append(writer.query(database, "BEGIN", NOW))
            file.append(writer.table_map(42, database, "t", COLUMNS, NOW, primary_key=[0]))
            file.append(writer.rows(operation, 42, COLUMNS, rows, NOW))  # type: ignore[arg-type]
            file.append(writer.xid(number, NOW))
        file.append(writer.rotate("next.000002", NOW))


@pytest.mark.parametrize("checksum", [True, False])
def test_written_values_are_read_back(tmp_path: Path, checksum: bool) -> None:
    """Every type that can be written is read back with the same value, under the same names, at exact positions."""
    path = tmp_path / "own.000001"
    write(path, "d", checksum=checksum)
    reader = BinlogReader(FileTransport(path))
    batches = [change for change in reader.changes() if isinstance(change, RowBatch)]
    assert [batch.operation for batch in batches] == ["insert", "update", "delete"]
    assert batches[0].rows == [FIRST, SECOND]
    assert batches[1].rows[0][1]["name"] == "changed"
    assert str(reader.checkpoint.gtids) == f"{UUID}:1-7"
    assert batches[0].decoder.table.primary_key == ((0, 0),)


def events_of(path: Path) -> list[RawEvent]:
    return list(BinlogReader(FileTransport(path)).raw_events())


def replay(server: Server, path: Path) -> None:
    """Let a server apply the row events by its own BINLOG statement, as mysqlbinlog's output does."""
    data = path.read_bytes()
    with server.session() as session, session.cursor() as cursor:
        pending = b""
        for raw in events_of(path):
            size = int.from_bytes(data[raw.offset + 9 : raw.offset + 13], "little")
            event = data[raw.offset : raw.offset + size]
            if raw.code == T_FORMAT:
                cursor.execute("BINLOG %s", (base64.b64encode(event).decode(),))
            elif raw.code == 33:
                cursor.execute(f"SET @@SESSION.GTID_NEXT='{gtid_text(identity_of(raw))}'")
                cursor.execute("BEGIN")
            elif raw.code == 16:
                cursor.execute("COMMIT")
            elif raw.code == 19:
                pending = event
            elif raw.code in (30, 31, 32):
                both = base64.b64encode(pending).decode() + "\n" + base64.b64encode(event).decode()
                cursor.execute("BINLOG %s", (both,))
        cursor.execute("SET @@SESSION.GTID_NEXT='AUTOMATIC'")


T_FORMAT = 15


@pytest.mark.integration
def test_a_server_replays_written_events(mysql80: Server, tmp_path: Path) -> None:
    """MySQL 8.0 applies our events and has exactly the rows that we wrote."""
    with mysql80.session() as session, session.cursor() as cursor:
        cursor.execute("CREATE DATABASE replayed CHARACTER SET utf8mb4")
        cursor.execute(f"CREATE TABLE replayed.t ({TABLE})")
    path = tmp_path / "own.000001"
    write(path, "replayed")
    replay(mysql80, path)
    with mysql80.session() as session, session.cursor() as cursor:
        cursor.execute(
            "SELECT id, big, CAST(price AS CHAR), name, fixed, note, ratio, CAST(day AS CHAR), CAST(made AS CHAR), "
            "CAST(seen AS CHAR), CAST(span AS CHAR), kind, tags, bits+0, born FROM replayed.t"
        )
        rows = cursor.fetchall()
    assert rows == (tuple({**FIRST, "name": "changed", "price": "0.001"}.values()),)


@pytest.mark.integration
def test_a_copy_has_the_same_events_and_injected_ones(mysql80: Server, tmp_path: Path) -> None:
    """A copied stream decodes like its original; an injected statement is at its position."""
    with mysql80.session() as session, session.cursor() as cursor:
        cursor.execute("SET GLOBAL binlog_checksum=CRC32")
        cursor.execute("SET GLOBAL binlog_row_metadata=FULL")
        cursor.execute("FLUSH BINARY LOGS")
    start = BinlogPosition(file=mysql80.binlogs()[-1].name)
    prepare(mysql80, [case for case in cases_of("mysql80") if "char_" not in case.name], "copied")

    def note(writer: BinlogWriter, raw: RawEvent) -> list[bytes]:
        return (
            [writer.anonymous(NOW), writer.query("x", "CREATE TABLE x.injected (a INT)", NOW)] if raw.code == 33 else []
        )

    path = tmp_path / "copy.000001"
    count = copy_binlog(create_transport(f"{mysql80.uri}?follow=0"), path, start=start, inject=note)
    assert count > 100
    origin = [c for c in open_reader(f"{mysql80.uri}?follow=0", start).changes() if not isinstance(c, Committed)]
    copied = [c for c in BinlogReader(FileTransport(path)).changes() if not isinstance(c, Committed)]
    injected = [c for c in copied if isinstance(c, Statement) and "injected" in c.text]
    assert injected
    rest = [c for c in copied if c not in injected]
    assert len(rest) == len(origin)
    for mine, theirs in zip(rest, origin, strict=True):
        if isinstance(mine, RowBatch) and isinstance(theirs, RowBatch):
            assert mine.rows == theirs.rows
        else:
            assert isinstance(mine, Statement)
            assert isinstance(theirs, Statement)
            assert mine.text == theirs.text


def made(path: Path, *, ends: bool = True, flags: int = 0) -> list[bytes]:
    """Write a file of two transactions. Return the parts of which it consists."""
    writer = BinlogWriter(server_id=9)
    parts = [writer.begin(NOW, GtidSet.parse(f"{UUID}:1-4"), created=NOW - 60)]
    for number in (5, 6):
        parts += [writer.gtid(UUID, number, NOW), writer.query("d", "BEGIN", NOW), writer.xid(number, NOW)]
    parts += [writer.rotate("next.000002", NOW)] if ends else []
    content = bytearray(b"".join(parts))
    content[21] |= flags  # the flags of the format description, after the magic number
    path.write_bytes(content)
    path.chmod(0o640)
    return parts


def test_events_are_inserted_into_an_existing_file(tmp_path: Path) -> None:
    """Former events keep their bytes, except for their position. The last place is before the rotation."""
    path = tmp_path / "binlog.000001"
    parts = made(path)

    def add(writer: BinlogWriter, raw: RawEvent) -> list[bytes]:
        return [writer.event(200, b"mine", NOW)] if raw.code in (T_ROTATE, T_XID) else []

    before = path.open("rb")
    assert insert_events(FileTransport(path), path, add) == len(parts)
    binlog = Binlog(FileTransport(path), StreamOptions(user_events=frozenset({200})))
    binlog.connect()
    events = list(binlog)
    kinds = [type(event).__name__ for event in events]
    one = ["Gtid", "Query", "Unknown", "Xid"]
    assert kinds == ["FormatDescription", "PreviousGtids", *one, *one, "Unknown", "Rotate"]
    first = events[0]
    assert isinstance(first, e.FormatDescription)
    assert (first.created, first.header.server_id) == (NOW - 60, 9)
    assert path.stat().st_mode & 0o777 == 0o640
    with before:
        assert before.read() == b"".join(parts), "a reader continues with the former file"
    assert [file.name for file in tmp_path.iterdir()] == ["binlog.000001"]


@pytest.mark.parametrize(
    ("content", "why"), [("open", "was not closed by its server"), ("zipped", "compressed"), ("torn", "ends inside")]
)
def test_a_file_that_cannot_be_changed_stays_as_it_is(tmp_path: Path, content: str, why: str) -> None:
    """A server continues to write its newest file, and would damage the changed one."""
    path = tmp_path / "binlog.000001"
    made(path, flags=int(content == "open"))
    data = path.read_bytes()
    path.write_bytes({"open": data, "zipped": gzip.compress(data), "torn": data[:-3]}[content])
    former = path.read_bytes()
    with pytest.raises(BinlogError, match=why):
        insert_events(FileTransport(path), path, lambda writer, raw: [])
    assert path.read_bytes() == former
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.matrix
@pytest.mark.timeout(900)
def test_mysqlbinlog_accepts_and_pipes_into_a_server(servers: Callable[[str], Server], tmp_path: Path) -> None:
    """mysqlbinlog verifies our checksums, and its output, run by MySQL 9, makes the rows that we wrote."""
    server = servers("mysql9")
    assert server.tools is not None
    with server.session() as session, session.cursor() as cursor:
        cursor.execute("CREATE DATABASE piped CHARACTER SET utf8mb4")
        cursor.execute(f"CREATE TABLE piped.t ({TABLE})")
    path = tmp_path / "own.000001"
    write(path, "piped")
    shown = subprocess.run(
        [*server.loader, str(server.tools / "mysqlbinlog"), "--verify-binlog-checksum", "--skip-gtids", str(path)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    applied = subprocess.run(
        [*server.loader, str(server.tools / "mysql"), "-h127.0.0.1", f"-P{server.port}", "-ucdc", "-pcdc"],
        input=shown.stdout, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert applied.returncode == 0, applied.stderr
    with server.session() as session, session.cursor() as cursor:
        cursor.execute("SELECT id, name, CAST(price AS CHAR) FROM piped.t")
        assert cursor.fetchall() == ((1, "changed", "0.001"),)


def test_an_existing_file_is_never_overwritten(tmp_path: Path) -> None:
    """An existing binlog may contain a user's data."""
    path = tmp_path / "own.000001"
    write(path, "d")
    before = path.read_bytes()
    with pytest.raises(FileExistsError):
        write(path, "d")
    assert path.read_bytes() == before


def test_positions_beyond_four_gibibytes_wrap_as_the_server_writes_them(tmp_path: Path) -> None:
    """log_pos has 32 bits: a reader continues where they wrap, and its positions have 64."""
    path = tmp_path / "sparse.000001"
    writer = BinlogWriter()
    head = writer.begin(NOW)
    body = [replace(c) for c in COLUMNS[:1]]
    parts = [writer.anonymous(NOW), writer.query("d", "BEGIN", NOW)]
    rows_at = writer.position
    parts.append(writer.table_map(1, "d", "t", body, NOW))
    parts.append(writer.rows("insert", 1, body, [{"id": 7}], NOW))
    parts.append(writer.xid(1, NOW))
    assert rows_at
    # The same events as in a file of more than 4 GiB: a sparse hole replaces all before them.
    far = BinlogWriter()
    far.begin(NOW)
    far.position = (1 << 32) - 60
    events = [far.anonymous(NOW), far.query("d", "BEGIN", NOW), far.table_map(1, "d", "t", body, NOW)]
    events += [far.rows("insert", 1, body, [{"id": 7}], NOW), far.xid(1, NOW)]
    with path.open("wb") as file:
        file.write(head)
        file.seek((1 << 32) - 60)
        file.write(b"".join(events))
    begun = time.monotonic()
    reader = BinlogReader(FileTransport(path), BinlogPosition(file=path.name, position=(1 << 32) - 60))
    rows = [row for change in reader.changes() if isinstance(change, RowBatch) for row in change.rows]
    assert rows == [{"id": 7}]
    assert reader.checkpoint.position == far.position > 1 << 32
    assert time.monotonic() - begun < 30
