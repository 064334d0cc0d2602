"""The library's own contract: handlers, injection, values, refusals, and absent, unknown or old data."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from cdc.model.errors import UsageError
from ingest.binlog import (
    ABSENT,
    Binlog,
    BinlogPosition,
    BinlogReader,
    ColumnHint,
    ContentHandler,
    EventStream,
    Flavour,
    RowBatch,
    StreamOptions,
    TransactionAggregator,
    parse_position,
)
from ingest.binlog.format.codes import ColumnType as T
from ingest.binlog.format.columns import LoggedColumn
from ingest.binlog.format.errors import CorruptBinlog, UndecodableValue, UnsupportedEvent
from ingest.binlog.format.gtid import GtidSet, MariaGtidSet
from ingest.binlog.reading import events as e
from ingest.binlog.reading.effects import changes_rows, effects
from ingest.binlog.reading.rowset import Converter, ResultSet, RowEventSet, TypedValue
from ingest.binlog.reading.stream import Packet
from ingest.binlog.rows import rows as rows_module
from ingest.binlog.transports.file_transport import FileTransport
from ingest.binlog.transports.uri import FileAddress, ServerAddress, parse_uri
from ingest.binlog.writer.writer import BinlogWriter

DATA = Path(__file__).resolve().parents[2] / "data" / "binlogs"
NOW = 1_700_000_000


class Packets:
    """A transport over a writer's output."""

    checksum = 0
    reconnects = False
    selects_gtids = False
    buffer = None

    def __init__(self, *events: bytes) -> None:
        self._data = b"".join(events)

    def packets(self, start: BinlogPosition) -> Any:
        at = 4
        while at < len(self._data):
            size = struct.unpack_from("<I", self._data, at + 9)[0]
            packet: Packet = (self._data[at : at + size], "made", at, at + size)
            yield packet
            at += size

    def wait(self, attempt: int) -> None: ...

    def close(self) -> None: ...


ID = LoggedColumn(index=0, name="id", type=T.LONG, named=True, unsigned=False)
NAME = LoggedColumn(index=1, name="name", type=T.VARCHAR, named=True, width=20, size=1, charset="utf8mb4")


def transaction(writer: BinlogWriter, *rows: dict[str, Any], table_id: int = 1) -> list[bytes]:
    return [
        writer.anonymous(NOW),
        writer.query("d", "BEGIN", NOW),
        writer.table_map(table_id, "d", "t", [ID, NAME], NOW),
        writer.rows("insert", table_id, [ID, NAME], rows, NOW),
        writer.xid(1, NOW),
    ]


def sample(name: str = "dbz_connector_test@m10") -> FileTransport:
    return FileTransport(DATA / "pairs" / f"{name}.binlog.gz")


class Counting(ContentHandler):
    def __init__(self) -> None:
        self.seen: list[str] = []

    def process(self, event: e.Event) -> e.Event | None:
        self.seen.append(event.name)
        return event


class WithoutQueries(Counting):
    def process_query(self, event: e.Query) -> e.Event | None:
        return None


def test_each_handler_returns_the_same_a_new_or_no_event() -> None:
    """A consumed event reaches neither later handlers nor the reader; the others pass in order."""
    plain = [event.name for event in open_sample()]
    first, second = WithoutQueries(), Counting()
    binlog = open_sample()
    binlog.content_handlers.append(first)
    binlog.content_handlers.append(second)
    seen = [event.name for event in binlog]
    assert seen == [name for name in plain if name != "QUERY"] == second.seen
    assert "QUERY" in plain


def open_sample() -> Binlog:
    binlog = Binlog(sample())
    binlog.connect()
    return binlog


def test_injected_events_pass_all_handlers_before_a_new_event_is_read() -> None:
    """An event that a handler injects is next, through the whole chain, even if handlers inject again because of it."""

    class Doubler(ContentHandler):
        def process_xid(self, event: e.Xid) -> e.Event | None:
            if event.xid < 10**9:
                self.injection.append(e.Xid(header=event.header, xid=event.xid + 10**9))
            return event

    counting = Counting()
    binlog = open_sample()
    binlog.content_handlers.append(Doubler())
    binlog.content_handlers.append(counting)
    xids = [event.xid for event in binlog if isinstance(event, e.Xid)]
    assert xids
    assert all(second == first + 10**9 for first, second in zip(xids[::2], xids[1::2], strict=True))
    assert counting.seen.count("XID") == len(xids)


def test_handlers_are_added_and_removed_at_run_time() -> None:
    """A handler that is added and removed between events sees exactly the events in between."""
    binlog = open_sample()
    counting = Counting()
    for _ in range(3):
        binlog.wait_for_next_event()
    binlog.content_handlers.append(counting)
    binlog.wait_for_next_event()
    binlog.wait_for_next_event()
    binlog.content_handlers.remove(counting)
    binlog.wait_for_next_event()
    assert len(counting.seen) == 2
    assert len(binlog.content_handlers) == 0


def test_transactions_are_aggregated_with_their_tables_and_bounded() -> None:
    """The default handler returns whole transactions, and those above its limit in parts."""
    writer = BinlogWriter()
    data = [writer.begin(NOW), *transaction(writer, {"id": 1, "name": "a"})]
    data += [writer.anonymous(NOW), writer.query("d", "BEGIN", NOW), writer.table_map(2, "d", "t", [ID, NAME], NOW)]
    data += [writer.rows("insert", 2, [ID, NAME], [{"id": n, "name": None}], NOW) for n in range(25)]
    data.append(writer.xid(2, NOW))
    binlog = Binlog(Packets(*data))
    binlog.content_handlers.append(TransactionAggregator(limit=10))
    binlog.connect()
    found = [event for event in binlog if isinstance(event, e.Transaction)]
    assert [event.complete for event in found] == [True, False, False, True]
    assert [table.name for table in found[0].tables.values()] == ["d.t"]
    rows = [row for part in found for event in part.events if isinstance(event, e.Rows) for row in event.rows()]
    assert len(rows) == 26


def test_position_is_readable_and_settable() -> None:
    """A reconnected reader continues where it was; setting a position moves the reader."""
    whole = [event.offset for event in open_sample()]
    binlog = open_sample()
    first = [event.offset for _, event in zip(range(12), binlog, strict=False)]
    at = binlog.position()
    binlog.disconnect()
    assert binlog.wait_for_next_event() is None
    assert binlog.position() == at
    binlog.connect()
    rest = [event.offset for event in binlog]
    assert rest[0] == 4  # the file's description is sent again
    assert sorted({*first, *rest}) == whole
    binlog.set_position(BinlogPosition(file=at.file, position=4))
    assert [event.offset for event in binlog] == whole


def test_errors_of_the_reader_surface_as_an_incident(tmp_path: Path) -> None:
    """In a truncated file, all events before the cut, one incident with the error, then the end."""
    data = gzip.decompress((DATA / "pairs" / "dbz_float_test@m10.binlog.gz").read_bytes())
    path = tmp_path / "torn"
    path.write_bytes(data[:-10])
    binlog = Binlog(FileTransport(path))
    binlog.connect()
    events = list(binlog)
    assert isinstance(events[-1], e.Incident)
    assert isinstance(events[-1].error, CorruptBinlog)
    assert "torn:" in events[-1].message
    assert not any(isinstance(event, e.Incident) for event in events[:-1])


def test_creation_time_of_a_binlog() -> None:
    """R1: the format description has the creation time of the binlog."""
    writer = BinlogWriter(server_version="8.0.36-log")
    stream = EventStream()
    packet = next(iter(Packets(writer.begin(NOW, created=NOW - 5)).packets(BinlogPosition())))
    event = stream.typed(stream.receive(packet))
    assert isinstance(event, e.FormatDescription)
    assert (event.created, event.server_version, event.binlog_version) == (NOW - 5, "8.0.36-log", 4)


@pytest.mark.parametrize(("flags", "stops"), [(0, True), (0x80, False)])
def test_unknown_events_stop_unless_the_server_marks_them_ignorable(flags: int, stops: bool) -> None:
    """An event of an unknown type could contain rows: it is never skipped, but kept as bytes if it is harmless."""
    writer = BinlogWriter()
    data = [
        writer.begin(NOW),
        writer.event(99, b"rows?", NOW, flags=flags),
        *transaction(writer, {"id": 1, "name": ""}),
    ]
    if stops:
        with pytest.raises(UnsupportedEvent, match="event type 99"):
            list(BinlogReader(Packets(*data)).changes())
        return
    assert any(isinstance(change, RowBatch) for change in BinlogReader(Packets(*data)).changes())
    binlog = Binlog(Packets(*data))
    binlog.connect()
    assert [event.body for event in binlog if isinstance(event, e.Unknown)] == [b"rows?"]


def test_events_of_own_programs_are_delivered() -> None:
    """Their types are listed by the reader, so they need no flag of the server. A handler gets their bytes."""
    writer = BinlogWriter()
    data = [
        writer.begin(NOW), writer.event(200, b"mine", NOW), *transaction(writer, {"id": 1, "name": ""}),
        writer.event(201, b"rows?", NOW),
    ]  # fmt: skip
    options = StreamOptions(user_events=frozenset({200}))
    binlog, seen = Binlog(Packets(*data), options), list[bytes]()

    class Mine(ContentHandler):
        def process(self, event: e.Event) -> e.Event | None:
            if not isinstance(event, e.Unknown):
                return event
            seen.append(event.body)
            return None

    binlog.content_handlers.append(Mine())
    binlog.connect()
    events = list(binlog)
    assert seen == [b"mine"]
    assert any(isinstance(event, e.Rows) for event in events)
    assert isinstance(events[-1], e.Incident), "201 is not listed"
    assert "event type 201" in events[-1].message
    for wrong in (19, 30, 0, 256):
        with pytest.raises(ValueError, match="choose another for user_events"):
            StreamOptions(user_events=frozenset({wrong}))


def test_an_unknown_type_stops_only_readers_of_its_table() -> None:
    """An unknown column type is refused with its position if rows are requested, otherwise skipped."""
    writer = BinlogWriter()
    data = [writer.begin(NOW), *transaction(writer, {"id": 1, "name": "a"})]
    strange = transaction(writer, {"id": 2, "name": "b"}, table_id=2)
    body = (
        strange[2][19:-4]
        .replace(b"\x01d\x00\x01t\x00", b"\x01d\x00\x01x\x00")
        .replace(b"\x02\x03\x0f", b"\x02\x03\xd0")
    )
    writer.position -= sum(map(len, strange[2:]))
    data += [*strange[:2], writer.event(19, body, NOW), *(writer.event(one[4], one[19:-4], NOW) for one in strange[3:])]
    data += transaction(writer, {"id": 3, "name": "c"})
    with pytest.raises(UnsupportedEvent, match=r"made:\d+: .*type 208"):
        list(BinlogReader(Packets(*data)).changes())
    wanted = StreamOptions(tables=lambda database, table: table == "t")
    found = [
        change.rows for change in BinlogReader(Packets(*data), None, wanted).changes() if isinstance(change, RowBatch)
    ]
    assert found == [[{"id": 1, "name": "a"}], [{"id": 3, "name": "c"}]]
    binlog = Binlog(Packets(*data), wanted)
    binlog.connect()
    strangers = [event for event in binlog if isinstance(event, e.Rows) and event.decoder.table.name == "d.x"]
    assert len(strangers) == 1
    with pytest.raises(UnsupportedEvent, match="type 208"):
        strangers[0].decoder.decode(strangers[0].header.type_code, strangers[0].data)


def test_encrypted_files_are_refused_with_the_remedy(tmp_path: Path) -> None:
    """MySQL's encrypted files and MariaDB's encryption are reported, not misread."""
    path = tmp_path / "encrypted"
    path.write_bytes(b"\xfdbin" + bytes(512))
    with pytest.raises(UnsupportedEvent, match="encrypted"):
        list(BinlogReader(FileTransport(path)).changes())
    writer = BinlogWriter(server_version="10.11.6-MariaDB-log")
    data = [writer.begin(NOW), writer.event(164, b"\x01" + bytes(16), NOW)]
    with pytest.raises(UnsupportedEvent, match="encrypted"):
        list(BinlogReader(Packets(*data)).changes())


class Schema:
    """A schema of one table."""

    def __init__(self, *hints: tuple[str, str, str | None]) -> None:
        self._hints = [ColumnHint(name=name, type=kind, charset=charset) for name, kind, charset in hints]

    def schema_at(self, table: tuple[str, str], position: Any) -> Sequence[ColumnHint] | None:
        return self._hints


def old_decimal(rows: bytes) -> list[bytes]:
    """Rows of a table from before MySQL 5.0: a decimal and a VARCHAR after it."""
    writer = BinlogWriter(server_version="5.5.62-log", checksum=False)
    data = [writer.begin(NOW), writer.query("d", "BEGIN", NOW)]
    table = (7).to_bytes(6, "little") + b"\x01\0"
    data.append(
        writer.event(19, table + b"\x01d\0" + b"\x01t\0" + b"\x02\x00\x0f" + b"\x02" + b"\x14\0" + b"\x03", NOW)
    )
    data.append(writer.event(23, table + b"\x02\xff" + rows, NOW))
    data.append(writer.xid(1, NOW))
    return data


def test_a_decimal_from_before_mysql_five_needs_a_schema() -> None:
    """Type 0 is text whose end only the schema states: refused without one."""
    with pytest.raises(UndecodableValue, match="give a schema"):
        list(BinlogReader(Packets(*fde_55(old_decimal(b"\0        0.00\x01x")))).changes())


@pytest.mark.parametrize(
    ("declared", "texts"),
    [
        ("decimal(10,2)", [b"       0.00", b"  -12345.67", b"12345678.90"]),
        ("decimal(5,3)", [b" 0.000", b"-1.500", b"99.999"]),
        ("decimal(5,3)", [b"  0.000", b" -1.500"]),
        ("decimal(5,3) zerofill", [b"00.000", b"01.500"]),
        ("decimal(10,2)", [b"        0.00", b"123456789.01"]),
        ("decimal(4,0)", [b"    0", b"-1234", b"   12"]),
        ("decimal(4,0) unsigned", [b"   0", b"1234"]),
    ],
)  # fmt: skip
def test_decimals_of_any_width_from_before_mysql_five(declared: str, texts: list[bytes]) -> None:
    """The size of such a value follows from its text, as in seed 000: blanks, digits, then the digits of its scale.

    Tables of that time have widths with and without a place for the sign. A following value that looks like a part
    of the number is not one.
    """
    after = [b"7", b" 7", b".5", b"-1", b"", b" ", b"0" * 48]  # a length of 48 is the digit 0
    for name in after:
        rows = b"".join(b"\0" + text + bytes((len(name),)) + name for text in texts)
        schema = Schema(("price", declared, None), ("name", "varchar(20)", "latin1"))
        for null_patterns in (256, 0):
            with pytest.MonkeyPatch.context() as patched:
                patched.setattr(rows_module, "MAX_PATTERNS", null_patterns)
                reader = BinlogReader(Packets(*fde_55(old_decimal(rows))), options=StreamOptions(schema=schema))
                found = [row for batch in reader.changes() if isinstance(batch, RowBatch) for row in batch.rows]
            assert found == [{"price": text.decode().strip(), "name": name.decode()} for text in texts]


@pytest.mark.parametrize("text", [b"       0.0", b"       . 0", b"  1 2345.67", b"-", b"x", b"0" * 14 + b".00"])
def test_a_broken_decimal_from_before_mysql_five_is_refused(text: bytes) -> None:
    """Invalid bytes raise an error with their position; no value is guessed."""
    schema = Schema(("price", "decimal(10,2)", None), ("name", "varchar(20)", "latin1"))
    reader = BinlogReader(Packets(*fde_55(old_decimal(b"\0" + text + b"\x01x"))), options=StreamOptions(schema=schema))
    with pytest.raises(CorruptBinlog, match=r"made:\d+: a rows event of d\.t cannot be decoded"):
        list(reader.changes())


def fde_55(data: list[bytes]) -> list[bytes]:
    """MySQL 5.5 has no checksum field in its format description."""
    head = bytearray(data[0])
    size = len(head) - 4 - 5
    struct.pack_into("<I", head, 4 + 9, size)
    return [bytes(head[: 4 + size]), *data[1:]]


def test_a_schema_of_another_time_is_refused() -> None:
    """Another number of columns or another type belongs to another position: no value is decoded with it."""
    writer = BinlogWriter()
    data = [writer.begin(NOW), *transaction(writer, {"id": 1, "name": "a"})]
    for hints in ([("id", "int", None)], [("id", "varchar(9)", "latin1"), ("name", "varchar(20)", "latin1")]):
        options = StreamOptions(schema=Schema(*hints))
        with pytest.raises(UndecodableValue, match="belongs to another position"):
            list(BinlogReader(Packets(*data), options=options).changes())


def test_unknown_signs_are_refused_unless_assumed() -> None:
    """An integer that is negative or large: refused, or decoded as configured if the user decides so."""
    writer = BinlogWriter(server_version="5.7.44")
    body = (7).to_bytes(6, "little") + b"\x01\0" + b"\x01d\0" + b"\x01t\0" + b"\x01\x01" + b"\0" + b"\0"
    row = (7).to_bytes(6, "little") + b"\x01\0\x02\0" + b"\x01\xff"
    for value, sign, expected in ((b"\xff", "signed", -1), (b"\xff", "unsigned", 255), (b"\x7f", "refuse", 127)):
        data = [writer.begin(NOW), writer.query("d", "BEGIN", NOW), writer.event(19, body, NOW)]
        data += [writer.event(30, row + b"\0" + value, NOW), writer.xid(1, NOW)]
        flavour = Flavour(unknown_sign=sign)  # type: ignore[arg-type]
        reader = BinlogReader(Packets(*data), options=StreamOptions(flavour=flavour))
        assert [c.rows for c in reader.changes() if isinstance(c, RowBatch)] == [[{"@1": expected}]]
    data = [writer.begin(NOW), writer.query("d", "BEGIN", NOW), writer.event(19, body, NOW)]
    data += [writer.event(30, row + b"\0\xff", NOW), writer.xid(1, NOW)]
    with pytest.raises(UndecodableValue, match=r"negative if signed"):
        list(BinlogReader(Packets(*data)).changes())


def test_values_and_converter() -> None:
    """A row event set returns typed values; absent is not NULL; conversions are exact or refused."""
    writer = BinlogWriter()
    data = [writer.begin(NOW), writer.anonymous(NOW), writer.query("d", "BEGIN", NOW)]
    data.append(writer.table_map(1, "d", "t", [ID, NAME], NOW))
    data.append(writer.rows("update", 1, [ID, NAME], [({"id": 7}, {"name": None})], NOW))
    data.append(writer.xid(1, NOW))
    batch = next(c for c in BinlogReader(Packets(*data)).changes() if isinstance(c, RowBatch))
    before, after = list(RowEventSet(batch))
    assert before.named("name").is_absent
    assert not before.named("name").is_null
    assert after.named("name").is_null
    assert before.named("id").as_integer() == 7
    assert list(RowEventSet(batch).pairs()) == [(before, after)] or len(list(RowEventSet(batch).pairs())) == 1
    to = Converter()
    assert to.to_text(before[0]) == "7"
    with pytest.raises(UndecodableValue, match="lacks this column"):
        to.to_text(before.named("name"))
    price = TypedValue(type=T.NEWDECIMAL, metadata=0, raw="12.50")
    assert (to.to_decimal(price), to.to_float(price)) == (Decimal("12.50"), 12.5)
    with pytest.raises(UndecodableValue, match="not an integer"):
        to.to_integer(price)
    assert to.to_floats(TypedValue(type=T.VECTOR, metadata=0, raw=struct.pack("<2f", 1.5, -2))) == [1.5, -2.0]
    for text in ("[" * 5000, "{"):
        with pytest.raises(UndecodableValue, match="is not JSON"):
            to.to_json(TypedValue(type=T.BLOB, metadata=0, raw=text))


def test_the_same_over_a_result_set() -> None:
    """Values of a client's result set are converted like those of row events."""
    rows = list(ResultSet([("id", 3, None, 11), ("name", 253, None, 80)], [(7, "seven"), (8, None)]))
    assert Converter().to_text(rows[0].named("id")) == "7"
    assert rows[1].named("name").is_null
    assert rows[0][0].type is T.LONG


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("DROP TABLE IF EXISTS `a`, b.`c``d` /* generated by server */", [("drop", "d", "a"), ("drop", "b", "c`d")]),
        ("/*!40000 TRUNCATE */ table x", [("truncate", "d", "x")]),
        ("RENAME TABLE a TO b.c, d TO e", [("rename", "d", "a"), ("rename", "d", "d")]),
        ("ALTER TABLE a ADD COLUMN b INT DEFAULT 'RENAME TO x', RENAME AS z", [("rename", "d", "a")]),
        ("alter table a rename column b to c, rename key d to e", []),
        ("ALTER TABLE a TRUNCATE PARTITION p0", [("partition", "d", "a")]),
        ("CREATE OR REPLACE TABLE a (x INT)", [("drop", "d", "a"), ("create", "d", "a")]),
        ("DROP TEMPORARY TABLE t", []),
        ("SET STATEMENT max_statement_time=1 FOR DROP TABLE a", [("drop", "d", "a")]),
        ("DELETE FROM `d`.`memory`", [("truncate", "d", "memory")]),
        ("DROP DATABASE IF EXISTS x", [("drop_database", "x", "")]),
    ],
)
def test_effects_of_statements(statement: str, expected: list[tuple[str, str, str]]) -> None:
    """The effect of a statement on whole tables is determined by tokens, whatever quotes and comments contain."""
    assert [(x.kind, x.database, x.table) for x in effects("d", statement)] == expected


@pytest.mark.parametrize(
    ("statement", "changes"),
    [("insert into t values (1)", True), ("-- x\nUPDATE t SET a=1", True), ("DELETE FROM t WHERE a=1", True),
     ("WITH x AS (SELECT 1) DELETE FROM t", True), ("CREATE TABLE t (a INT)", False), ("DELETE FROM t", False)],
)  # fmt: skip
def test_statements_that_change_rows_are_noticed(statement: str, changes: bool) -> None:
    """Row changes that were logged as statements are never taken for DDL."""
    assert changes_rows(statement) is changes


def test_gtid_sets() -> None:
    """Sets of both families: text, membership, tags, the wire format and its inverse."""
    text = "11111111-2222-3333-4444-555555555555:1-3:5:tag_a:1-2,aaaaaaaa-2222-3333-4444-555555555555:7"
    gtids = GtidSet.parse(text)
    assert str(gtids) == text
    assert GtidSet.decode(gtids.encode()) == gtids
    assert gtids.contains("11111111-2222-3333-4444-555555555555", "tag_a", 2)
    assert not gtids.contains("11111111-2222-3333-4444-555555555555", "", 4)
    assert gtids.add("11111111-2222-3333-4444-555555555555", "", 4).covers(gtids)
    assert str(MariaGtidSet.parse("1-2-3,0-1-5")) == "0-1-5,1-2-3"
    with pytest.raises(ValueError, match="no interval"):
        GtidSet.parse("11111111-2222-3333-4444-555555555555")


def test_positions_and_addresses_are_parsed() -> None:
    """Each format is parsed, an invalid one is reported with the remedy, a password is never shown."""
    assert parse_position("binlog.000003:120") == BinlogPosition(file="binlog.000003", position=120)
    assert parse_position("120") == BinlogPosition(position=120)
    assert isinstance(parse_position("0-1-5,1-1-7").gtids, MariaGtidSet)
    assert isinstance(parse_position("11111111-2222-3333-4444-555555555555:1-5").gtids, GtidSet)
    for time in ("2026-03-01", "2026-11-05", "2026-11-27T12:00:00", "2026-11-27 12:00", "2026-03-01T12:00+01:00"):
        with pytest.raises(ValueError, match="is a time, not a position"):
            parse_position(time)
    assert isinstance(parse_position("2026-11-27").gtids, MariaGtidSet), "a GTID of MariaDB"
    assert parse_position("2026-03.000001:4").file == "2026-03.000001"
    address = parse_uri("mysql://me:s%40cret@db:3307?heartbeat=2&ssl=off")
    assert isinstance(address, ServerAddress)
    assert (address.port, address.password, address.heartbeat, address.ssl) == (3307, "s@cret", 2.0, "off")
    assert "s@cret" not in repr(address)
    assert parse_uri("file:///var/lib/binlog.000001") == FileAddress(path="/var/lib/binlog.000001")
    for wrong in ("mysql://", "http://db", "mysql://db?colour=red", "mysql://db?ssl=maybe", "file://host/x"):
        with pytest.raises(UsageError):
            parse_uri(wrong)


def test_the_library_is_importable_alone() -> None:
    """It imports neither Kafka nor Spark nor another stage."""
    import subprocess
    import sys

    code = (
        "import sys, ingest.binlog; loaded = {name.split('.')[0] for name in sys.modules};"
        "assert not loaded & {'kafka', 'confluent_kafka', 'pyspark', 'joins', 'indexer', 'tailorbird', 'pymysql'}"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_absent_is_not_null_in_tuples_either() -> None:
    """In tuples an absent column has a special marker."""
    writer = BinlogWriter()
    data = [writer.begin(NOW), writer.anonymous(NOW), writer.query("d", "BEGIN", NOW)]
    data += [writer.table_map(1, "d", "t", [ID, NAME], NOW), writer.rows("delete", 1, [ID, NAME], [{"id": 1}], NOW)]
    data.append(writer.xid(1, NOW))
    options = StreamOptions(flavour=Flavour(rows="tuple"))
    rows = [c.rows for c in BinlogReader(Packets(*data), options=options).changes() if isinstance(c, RowBatch)]
    assert rows == [[(1, ABSENT)]]
