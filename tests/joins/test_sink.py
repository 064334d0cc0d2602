"""A batch's records become writes; a refused record does not stop the others."""

from __future__ import annotations

import base64
import json
import os
from dataclasses import asdict, replace
from itertools import chain
from pathlib import Path

import orjson
import pytest
from pyspark import cloudpickle

from cdc.model.dead_letter_end import place_of
from cdc.model.errors import Fatal, UsageError
from cdc.model.types import Canonical, parse_type
from cdc.stored.cells import RowCodec
from cdc.stored.layout import Layout, LayoutColumn
from joins.engine.file_checkpoint import QueryCheckpoint, QueryRecord, measured_rate
from joins.engine.proc_worker import settle
from joins.runtime.records import (
    ROW_GONE,
    ROW_PUT,
    Message,
    RefusedRecord,
    RowGone,
    RowPut,
    TruncationPoint,
    dump,
    load,
    payload,
    record_of,
    text_of,
)
from joins.runtime.sink import OpenRow, Report, barriers, dead_letter, next_timestamp, settlements, writes_of
from joins.stores import hbase_sink, kafka_sink
from joins.stores.hbase_table import connection
from joins.stores.kafka_table import upserts

LAYOUT = Layout(
    topology="t",
    table="wide",
    id=3,
    family="d",
    columns=(
        LayoutColumn(name="id", type=parse_type("int32"), origin="a.b.c.id"),
        LayoutColumn(name="price", type=parse_type("decimal(6,2)"), origin="a.b.c.price"),
    ),
    row_key=("id",),
    salt_buckets=2,
)
CODEC = RowCodec(LAYOUT)


def test_rows_become_whole_puts_and_row_deletes() -> None:
    """A live row is one put of every column, a deleted one a delete under the same key."""
    writes = writes_of([RowPut([7, None], 9), RowGone([7])], CODEC, batch=4)
    assert writes.deletes == [writes.puts[0][0]] == [CODEC.row_key({"id": 7})]
    stored = CODEC.row(writes.puts[0][1])
    assert (stored.values, stored.layout_id, stored.batch, stored.ts_ms) == ({"id": 7, "price": None}, 3, 4, 9)


@pytest.mark.parametrize("values", [[2**31, "1.00"], [1, "1.555"], [1, 3.5], ["x", "1.00"], [None, "1.00"]])
def test_row_that_does_not_fit_is_refused_alone(values: list[Canonical]) -> None:
    """A value outside its column's type affects only its row, which is refused with the reason and the values."""
    writes = writes_of([RowPut(values, 9), RowPut([1, "2.50"], 9)], CODEC, batch=0)
    assert len(writes.puts) == 1
    (refused,) = writes.refused
    assert refused.reason.startswith("row does not fit its layout: ")
    assert json.loads(base64.b64decode(refused.value or "")) == values


def test_a_row_that_an_inner_join_on_null_hides_is_no_dead_letter() -> None:
    """Its key cannot have been stored, so there is nothing to delete, neither in HBase nor in a topic."""
    writes = writes_of([RowGone([None]), RowGone([7])], CODEC, batch=4)
    assert (len(writes.deletes), writes.refused) == (1, [])
    gone = [Message(b"\xff" + text_of([key]), ROW_GONE, b"", 1, b"") for key in (None, 7)]
    assert upserts(gone, LAYOUT, []) == ([(b'{"id":7}', None)], [], [])


def test_a_row_of_a_null_group_is_written_and_deleted() -> None:
    """If the layout's key allows NULL, such a row is ordinary, in HBase and in a topic."""
    columns = (
        LayoutColumn(name="region", type=parse_type("string"), origin="a.b.c.region"),
        LayoutColumn(name="prices", type=parse_type("list<decimal(6,2)>"), origin="collect_list(c.price)"),
    )
    layout = replace(LAYOUT, columns=columns, row_key=("region",), nullable_key=("region",))
    codec = RowCodec(layout)
    writes = writes_of([RowPut([None, ["1.00", "2.50"]], 9), RowGone([None])], codec, batch=4)
    assert writes.refused == []
    assert writes.deletes == [writes.puts[0][0]] == [codec.row_key({"region": None})]
    assert codec.row(writes.puts[0][1]).values == {"region": None, "prices": ["1.00", "2.50"]}
    put = Message(b"\xff" + text_of([None]), ROW_PUT, b"", 1, payload([None, ["1.00"]], 9))
    gone = Message(b"\xff" + text_of([None]), ROW_GONE, b"", 1, b"")
    key = b'{"region":null}'
    assert upserts([put], layout, [0, 1]) == ([(key, b'{"region":null,"prices":["1.00"]}')], [], [])
    assert upserts([gone], layout, [0, 1]) == ([(key, None)], [], [])


def test_dead_letter_names_where_it_came_from() -> None:
    """It contains topic, partition, offset and reason; a replayed batch repeats it under the same key."""
    refused = RefusedRecord("t.a.b.c", 1, 42, "not an envelope: x", None, None)
    key, value = dead_letter(refused, "wide", batch=3)
    assert key == b"join/wide/t.a.b.c/1/42"
    reported = json.loads(value)
    assert {name: reported[name] for name in ("stage", "topic", "partition", "offset", "reason", "batch")} == {
        "stage": "join", "topic": "t.a.b.c", "partition": 1, "offset": 42, "reason": "not an envelope: x", "batch": 3,
    }  # fmt: skip


def test_floors_are_reported() -> None:
    """The truncation points of every partition reach the driver."""
    floor = TruncationPoint("t.a.b.c", 1, 7)
    writes = writes_of([record_of(load(*dump(floor.message())), [])], CODEC, 0)
    assert writes.truncation_points == [floor]
    report = Report()
    report.add(writes)
    report.add(writes)
    assert Report(**orjson.loads(orjson.dumps(asdict(report)))).truncation_points == [[*floor], [*floor]]


def test_timestamps_grow_by_two_and_follow_the_clock() -> None:
    """A batch's deletes are later than the puts of the last batch, even if the clock stops or goes back."""
    assert next_timestamp(1000, 10) == 1000
    assert next_timestamp(1000, 1000) == 1002
    assert next_timestamp(900, 1000) == 1002


def test_each_bucket_gets_a_barrier() -> None:
    """Each region has its own, with the number of all."""
    made = barriers(2, batch=5, timestamp=9, positions={"a": {"sequence": 3}})
    assert [(barrier.bucket, barrier.buckets, barrier.batch, barrier.timestamp) for barrier in made] == [
        (0, 2, 5, 9),
        (1, 2, 5, 9),
    ]


def test_checkpoint_remembers_its_run_and_has_one_owner(tmp_path: Path) -> None:
    """The stored record is read back; a second process is refused; an unreadable record has a remedy."""
    checkpoint = QueryCheckpoint(tmp_path / "wide")
    assert checkpoint.record() is None
    assert checkpoint.last_committed() == -1
    record = QueryRecord(id="q", fingerprint="f", partitions=1, first_timestamp=5, target={"t": {0: 3}}, complete=False)
    checkpoint.store(record)
    assert checkpoint.record() == record
    record = replace(record, truncation_points={"t": {1: 7}})
    checkpoint.store(record)
    assert checkpoint.record() == record
    with pytest.raises(UsageError, match="another process holds"):
        QueryCheckpoint(tmp_path / "wide")
    (tmp_path / "wide" / "query.json").write_text('{"format": 99}')
    with pytest.raises(Fatal, match="--rebuild"):
        checkpoint.record()
    checkpoint.clear()
    assert checkpoint.record() is None
    checkpoint.close()


def test_a_query_s_rate_is_read_from_what_it_did(tmp_path: Path) -> None:
    """The estimate of a rebuild's duration uses the last large batches, or the whole run; small batches, and runs over
    very little data, are ignored."""
    record = QueryRecord(
        id="q", fingerprint="f", partitions=1, first_timestamp=5, target={"t": {0: 900, 1: 1100}}, complete=False
    )
    assert measured_rate(tmp_path, record) is None
    whole = replace(record, complete=True, began_ms=10_000, whole_ms=12_000)
    assert measured_rate(tmp_path, whole) == 1_000
    assert measured_rate(tmp_path, replace(whole, target={"t": {0: 9}})) is None

    for batch, (end, began, took) in enumerate([(10, 0.0, 9.0), (2_010, 10.0, 4.0), (2_015, 20.0, 9.0)]):
        for folder, at in (("offsets", began), ("commits", began + took)):
            file = tmp_path / "spark" / folder / str(batch)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f'v1\n{{}}\n-\n{{"t":{{"0":{end}}}}}\n')
            os.utime(file, (at, at))
    assert measured_rate(tmp_path, whole) == 500, "2,000 changes in 4 s"
    (tmp_path / "spark" / "commits" / "1").unlink()  # the same holds for a batch whose files Spark has removed
    assert measured_rate(tmp_path, whole) == 1_000


def test_a_worker_keeps_its_connection() -> None:
    """The task refers to the worker's own connections; a copy of the driver's would be empty in every task."""

    def write(address: str) -> object:
        return settle, connection(address)

    sent = cloudpickle.loads(cloudpickle.dumps(write))  # type: ignore[no-untyped-call]  # as it is published
    assert sent("127.0.0.1:1") == (settle, connection("127.0.0.1:1"))
    for module, writer in ((hbase_sink, hbase_sink.hbase_writer), (kafka_sink, kafka_sink.kafka_writer)):
        inner = [code.co_names for code in writer.__code__.co_consts if hasattr(code, "co_names")]
        held = [name for name in chain(*inner) if isinstance(vars(module).get(name), (dict, list, set))]
        assert held == [], "a task would get a copy of it"


def test_a_row_that_is_written_settles_its_records_of_former_batches() -> None:
    """A row refused again in the same batch settles nothing; a deleted row settles like a new one."""
    rows = {text: OpenRow(text, offset, records) for text, offset, records in (("1", 7, 2), ("2", 8, 1), ("3", 9, 1))}
    messages = [
        Message(b"\xff" + key, op, b"", 0, b"")
        for key, op in ((b"1", ROW_PUT), (b"2", ROW_GONE), (b"3", ROW_PUT), (b"4", ROW_PUT))
    ]
    again = [RefusedRecord("table t, row 3", 0, 0, "not computed: x", None, None)]
    found, count = settlements(messages, again, rows, "t")
    reported = [orjson.loads(value) for _, value in found]
    assert ([one["row"] for one in reported], [one["upto"] for one in reported]) == (
        [["join", "t", "1"], ["join", "t", "2"]],
        [7, 8],
    )
    assert count == 3
    _, dead_letter_record = dead_letter(again[0], "t", 5)
    assert place_of(orjson.loads(dead_letter_record)) == "3"
