"""Log events become records: keys, envelopes, tombstones, markers, quarantine, and the parts of a huge transaction."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import orjson
import pytest

from cdc.formats.debezium import from_envelope, to_envelope
from cdc.model.errors import Fatal
from cdc.model.event import Position
from cdc.model.naming import TRUNCATE_KEY
from cdc.model.schema import Column, TableId
from cdc.model.types import Canonical
from ingest.ddl.catalog import Catalog, ColumnDefinition, Key, TableDefinition
from ingest.ddl.dialect import dialect_of
from ingest.events.log_events import (
    LogEvent,
    Operation,
    RefusedImage,
    RowsLogged,
    RowsQuarantined,
    StatementLogged,
    TableDescribed,
    TransactionBegan,
    TransactionEnded,
)
from ingest.events.tables import Tables
from ingest.records.capture_interfaces import EVERY_PARTITION, Checkpoint, Record
from ingest.records.images import MAX_IMAGE, snapshot_records
from ingest.records.records import Recorder, checkpoint_value, read_checkpoint
from ingest.records.snapshots import Snapshots
from ingest.repair.altered import AlteringTransactions as Transactions
from ingest.repair.repairing import RepairingTransactions
from ingest.repair.rounds import RepairRunner

UUID = "1e4be0df-e594-11f1-ae82-02fc00000001"
TABLE = TableId(source="s", database="d", table="t")
START = Checkpoint(position=Position(file="f1", pos=4, gtid_set=f"{UUID}:1-6", sequence=100), snapshot="done", ts_ms=5)
BROKEN = RefusedImage(values={"id": 1, "v": "0000-00-00"}, why="column v: not a day")
BEGAN = TransactionBegan(f"{UUID}:7", 1_700_000_000_123_456, 9, "f1", 20)
ENDED = TransactionEnded("f1", 99)


class EndedStream:
    """A stream that has ended the transactions of its GTID set."""

    gtid_set = f"{UUID}:1-7"
    place = ("binlog.000001", 4)

    @property
    def state(self) -> dict[str, Any]:
        return {}

    def reached(self, position: Position) -> bool:
        return True

    def __iter__(self) -> Iterator[LogEvent]:
        return iter(())


def tables() -> Tables:
    """Table `t` of database `d`: `id` is its key, `v` a text."""
    found = Tables("s", ["d"], lambda database, table: (database, table) == ("d", "t"), dialect_of("mysql"))
    columns = (
        ColumnDefinition(name="id", column_type="int", nullable=False, charset=None),
        ColumnDefinition(name="v", column_type="text", nullable=True, charset="utf8mb4"),
    )
    table = TableDefinition(
        columns=columns, keys=(Key(name="PRIMARY", kind="primary", columns=("id",)),), charset="utf8mb4"
    )
    found.begin(Catalog(default_charset="utf8mb4", databases={"d": "utf8mb4"}, tables={("d", "t"): table}))
    return found


def rows(operation: Operation, *found: Any, pos: int = 40) -> RowsLogged:
    plain = not any(
        isinstance(image, RefusedImage) for row in found for image in (row if operation == "update" else [row])
    )
    return RowsLogged(TABLE, operation, found, plain, "f1", pos)


def feed(
    *log_events: LogEvent, start: Checkpoint = START, began: TransactionBegan = BEGAN
) -> tuple[Transactions, list[Record]]:
    transactions = Transactions(Recorder("top"), tables(), start)
    records: list[Record] = []
    for log_event in (began, *log_events, ENDED):
        records += transactions.records(log_event, 1_700_000_000_200)
    return transactions, records


def envelopes(records: list[Record]) -> list[dict[str, Any]]:
    return [orjson.loads(r.value) for r in records if r.value is not None and r.topic == "top.s.d.t"]


def test_an_update_in_debeziums_envelope() -> None:
    """Source block, times in ms, transaction orders: the fields that every Debezium consumer reads."""
    transactions, records = feed(
        rows("insert", {"id": 1, "v": "a"}, pos=30), rows("update", ({"id": 1, "v": "a"}, {"id": 1, "v": "b"}))
    )
    assert records[1].key == b'{"id":1}'
    assert envelopes(records)[1] == {
        "before": {"id": 1, "v": "a"},
        "after": {"id": 1, "v": "b"},
        "source": {
            "version": "tailorbird-1", "connector": "mysql", "name": "top.s", "ts_ms": 1_700_000_000_123,
            "snapshot": "false", "db": "d", "table": "t", "server_id": 9, "gtid": f"{UUID}:7", "file": "f1",
            "pos": 40, "row": 1, "sequence": 102,
        },
        "op": "u",
        "ts_ms": 1_700_000_000_200,
        "transaction": {"id": f"{UUID}:7", "total_order": 2, "data_collection_order": 2},
    }  # fmt: skip
    position = transactions.checkpoint(EndedStream()).position
    assert position == Position(file="f1", pos=99, gtid_set=f"{UUID}:1-7", sequence=102)


def test_the_fast_path_writes_the_bytes_of_the_envelope() -> None:
    """The fast path writes, byte for byte, the output of `cdc.formats.debezium`; also for snapshots and markers."""
    _, records = feed(
        rows("insert", {"id": 1, "v": 'q"\n%d é'}),
        rows("update", ({"id": 1, "v": "a"}, {"id": 2, "v": None})),
        rows("delete", {"id": 2, "v": None}),
        StatementLogged("d", "TRUNCATE t", 1, 0),
    )
    low = START.position
    schema = tables().schema(TABLE)
    records += snapshot_records(Recorder("top"), Recorder("top").writer(schema), [{"id": 3, "v": "x"}], low, 7)
    written = [record.value for record in records if record.value is not None]
    assert len(written) == 6
    for value in written:
        assert value == orjson.dumps(to_envelope(from_envelope(orjson.loads(value)), "top"))


def test_a_delete_is_followed_by_a_tombstone() -> None:
    """Compaction then removes the key of a deleted row."""
    _, records = feed(rows("delete", {"id": 1, "v": "a"}))
    assert [(r.key, r.value is None) for r in records] == [(b'{"id":1}', False), (b'{"id":1}', True)]


def test_a_moved_key_is_deleted_and_created() -> None:
    """No row remains under the old key."""
    _, records = feed(rows("update", ({"id": 1, "v": "a"}, {"id": 2, "v": "a"})))
    assert [(r.key, r.value is None) for r in records] == [
        (b'{"id":1}', False),
        (b'{"id":1}', True),
        (b'{"id":2}', False),
    ]
    assert [(e["op"], e["source"]["sequence"]) for e in envelopes(records)] == [("d", 101), ("c", 102)]


@pytest.mark.parametrize(
    ("log_event", "ops"),
    [
        (rows("insert", BROKEN), []),
        (rows("update", ({"id": 1, "v": "a"}, BROKEN)), ["d"]),
        (rows("update", (BROKEN, {"id": 1, "v": "a"})), ["c"]),
        (rows("update", (BROKEN, BROKEN)), []),
        (rows("delete", BROKEN), []),
    ],
)
def test_a_refused_image_counts_as_no_row(log_event: RowsLogged, ops: list[str]) -> None:
    """A new image that cannot be published becomes a dead letter with its values, and the outdated row is deleted.

    An old image does not: it was never published, and is no longer the row.
    """
    transactions, records = feed(log_event)
    assert [e["op"] for e in envelopes(records)] == ops
    dead_letters = [orjson.loads(r.value) for r in records if r.topic == "top.deadletters" and r.value]
    newest = (
        log_event.rows[0][1]
        if log_event.operation == "update"
        else None
        if log_event.operation == "delete"
        else log_event.rows[0]
    )
    assert len(dead_letters) == transactions.refused == (newest is BROKEN)
    assert all(
        dead_letter["values"] == BROKEN.values and dead_letter["why"] == BROKEN.why for dead_letter in dead_letters
    )
    assert all(dead_letter["gtid"] == f"{UUID}:7" for dead_letter in dead_letters)


def test_a_row_that_no_record_can_hold_is_refused() -> None:
    """A row larger than a Kafka record goes to the dead letters, truncated; only the size decides, before and after."""
    huge: dict[str, Canonical] = {"id": 1, "v": "x" * MAX_IMAGE}
    _, records = feed(rows("insert", huge), rows("update", (huge, {"id": 1, "v": "small"})))
    assert [e["op"] for e in envelopes(records)] == ["c"]
    dead_letters = [r for r in records if r.topic == "top.deadletters"]
    assert len(dead_letters) == 1
    assert all(r.value is not None and len(r.value) < 10_000 for r in dead_letters)
    writer = Recorder("top").writer(tables().schema(TABLE))
    assert snapshot_records(Recorder("top"), writer, [huge], START.position, 1)[0].topic == "top.deadletters"


def test_a_schema_is_published_when_it_changes() -> None:
    """The new version and the history's record precede the rows that use it, with a number of their own."""
    transactions, records = feed(
        StatementLogged("d", "ALTER TABLE t ADD w INT", 1, 0), rows("insert", {"id": 1, "v": "a", "w": 5})
    )
    assert [record.topic for record in records] == ["top.history", "top.schemas", "top.s.d.t"]
    assert records[0].value is not None
    assert orjson.loads(records[0].value)["sequence"] == 101
    assert envelopes(records)[0]["source"]["sequence"] == 102
    assert transactions.checkpoint(EndedStream()).position.sequence == 102


def test_statements_about_other_things_take_no_number() -> None:
    """Statements that change no captured table publish nothing."""
    transactions, records = feed(
        StatementLogged("d", "CREATE USER x", 1, 0), StatementLogged("d", "ANALYZE TABLE t", 1, 0)
    )
    assert records == []
    assert transactions.checkpoint(EndedStream()).position.sequence == 100


def test_a_truncated_table_is_marked_in_every_partition() -> None:
    """TRUNCATE has no row events: a marker is published under a key that no row has."""
    _, records = feed(StatementLogged("d", "TRUNCATE TABLE t", 1, 0))
    assert [(r.key, r.partition) for r in records] == [(TRUNCATE_KEY, EVERY_PARTITION)]
    (mark,) = envelopes(records)
    assert (mark["op"], mark["before"], mark["after"], mark["source"]["sequence"]) == ("t", None, None, 101)


def test_the_logs_own_metadata_end_a_quarantine() -> None:
    """A statement that is not understood makes the columns unknown, until the next TABLE_MAP names them."""
    columns = (
        Column(name="id", column_type="int", nullable=False),
        Column(name="n", column_type="varchar(5)", charset="latin1"),
    )
    _, records = feed(
        StatementLogged("d", "ALTER TABLE t FROBNICATE", 1, 0),
        TableDescribed(TABLE, columns, ("id",)),
        rows("insert", {"id": 1, "n": "a"}),
    )
    assert [record.topic for record in records] == ["top.history", "top.history", "top.schemas", "top.s.d.t"]
    assert records[2].value is not None
    assert [c["name"] for c in orjson.loads(records[2].value)["columns"]] == ["id", "n"]


def test_rows_that_cannot_be_decoded_are_kept_as_bytes() -> None:
    """The raw events go to the quarantine with their position and the reason; the rest of the transaction flows."""
    kept = RowsQuarantined(TABLE, "unknown columns", "8.0.15", b"map", b"rows", "f1", 40)
    transactions, records = feed(kept, rows("insert", {"id": 1, "v": "a"}))
    assert [record.topic for record in records] == ["top.quarantine", "top.s.d.t"]
    assert records[0].value is not None
    dead_letter = orjson.loads(records[0].value)
    assert (dead_letter["why"], dead_letter["table_map"], dead_letter["event"]) == (
        "unknown columns",
        "bWFw",
        "cm93cw==",
    )
    assert (dead_letter["gtid"], dead_letter["file"], dead_letter["pos"]) == (f"{UUID}:7", "f1", 40)
    assert transactions.quarantined == 1
    transactions.records(BEGAN, 0)
    transactions.records(kept._replace(why="another reason"), 0)
    reported = {
        "sequence": dead_letter["sequence"],
        "events": 2,
        "since_ms": dead_letter["source_ts_ms"],
        "why": "another reason",
    }
    assert transactions.kept == {"d.t": reported}
    assert (
        Transactions(Recorder("top"), tables(), replace(START, state={"kept": {"d.t": reported}})).kept
        == transactions.kept
    )
    older = Transactions(Recorder("top"), tables(), replace(START, state={"kept": {"d.t": 7}}))
    assert older.kept["d.t"]["sequence"] == 7


def test_a_huge_transaction_resumes_at_the_next_row() -> None:
    """It is published in parts: the second part has the numbers that it would have had, and repeats nothing."""
    inserts = [rows("insert", *({"id": 10 * n + i, "v": "x"} for i in range(3)), pos=n) for n in range(4)]
    _, whole = feed(*inserts)
    first = Transactions(Recorder("top"), tables(), START)
    begun: list[LogEvent] = [BEGAN, *inserts[:2]]
    part = [record for log_event in begun for record in first.records(log_event, 1_700_000_000_200)]
    stored = checkpoint_value(first.checkpoint(EndedStream()), "s", {})
    checkpoint, _ = read_checkpoint(stored)
    assert (checkpoint.position.row, checkpoint.position.file, checkpoint.position.pos) == (6, "f1", 4)
    # after a failover the same rows may be in events of other sizes
    other = [
        rows("insert", *inserts[0].rows, *inserts[1].rows[:2]),
        rows("insert", inserts[1].rows[2], *inserts[2].rows),
    ]
    _, rest = feed(*other, inserts[3], start=checkpoint)
    numbers = [e["source"]["sequence"] for e in envelopes(part + rest)]
    assert numbers == list(range(101, 113))
    assert [(e["after"], e["source"]["row"], e["transaction"]) for e in envelopes(part + rest)] == [
        (e["after"], e["source"]["row"], e["transaction"]) for e in envelopes(whole)
    ]


def repairing(start: Checkpoint = START) -> tuple[RepairingTransactions, Snapshots]:
    """Return transactions with a repairer of tables, whose snapshots are those that run."""
    found, recorder = tables(), Recorder("top")
    snapshots = Snapshots(recorder, found, {})
    repairs = RepairRunner(recorder, found, snapshots, {}, follow=False)
    return RepairingTransactions(recorder, found, start, snapshots, repairs), snapshots


def test_a_published_part_of_a_lost_transaction_is_repaired() -> None:
    """A server that took over may lack a transaction that was published in part, or roll it back: its tables are read
    again, and the source continues."""
    first = Transactions(Recorder("top"), tables(), START)
    for log_event in (BEGAN, rows("insert", {"id": 1, "v": "x"})):
        first.records(log_event, 1)
    checkpoint = first.checkpoint(EndedStream())
    other = BEGAN._replace(gtid=f"{UUID}:8")
    log_events: list[list[LogEvent]] = [[other, rows("insert", {"id": 2, "v": "x"}), ENDED], [BEGAN, ENDED]]
    for others in log_events:
        transactions, snapshots = repairing(checkpoint)
        records = [record for log_event in others for record in transactions.records(log_event, 1)]
        assert [event["after"]["id"] for event in envelopes(records)] == [2] * (len(others) - 2)
        assert snapshots.state["d.t"]["marker"] > checkpoint.position.sequence
        assert transactions.whole


def test_a_transaction_truncated_by_the_log_is_repaired() -> None:
    """A server that crashed may have logged only a part of a transaction: its published rows are repaired."""
    transactions, snapshots = repairing()
    for log_event in (BEGAN, rows("insert", {"id": 1, "v": "x"}), BEGAN._replace(gtid=f"{UUID}:8"), ENDED):
        transactions.records(log_event, 1)
    assert list(snapshots.state) == ["d.t"]


def test_checkpoints_read_back() -> None:
    """A stored position is read unchanged; one of a newer format is refused."""
    ends = {"top.s.d.t": {0: 7, 1: 0}}
    stored = checkpoint_value(START, "s", ends)
    assert read_checkpoint(stored) == (START, ends)
    with pytest.raises(Fatal, match="format 2"):
        read_checkpoint(stored.replace(b'"format":1', b'"format":2'))
