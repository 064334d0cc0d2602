"""Facts become records: keys, envelopes, tombstones, quarantine."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from cdc.errors import Fatal
from cdc.event import Position
from cdc.schema import Column, TableId, TableSchema
from ingest.agent.facts import Change, Refused, RowsLogged, SchemaChanged, TransactionBegan, TransactionEnded
from ingest.agent.records import Recorder, checkpoint_value, read_checkpoint
from ingest.agent.seams import Checkpoint, Record
from ingest.agent.transactions import MAX_IMAGE, Transactions, snapshot_records

UUID = "1e4be0df-e594-11f1-ae82-02fc00000001"
SCHEMA = TableSchema(
    table_id=TableId(source="s", database="d", table="t"),
    version=1,
    columns=(Column(name="id", column_type="int"), Column(name="v", column_type="text")),
    primary_key=("id",),
)
START = Checkpoint(position=Position(file="f1", pos=4, gtid_set=f"{UUID}:1-6", sequence=100), snapshot="done", ts_ms=5)
BROKEN = Refused(values={"id": 1, "v": "0000-00-00"}, why="column v: not a day")


def feed(*changes: Change) -> tuple[Transactions, list[Record]]:
    transactions = Transactions(Recorder("top"), START)
    records = transactions.records(TransactionBegan(gtid=f"{UUID}:7", commit_us=1_700_000_000_123_456, server_id=9), 1)
    for change in changes:
        records += transactions.records(
            RowsLogged(schema=SCHEMA, changes=(change,), file="f1", pos=40), 1_700_000_000_200
        )
    return transactions, records + transactions.records(TransactionEnded(file="f1", pos=99), 1)


def envelopes(records: list[Record]) -> list[dict[str, Any]]:
    return [orjson.loads(r.value) for r in records if r.value is not None and r.topic == "top.s.d.t"]


def test_an_update_in_debeziums_envelope() -> None:
    """Source block, times in ms, transaction orders: what every Debezium consumer reads."""
    transactions, records = feed((None, {"id": 1, "v": "a"}), ({"id": 1, "v": "a"}, {"id": 1, "v": "b"}))
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
    position = transactions.checkpoint().position
    assert position == Position(file="f1", pos=99, gtid_set=f"{UUID}:1-7", sequence=102)


def test_a_delete_is_followed_by_a_tombstone() -> None:
    """Compaction forgets the key of a deleted row."""
    _, records = feed(({"id": 1, "v": "a"}, None))
    assert [(r.key, r.value is None) for r in records] == [(b'{"id":1}', False), (b'{"id":1}', True)]


def test_a_moved_key_is_deleted_and_created() -> None:
    """Nothing stays under the old key."""
    _, records = feed(({"id": 1, "v": "a"}, {"id": 2, "v": "a"}))
    assert [(r.key, r.value is None) for r in records] == [
        (b'{"id":1}', False),
        (b'{"id":1}', True),
        (b'{"id":2}', False),
    ]
    assert [(e["op"], e["source"]["sequence"]) for e in envelopes(records)] == [("d", 101), ("c", 102)]


@pytest.mark.parametrize(
    ("change", "ops"),
    [
        ((None, BROKEN), []),
        (({"id": 1, "v": "a"}, BROKEN), ["d"]),
        ((BROKEN, {"id": 1, "v": "a"}), ["c"]),
        ((BROKEN, BROKEN), []),
        ((BROKEN, None), []),
    ],
)
def test_a_quarantined_image_counts_as_no_row(change: Change, ops: list[str]) -> None:
    """What cannot be told is in the dead letters with its values; nothing stale stays in its place."""
    transactions, records = feed(change)
    assert [e["op"] for e in envelopes(records)] == ops
    letters = [orjson.loads(r.value) for r in records if r.topic == "top.deadletters" and r.value]
    assert len(letters) == transactions.quarantined == sum(isinstance(image, Refused) for image in change)
    assert all(letter["values"] == BROKEN.values and letter["why"] == BROKEN.why for letter in letters)
    assert all(letter["gtid"] == f"{UUID}:7" for letter in letters)


def test_a_row_that_no_record_can_hold_is_quarantined() -> None:
    """A row larger than Kafka takes goes to the dead letters, cut short; the size alone decides, before and after."""
    huge = {"id": 1, "v": "x" * MAX_IMAGE}
    _, records = feed((None, huge), (huge, {"id": 1, "v": "small"}))
    assert [e["op"] for e in envelopes(records)] == ["c"]
    letters = [r for r in records if r.topic == "top.deadletters"]
    assert len(letters) == 2
    assert all(r.value is not None and len(r.value) < 10_000 for r in letters)
    assert snapshot_records(Recorder("top"), SCHEMA, [huge], START.position, 1)[0].topic == "top.deadletters"


def test_a_schema_is_published_where_it_changes() -> None:
    """The new version stands before the rows that have it, and a checkpoint may not separate them from their commit."""
    transactions = Transactions(Recorder("top"), START)
    transactions.records(TransactionBegan(gtid=f"{UUID}:7", commit_us=1, server_id=9), 1)
    assert transactions.clean
    (record,) = transactions.records(SchemaChanged(schema=SCHEMA), 1)
    assert (record.topic, record.key) == ("top.schemas", b"s.d.t")
    assert not transactions.clean
    with pytest.raises(AssertionError):
        transactions.checkpoint()


def test_a_transaction_that_was_read_is_refused() -> None:
    """A source that sends a transaction twice is caught before anything is published twice."""
    transactions = Transactions(Recorder("top"), START)
    with pytest.raises(Fatal, match="again"):
        transactions.records(TransactionBegan(gtid=f"{UUID}:6", commit_us=1, server_id=9), 1)


def test_checkpoints_read_back() -> None:
    """A stored position is read as it was written; one of a newer format is refused."""
    ends = {"top.s.d.t": {0: 7, 1: 0}}
    stored = checkpoint_value(START, "s", ends)
    assert read_checkpoint(stored) == (START, ends)
    with pytest.raises(Fatal, match="format 2"):
        read_checkpoint(stored.replace(b'"format":1', b'"format":2'))
