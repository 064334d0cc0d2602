"""External records become log events: Debezium's with and without schema, Maxwell's, upserts."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import pytest

from cdc.model.event import Position
from cdc.model.geometry import point_of
from cdc.model.schema import TableId
from ingest.binlog.format.canonical import Unrepresentable
from ingest.ddl.catalog import Catalog
from ingest.ddl.dialect import Dialect
from ingest.events.log_events import CaughtUp, LogEvent, RefusedImage, RowsLogged, TableAltered, TableEmptied
from ingest.events.tables import Tables
from ingest.mirror.connect import columns_of
from ingest.mirror.formats import debezium, maxwell, upsert
from ingest.mirror.topics import OFFSETS, InputRecord, MirroredTable, PartitionEnd, TopicEvents, reads_of
from ingest.mirror.values import reader_of
from ingest.records.capture_interfaces import Checkpoint

TABLE = TableId(source="crm", database="crm", table="customers")
COLUMNS = (("id", "bigint"), ("name", "varchar(100)"), ("credit", "decimal(10,2)"), ("since", "datetime(3)"))
POINT = point_of(2.35, 48.85, 4326)
FIELDS = [
    {"type": "int64", "optional": False, "field": "id"},
    {"type": "string", "optional": True, "field": "name"},
    {"type": "bytes", "optional": True, "name": "org.apache.kafka.connect.data.Decimal", "field": "credit",
     "parameters": {"scale": "2", "connect.decimal.precision": "10"}},
    {"type": "int64", "optional": True, "name": "io.debezium.time.Timestamp", "field": "since"},
]  # fmt: skip


def envelope(op: str, before: Any, after: Any, *, pos: int = 100, snapshot: str = "false", **more: Any) -> bytes:
    source = {"connector": "mysql", "db": "crm", "table": "customers", "ts_ms": 1_600_000_000_000, "server_id": 7,
              "file": "binlog.000003", "pos": pos, "row": 0, "snapshot": snapshot, **more}  # fmt: skip
    return json.dumps({"before": before, "after": after, "source": source, "op": op, "ts_ms": 1}).encode()


def with_schema(payload: bytes, fields: Any = FIELDS) -> bytes:
    structs = [{"type": "struct", "fields": fields, "optional": True, "field": name} for name in ("before", "after")]
    return json.dumps({"schema": {"type": "struct", "fields": structs}, "payload": json.loads(payload)}).encode()


def log_events(
    *records: tuple[bytes | None, bytes | None] | None, columns: Any = COLUMNS, form: str = "debezium",
    start: Checkpoint | None = None, key: tuple[str, ...] = (),
) -> tuple[list[LogEvent], TopicEvents]:  # fmt: skip
    """Return the log events of records of one partition, without the transaction events around them."""
    one = MirroredTable(table=TABLE, topic="in", columns=columns, key=key)
    tables = Tables("crm", {"crm"}, lambda d, t: (d, t) == ("crm", "customers"), Dialect(server="kafka", version=0))
    known = reads_of(one, None, "string")
    if known is not None:
        tables.begin(Catalog(tables={("crm", "customers"): known.definition}))
    begins = start.state[OFFSETS]["in:0"][0] if start is not None else 0

    def feed() -> Iterator[InputRecord | PartitionEnd | None]:
        for offset, record in enumerate(records):
            yield None if record is None else InputRecord("in", 0, begins + offset, *record, 5)
        yield PartitionEnd("in", 0, begins + len(records) + 2)  # after markers of transactions

    class Feed:
        def __iter__(self) -> Iterator[InputRecord | PartitionEnd | None]:
            return feed()

    position = Position(file="", pos=0, gtid_set="", sequence=0)
    read = TopicEvents(
        Feed(), tables, (one,), start or Checkpoint(position=position, snapshot="done", ts_ms=0),
        starts={"in:0": begins}, form=form,
        decimals="string",
    )  # fmt: skip
    reported = [event for event in read if isinstance(event, RowsLogged | TableAltered | TableEmptied | CaughtUp)]
    return [event for event in reported if not isinstance(event, TableAltered) or columns == ()], read


def rows(found: list[LogEvent]) -> list[tuple[str, Any]]:
    return [(event.operation, event.rows[0]) for event in found if isinstance(event, RowsLogged)]


def test_debezium_without_schema_is_read_by_the_topologys_columns() -> None:
    """Values in any of Debezium's modes become canonical."""
    first = {"id": 1, "name": "Ada", "credit": "1.5", "since": 1_600_000_000_500}
    second = {"id": 1, "name": None, "credit": 2, "since": "2020-09-13T12:26:40.5Z"}
    found, _ = log_events(
        (b'{"id":1}', envelope("r", None, first, snapshot="true")),
        (b'{"id":1}', envelope("u", first, second)),
        (b'{"id":1}', envelope("d", second, None, pos=200)),
        (b'{"id":1}', None),
    )
    one = {"id": 1, "name": "Ada", "credit": "1.50", "since": "2020-09-13T12:26:40.5Z"}
    two = {"id": 1, "name": None, "credit": "2.00", "since": "2020-09-13T12:26:40.5Z"}
    assert rows(found) == [("insert", one), ("update", (one, two)), ("delete", two)]


def test_debezium_with_schema_needs_no_columns() -> None:
    """The inline schema has types and key; a different one is a schema change at its record."""
    credit = base64.b64encode((150).to_bytes(2, "big")).decode()
    row = {"id": 1, "name": "Ada", "credit": credit, "since": 1_600_000_000_500}
    key = json.dumps({"schema": {}, "payload": {"id": 1}}).encode()
    more = [*FIELDS, {"type": "int32", "optional": True, "name": "io.debezium.time.Date", "field": "born"}]
    found, _ = log_events(
        (key, with_schema(envelope("c", None, row))),
        (key, with_schema(envelope("u", row, {**row, "born": 365}, pos=200), more)),
        columns=(),
    )
    assert rows(found)[1][1][1]["born"] == "1971-01-01Z"
    altered = [event for event in found if isinstance(event, TableAltered)]
    assert [[c.name for c in event.definition.columns] for event in altered][1] == [
        "id", "name", "credit", "since", "born",
    ]  # fmt: skip
    assert altered[0].definition.primary_key == ("id",)
    assert [c.column_type for c in altered[0].definition.columns] == [
        "bigint", "longtext", "decimal(10,2)", "datetime(3)",
    ]  # fmt: skip
    assert rows(found)[0] == (
        "insert", {"id": 1, "name": "Ada", "credit": "1.50", "since": "2020-09-13T12:26:40.5Z"},
    )  # fmt: skip


def test_debezium_of_a_table_without_before_images() -> None:
    """PostgreSQL's default identity: updates without a before image, deletes with the key alone, or none."""
    after = {"id": 1, "name": "a", "credit": None, "since": None}
    found, _ = log_events(
        (b'{"id":1}', envelope("u", None, after, pos=1)),
        (b'{"id":1}', envelope("d", {"id": 1, "name": None, "credit": None, "since": None}, None, pos=2)),
        (b'{"id":2}', envelope("d", None, None, pos=3)),
    )
    assert rows(found)[0] == ("update", (None, after))
    assert rows(found)[2] == ("delete", {"id": 2})


def test_repeated_records_are_published_once() -> None:
    """A restarted connector publishes again: the positions in the database's log decide, not the order of arrival."""
    row = {"id": 1, "name": "a", "credit": None, "since": None}
    events = [(b'{"id":1}', envelope("u", row, {**row, "name": str(n)}, pos=n)) for n in range(1, 6)]
    found, read = log_events(*events, *events[2:], (b'{"id":1}', envelope("u", row, row, pos=6)))
    assert [change[1]["name"] for _, change in rows(found)] == ["1", "2", "3", "4", "5", "a"]
    assert read.repeated == 3
    state = read.state
    assert state[OFFSETS]["in:0"] == [11, ["7", [3, 6, 0, 1]]]
    again = Checkpoint(
        position=Position(file="topics", pos=11, gtid_set="", sequence=6), snapshot="done", ts_ms=0, state=state
    )
    found, _ = log_events(events[4], (b'{"id":1}', envelope("u", row, row, pos=7)), start=again)
    assert len(rows(found)) == 1


def test_a_new_server_and_a_new_snapshot_begin_again() -> None:
    """After a failover the positions are another server's; rows that are read again have none."""
    row = {"id": 1, "name": "a", "credit": None, "since": None}
    found, _ = log_events(
        (b'{"id":1}', envelope("u", row, row, pos=900)),
        (b'{"id":1}', envelope("r", None, row, pos=3, snapshot="incremental")),
        (b'{"id":1}', envelope("u", row, row, pos=4, server_id=8)),
    )
    assert [operation for operation, _ in rows(found)] == ["update", "insert", "update"]


def test_changes_with_one_position_are_not_taken_for_repeated() -> None:
    """A changed key is a delete and a create with one position; all rows of a COPY have one LSN."""
    row = {"id": 1, "name": "a", "credit": None, "since": None}
    found, read = log_events(
        (b'{"id":1}', envelope("d", row, None)), (b'{"id":2}', envelope("c", None, {**row, "id": 2}))
    )
    assert [operation for operation, _ in rows(found)] == ["delete", "insert"]
    copied = [(None, envelope("c", None, {**row, "id": n}, file=None, lsn=77)) for n in range(3)]
    found, read = log_events(*copied, (None, envelope("c", None, row, file=None, lsn=70)))
    assert len(rows(found)) == 3
    assert read.repeated == 1


def test_truncate_and_other_messages() -> None:
    """TRUNCATE empties the table; tombstones, heartbeats and logical messages change nothing."""
    found, _ = log_events(
        (None, envelope("t", None, None)), (b'{"id":1}', None), (b"{}", b'{"ts_ms": 5}'),
        (None, b'{"op": "m", "message": {}}'), None,
    )  # fmt: skip
    assert [type(event) for event in found] == [TableEmptied, CaughtUp]


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (b"\xff\x00", "not a record of the topic's format"),
        (b"[1]", "not a JSON object"),
        (b'{"op": "x", "source": {}}', "unknown op 'x'"),
        (b'{"op": "u", "source": {}, "after": 3}', "without its after image"),
        (envelope("c", None, {"id": 1, "name": "a", "credit": "lots", "since": 0}), "column credit"),
        (envelope("c", None, {"id": 1, "name": "a"}), "column credit: missing in the record"),
        (envelope("c", None, {"id": 1, "name": "a", "credit": "1.005", "since": 0}), "more than 2 digits"),
    ],
)
def test_an_unreadable_record_is_a_dead_letter(value: bytes, why: str) -> None:
    """Nothing is skipped or guessed, and later records continue."""
    good = {"id": 2, "name": "b", "credit": None, "since": None}
    found, _ = log_events((b'{"id":1}', value), (b'{"id":2}', envelope("c", None, good, pos=999)))
    (_, image), after = rows(found)
    assert isinstance(image, RefusedImage)
    assert why in image.reason
    assert after == ("insert", good)


def test_maxwell() -> None:
    """Its documented records; updates contain the changed columns, and other tables are skipped."""

    def said(kind: str, data: Any, table: str = "customers", **more: Any) -> tuple[bytes, bytes]:
        record = {"database": "crm", "table": table, "type": kind, "ts": 1_449_786_310, "xid": 940_752, "data": data,
                  **more}  # fmt: skip
        key = {"database": "crm", "table": table, "pk.id": (data or {}).get("id")}
        return json.dumps(key).encode(), json.dumps(record).encode()

    one = {"id": 1, "name": "Daisy", "credit": 1.5, "since": "2016-10-21 05:33:37.523"}
    found, read = log_events(
        said("bootstrap-start", {}), said("bootstrap-insert", one), said("bootstrap-complete", {}),
        said("insert", one, "others"),
        said("insert", {**one, "id": 2}, position="master.000006:800911"),
        said("update", {**one, "name": "Daisy D"}, old={"name": "Daisy"}, position="master.000006:800920", xoffset=1),
        said("insert", {**one, "id": 2}, position="master.000006:800911"),
        said("delete", {**one, "name": "Daisy D"}, position="master.000006:800990", commit=True),
        (None, b'{"type": "table-alter", "database": "crm", "table": "customers", "def": {}}'),
        form="maxwell", key=("id",),
    )  # fmt: skip
    whole = {"id": 1, "name": "Daisy", "credit": "1.50", "since": "2016-10-21T05:33:37.523Z"}
    assert rows(found) == [
        ("insert", whole), ("insert", {**whole, "id": 2}), ("update", (whole, {**whole, "name": "Daisy D"})),
        ("delete", {**whole, "name": "Daisy D"}),
    ]  # fmt: skip
    assert read.repeated == 1


@pytest.mark.parametrize("numbered", [True, False], ids=["xoffset", "without xoffset"])
@pytest.mark.parametrize("committed", [True, False], ids=["commit", "without commit"])
def test_no_change_of_a_transaction_of_maxwell_is_lost(numbered: bool, committed: bool) -> None:
    """All changes of a transaction share one position. Maxwell numbers them from 0, but not the last one. A restarted
    Maxwell sends them again: those that have a number, or that precede one, are skipped."""

    def sent(row: int, last: int = 3) -> tuple[bytes, bytes]:
        ending = {"commit": True} if committed and row == last else {"xoffset": row} if numbered and row < last else {}
        data = {"id": row, "name": "Daisy", "credit": None, "since": None}
        record = {"database": "crm", "table": "customers", "type": "insert", "ts": 1_449_786_310, "data": data}
        key = {"database": "crm", "table": "customers", "pk.id": row}
        return json.dumps(key).encode(), json.dumps(record | {"position": "master.000006:800911"} | ending).encode()

    rows_sent = [sent(row) for row in range(4)]
    found, _ = log_events(*rows_sent, form="maxwell", key=("id",))
    assert [after["id"] for _, after in rows(found)] == [0, 1, 2, 3]
    again, read = log_events(*rows_sent, *rows_sent, form="maxwell", key=("id",))
    assert [after["id"] for _, after in rows(again)][:4] == [0, 1, 2, 3]
    assert read.repeated == (4 if committed else 3 if numbered else 0)


def test_upserts() -> None:
    """A key with a row, and a key without one: the record does not say whether the row existed before."""
    found, _ = log_events(
        (b'{"id": 1}', b'{"name": "a", "credit": 1, "since": null}'), (b'{"id": 1}', None), (None, b"{}"),
        form="upsert", key=("id",),
    )  # fmt: skip
    assert rows(found)[:2] == [
        ("update", (None, {"id": 1, "name": "a", "credit": "1.00", "since": None})), ("delete", {"id": 1}),
    ]  # fmt: skip
    assert isinstance(rows(found)[2][1], RefusedImage)


def test_time_of_a_change_is_the_databases() -> None:
    """Freshness is measured from the commit, not from the connector."""
    tables = log_events((b'{"id":1}', envelope("c", None, {"id": 1, "name": "", "credit": None, "since": None})))[1]
    assert tables.place == ("topics", 3)
    assert debezium(b'{"id":1}', envelope("d", None, None)) is not None
    assert maxwell(None, None) is None
    assert upsert(b'{"id":1}', None) is not None


@pytest.mark.parametrize(
    ("field", "value", "column_type", "wanted"),
    [
        ({"type": "int16"}, 5, "smallint", 5),
        ({"type": "boolean"}, True, "bit(1)", True),
        ({"type": "double"}, 1.5, "double", 1.5),
        ({"type": "bytes"}, "AP8=", "longblob", "AP8="),
        ({"type": "int32", "name": "io.debezium.time.Date"}, -1, "date", "1969-12-31Z"),
        ({"type": "string", "name": "io.debezium.time.IsoDate"}, "2017-09-15Z", "date", "2017-09-15Z"),
        ({"type": "int64", "name": "io.debezium.time.MicroTimestamp"}, 1_500_000,
         "datetime(6)", "1970-01-01T00:00:01.5Z"),
        ({"type": "int64", "name": "io.debezium.time.NanoTimestamp"}, 1_500_000_000,
         "datetime(6)", "1970-01-01T00:00:01.5Z"),
        ({"type": "string", "name": "io.debezium.time.ZonedTimestamp"}, "2020-01-01T02:00:00.123456789+02:00",
         "timestamp(6)", "2020-01-01T00:00:00.123456Z"),
        ({"type": "int64", "name": "io.debezium.time.MicroTime"}, -3_600_500_000, "time(6)", "-01:00:00.5"),
        ({"type": "int32", "name": "io.debezium.time.Time"}, 1500, "time(3)", "00:00:01.5"),
        ({"type": "int32", "name": "io.debezium.time.Year"}, 2020, "year", 2020),
        ({"type": "string", "name": "io.debezium.data.Json"}, '{"a": 1}', "json", '{"a": 1}'),
        ({"type": "string", "name": "io.debezium.data.Enum"}, "new", "longtext", "new"),
        ({"type": "struct", "name": "io.debezium.data.VariableScaleDecimal"}, {"scale": 1, "value": "Dw=="},
         "longtext", "1.5"),
        ({"type": "array", "items": {"type": "int32"}}, [1, 2], "json", "[1,2]"),
        ({"type": "struct", "name": "io.debezium.data.geometry.Point"}, POINT, "point", POINT),
        ({"type": "struct", "name": "io.debezium.data.geometry.Geometry"}, {"wkb": POINT["wkb"]}, "geometry",
         {"wkb": POINT["wkb"], "srid": None}),
        ({"type": "array", "name": "io.debezium.data.FloatVector"}, [1, 0.5], "vector", [1.0, 0.5]),
    ],
)  # fmt: skip
def test_types_of_inline_schemas(field: Any, value: Any, column_type: str, wanted: Any) -> None:
    """Debezium's and Connect's logical types, each as documented."""
    (column,), ((_, read),) = columns_of([{**field, "field": "c", "optional": True}])
    assert column.column_type == column_type
    assert read(value) == wanted


@pytest.mark.parametrize(
    ("column_type", "value", "wanted"),
    [
        ("datetime", 1500, "1970-01-01T00:00:01.5Z"),
        ("datetime(6)", 1_500_000, "1970-01-01T00:00:01.5Z"),
        ("timestamp", "2020-01-01T00:00:00Z", "2020-01-01T00:00:00Z"),
        ("timestamp", "2020-01-01 00:00:00", "2020-01-01T00:00:00Z"),
        ("time", 3_600_000_000, "01:00:00"),
        ("time", "-838:59:59", "-838:59:59"),
        ("date", "2020-01-01", "2020-01-01Z"),
        ("json", {"a": [1]}, '{"a":[1]}'),
        ("bit(1)", 1, True),
        ("int", "12", 12),
        ("float", 1, 1.0),
    ],
)
def test_values_by_the_topologys_types(column_type: str, value: Any, wanted: Any) -> None:
    """Each of the forms that writers' settings produce."""
    assert reader_of(column_type)(value) == wanted


@pytest.mark.parametrize(
    ("column_type", "value"),
    [("int", 1.5), ("int", True), ("float", "many"), ("date", "yesterday"), ("datetime", []), ("time", "noon"),
     ("varchar(9)", 5), ("bit(1)", 2), ("decimal(5,2)", "x")],
)  # fmt: skip
def test_a_value_of_another_type_is_refused(column_type: str, value: Any) -> None:
    """It is never guessed."""
    with pytest.raises((Unrepresentable, ValueError)):
        reader_of(column_type)(value)


def test_precise_decimals_without_a_schema() -> None:
    """The topology declares Connect's own form, since such a text may look like a number."""
    assert reader_of("decimal(10,2)", decimals="precise")(base64.b64encode(b"\xff\x6a").decode()) == "-1.50"
