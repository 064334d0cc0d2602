"""Dead letters of all stages are one list, which says what waits, what helps, and what is settled."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from cdc.model.brokers import Brokers
from cdc.model.dead_letter_end import KEY, resolved_dead_letters, settled_row, settled_table
from cdc.model.errors import Retriable
from cdc.model.event import SourceInfo
from cdc.model.schema import Column, TableId, TableSchema
from cdc.topology.reader import read_topology
from indexer.index.kafka_dead_letters import KafkaDeadLetters
from indexer.index.processor import DeadLetter
from ingest.events.left_out import QuarantinedTable
from ingest.events.log_events import RefusedImage
from ingest.records.records import Recorder
from joins.runtime.records import RefusedRecord
from joins.runtime.sink import dead_letter
from tailorbird.cli import cli_status
from tailorbird.cli.app import app
from tailorbird.operate.probes import kafka_probe
from tailorbird.operate.status import kafka_captured
from tailorbird.operate.status.captured_position import CapturedPosition
from tailorbird.operate.status.dead_letters import (
    DeadLetterList,
    DeadLetterRecord,
    DeadLetterRow,
    affected,
    dead_letter_lines,
    incomplete_lines,
    remedy_of,
    value_of,
    whole,
)
from tailorbird.operate.status.kafka_dead_letters import DeadLetterReader
from tailorbird.operate.status.quarantine import quarantine_dead_letters, quarantined
from tailorbird.operate.status.replays import condition_of, replay_of, where_of

TEXT = """
name: t
sources:
  s: {type: mysql, hostname: h, username: u, password: p, database: d, tables: [orders, "x.y"], server_id: 1}
  p: {type: mysql, hostname: h, username: u, password: p, database: d, tables: [slow], capture: poll,
      cursor: updated_at}
  sys: {type: syslog, database: logs, listen: {udp: '127.0.0.1:514'}}
tables: {wide: {query: SELECT o.id FROM s.orders o, row_key: [id]}}
indexes: {main: {table: wide}}
"""
TOPOLOGY = read_topology(TEXT, file="t.yml", environ={})
ORDERS = TableId(source="s", database="d", table="orders")
KEYED = TableSchema(table_id=ORDERS, version=1, columns=(Column(name="id", column_type="int"),), primary_key=("id",))


def capture_dead_letter(number: int, pos: int = 4, **more: Any) -> tuple[bytes, bytes]:
    """Return a record as the capture writes it (`ingest.records.records`)."""
    info = SourceInfo(
        table_id=ORDERS, ts_ms=1, server_id=1, gtid=None, file="log.1", pos=pos, row=0, sequence=1, snapshot="false"
    )
    recorder = Recorder("t")
    record = recorder.dead_letter(
        RefusedImage(values={"id": number, **more}, columns={"born": "0000-00-00"}), recorder.writer(KEYED), info, 5
    )
    assert record.value is not None
    return record.key or b"", record.value


def join_dead_letter(offset: int, value: bytes = b"garbage", key: bytes = b'{"id":7}') -> tuple[bytes, bytes]:
    """Return a record as a join's sink writes it (`joins.runtime.sink`)."""
    refused = RefusedRecord(
        "t.s.d.orders", 2, offset, "not an envelope", base64.b64encode(key).decode(), base64.b64encode(value).decode()
    )
    return dead_letter(refused, "wide", 9)


def row_dead_letter(value: object) -> tuple[bytes, bytes]:
    """Return a record of a row that its layout cannot represent."""
    text = base64.b64encode(json.dumps(value).encode()).decode()
    return dead_letter(RefusedRecord("table wide", 0, 0, "row does not fit its layout: x", None, text), "wide", 9)


def index_dead_letter(row: bytes) -> tuple[bytes, bytes]:
    """Return a record as the indexer writes it (`indexer.index.kafka_dead_letters`)."""
    dead_letters = KafkaDeadLetters(Brokers("nowhere:1"), topology="t", index="main", replication_factor=1)
    dead_letter_record = DeadLetter(row=row, version=12, cells={b"a": b"\xff\x00"}, reason="cell _layout is missing")
    return dead_letters._key(dead_letter_record), dead_letters._value(dead_letter_record)


def folded(*found: tuple[bytes, bytes], keep: int | None = None) -> DeadLetterList:
    dead_letters = DeadLetterList("t", keep=keep)
    for offset, (key, value) in enumerate(found):
        dead_letters.add(DeadLetterRecord(key, value, 1000 * offset, 0, offset))
    return dead_letters


def only(*found: tuple[bytes, bytes]) -> DeadLetterRow:
    (dead_letter_record,) = folded(*found).dead_letters
    return dead_letter_record


def test_every_stage_is_reported_in_one_form() -> None:
    """Each record shows where a row is missing, its key if printable, its position, the reason and a command."""
    found = folded(
        capture_dead_letter(5), join_dead_letter(3), row_dead_letter([1]), index_dead_letter(b"\x01\x02")
    ).dead_letters
    assert [(one.stage, one.of, one.key) for one in reversed(found)] == [
        ("capture", "s.d.orders", '{"id": 5}'),
        ("join", "wide", '{"id":7}'),
        ("join", "wide", "[1]"),
        ("indexer", "main", "0102"),
    ]
    assert [one.table for one in reversed(found)] == ["s.d.orders", "s.d.orders", "", ""]
    assert "log.1:4" in found[3].position
    assert found[2].position == "t.s.d.orders 2:3"
    assert all("tailorbird " in remedy_of(one, "t.yml") for one in found)
    assert "--rebuild" in remedy_of(found[1], "t.yml")
    lines = dead_letter_lines(found[0], "t.yml", 4000)
    assert lines[0].startswith(f"{found[0].id}  indexer  index main  key 0102")
    assert "cell _layout is missing" in lines[1]


def test_what_comes_again_is_one_dead_letter() -> None:
    """A repeated batch repeats its records; different rows are different records, even at one position."""
    dead_letter_record = only(join_dead_letter(3), join_dead_letter(3), join_dead_letter(3))
    assert (
        dead_letter_record.count,
        dead_letter_record.first_ms,
        dead_letter_record.last_ms,
        dead_letter_record.offset,
    ) == (3, 0, 2000, 2)
    assert len(folded(row_dead_letter([1]), row_dead_letter([2])).dead_letters) == 2
    assert len(folded(capture_dead_letter(1), capture_dead_letter(2)).dead_letters) == 2
    assert len(folded(capture_dead_letter(1), capture_dead_letter(1, pos=99)).dead_letters) == 1


def test_what_is_settled_waits_no_longer_until_it_comes_again() -> None:
    """A settlement covers the records up to then; later refusals remain open, even if published before it."""
    dead_letter_record = only(join_dead_letter(3))
    mark = KEY, resolved_dead_letters({dead_letter_record.id: (0, 0)}, "replayed")
    found = folded(join_dead_letter(3), mark)
    assert (found.dead_letters, found.waiting) == ([], [])
    assert [(one.id, one.settled, one.settled_ms) for one in found.settled] == [
        (dead_letter_record.id, "replayed", 1000)
    ]
    assert folded(join_dead_letter(3), mark, mark).settled == found.settled
    again = folded(join_dead_letter(3), mark, join_dead_letter(3))
    assert [one.id for one in again.dead_letters] == [dead_letter_record.id]
    assert again.settled == []
    assert len(folded(join_dead_letter(3), join_dead_letter(3), mark).dead_letters) == 1


def test_a_rebuild_settles_the_dead_letters_of_its_table() -> None:
    """And no others."""
    mark = KEY, settled_table("join", "wide", "rebuilt")
    found = folded(join_dead_letter(3), row_dead_letter([1]), capture_dead_letter(1), mark)
    assert [(one.stage, one.of, one.dead_letters) for one in found.waiting] == [("capture", "s.d.orders", 1)]
    assert {one.settled for one in found.settled} == {"rebuilt"}


def test_counts_do_not_need_the_dead_letters() -> None:
    """A million records are counted by their ids alone."""
    found = folded(*(join_dead_letter(number) for number in range(50)), keep=3)
    assert [(one.dead_letters, one.reason) for one in found.waiting] == [(50, "not an envelope")]
    assert [one.position for one in found.dead_letters] == [f"t.s.d.orders 2:{offset}" for offset in (49, 48, 47)]
    assert folded(join_dead_letter(1), keep=0).waiting[0].dead_letters == 1


@pytest.mark.parametrize(
    "value",
    [
        None, b"\xff", b"[]", b"{}", b'{"stage": "moon"}', b"[" * 5000, b'{"stage":"indexer","index":"i","row":"zz"}',
        b'{"stage":"capture","table":"t","values":' + b"[" * 990 + b"]" * 990 + b"}",
        b'{"stage":"join","table":"\\ud800"}',
    ],
    ids=["tombstone", "binary", "list", "empty", "stage", "unclosed", "row", "deep", "surrogate"],
)  # fmt: skip
def test_what_is_no_dead_letter_of_ours_is_reported_all_the_same(value: bytes | None) -> None:
    """Somebody must look at it; nothing in the topic ends the command."""
    dead_letters = DeadLetterList("t")
    dead_letters.add(DeadLetterRecord(b"k", value, 1, 0, 7))
    (dead_letter_record,) = dead_letters.dead_letters
    assert (dead_letter_record.stage, dead_letter_record.position) == ("unknown", "0:7")
    shown = whole(DeadLetterRecord(b"k", value, 1, 0, 7))
    assert json.dumps([shown, dead_letter_lines(dead_letter_record, "t.yml", 1)], ensure_ascii=False).encode()


@pytest.mark.parametrize(
    "value", [b'{"stage":"join","table":"wide","key":"k"}', '{"stage":"join","key":"é"}'.encode(),
              b'{"stage":"indexer","index":"main","row":"00","cells":{"a":"k"}}'],
    ids=["join", "other letters", "indexer"],
)  # fmt: skip
def test_bytes_that_are_not_encoded_are_shown_as_they_are(value: bytes) -> None:
    """A foreign record that is almost one of ours ends no command."""
    record = DeadLetterRecord(b"k", value, 1, 0, 7)
    assert only((b"k", value)).key in ("k", "é", "00")
    assert whole(record)["value"] == json.loads(value)
    assert planned((b"k", value)) is not None


def test_a_dead_letter_is_shown_whole() -> None:
    """With its bytes in hexadecimal and base64, and as text where they are text."""
    shown = whole(DeadLetterRecord(*join_dead_letter(3), 1, 0, 7))
    assert shown["bytes"]["value"] == {"base64": "Z2FyYmFnZQ==", "hex": b"garbage".hex(), "text": "garbage"}
    cells = whole(DeadLetterRecord(*index_dead_letter(b"\x01"), 1, 0, 7))["bytes"]
    assert cells == {"row": {"base64": "AQ==", "hex": "01", "text": "\x01"}, "a": {"base64": "/wA=", "hex": "ff00"}}
    assert whole(DeadLetterRecord(None, b"\xff", 1, 0, 7))["value"]["hex"] == "ff"


def test_tables_that_lack_rows_are_named() -> None:
    """The captured table with its readers; the page of an index counts what its rows came through."""
    waiting = folded(capture_dead_letter(1), capture_dead_letter(2), index_dead_letter(b"\x01")).waiting
    tables = {"wide": frozenset({"s.d.orders"}), "other": frozenset({"s.d.x"})}
    lines = incomplete_lines(waiting, tables, "t.yml")
    assert lines[0] == ("INCOMPLETE table s.d.orders (so do wide): 2 dead letters; the last: column born: 0000-00-00")
    assert lines[1].startswith("INCOMPLETE index main: 1 dead letter")
    assert lines[2].strip() == "tailorbird dead-letters list t.yml"
    assert affected(waiting, tables, "wide", "main") == 3
    assert affected(waiting, tables, "other", "second") == 0
    assert incomplete_lines([], tables, "t.yml") == []


KEPT = QuarantinedTable(sequence=101, events=40, since_ms=1000, why="an ALTER that is not understood")
IN_QUARANTINE = {
    "s": CapturedPosition(gtid_set="", sequence=140, snapshot="done", quarantine={"d.orders": KEPT}),
    "p": CapturedPosition(gtid_set="", sequence=7, snapshot="done"),
}


def test_a_table_in_quarantine_is_a_dead_letter() -> None:
    """A quarantined table is one record with the command that ends it; the tables that read it lack rows."""
    (dead_letter_record,) = quarantine_dead_letters(IN_QUARANTINE)
    assert (dead_letter_record.stage, dead_letter_record.of, dead_letter_record.count) == (
        "quarantine",
        "s.d.orders",
        40,
    )
    assert dead_letter_lines(dead_letter_record, "t.yml", 61_000) == [
        f"{dead_letter_record.id}  quarantine table s.d.orders  key all rows  at change 101 of s"
        "  60 s ago, 40 events since",
        "            an ALTER that is not understood",
        '            `tailorbird schema set t.yml s.d.orders "CREATE TABLE …"` with the columns of these rows '
        "publishes them",
    ]
    waiting, tables = quarantined(IN_QUARANTINE), {"wide": frozenset({"s.d.orders"})}
    assert incomplete_lines(waiting, tables, "t.yml")[0] == (
        "INCOMPLETE table s.d.orders (so do wide): in quarantine, 40 events; the last: an ALTER that is not understood"
    )
    assert affected(waiting, tables, "wide", "main") == 40
    assert [each for each, _ in replay_of(TOPOLOGY, [(dead_letter_record, {})], {}).by_hand] == [dead_letter_record]


def planned(*found: tuple[bytes, bytes], schemas: dict[TableId, TableSchema] | None = None) -> Any:
    records = [DeadLetterRecord(key, value, 1, 0, offset) for offset, (key, value) in enumerate(found)]
    dead_letters = [(only((record.key or b"", record.value or b"")), value_of(record)) for record in records]
    return replay_of(TOPOLOGY, dead_letters, {ORDERS: KEYED} if schemas is None else schemas)


def test_a_row_is_read_again_by_its_key() -> None:
    """Capture's records are replayed by values, a join's by the record's key; an index's rows are indexed again."""
    update = json.dumps({"op": "u", "after": {}}).encode()
    plan = planned(
        capture_dead_letter(5), join_dead_letter(1, update), join_dead_letter(2, update), index_dead_letter(b"\x01")
    )
    assert plan.rereads == {ORDERS: ["`id` = 5", "`id` = 7"]}
    assert where_of(plan.rereads[ORDERS]) == "(`id` = 5) OR (`id` = 7)"
    assert dict(plan.rows) == {"main": [b"\x01"]}
    assert [len(plan.done[name]) for name in ("s.d.orders", "main")] == [3, 1]
    assert plan.by_hand == []


def test_a_table_is_read_whole_where_a_key_does_not_do() -> None:
    """A delete, since a limited snapshot removes nothing; a record that can not be read; no schema; too many rows."""
    delete = json.dumps({"op": "d", "before": {}}).encode()
    for dead_letter_record in (
        join_dead_letter(1, delete),
        join_dead_letter(1),
        join_dead_letter(1, b'{"op": "u"}', key=b"\xff"),
    ):
        assert planned(dead_letter_record, capture_dead_letter(5)).rereads == {ORDERS: []}
    assert planned(capture_dead_letter(5), schemas={}).rereads == {ORDERS: []}
    assert planned(*(capture_dead_letter(number) for number in range(101))).rereads == {ORDERS: []}


def test_a_key_is_no_sql() -> None:
    """Values in a record are quoted; an invalid number yields no condition."""
    texts = TableSchema(
        table_id=ORDERS, version=1, columns=(Column(name="a`b", column_type="varchar(9)"),), primary_key=("a`b",)
    )
    dead_letter_record = only(capture_dead_letter(1))
    assert (
        condition_of(dead_letter_record, {"values": {"a`b": "x' OR '1'='1\\"}}, texts)
        == "`a``b` = 'x'' OR ''1''=''1\\\\'"
    )
    assert condition_of(dead_letter_record, {"values": {"id": "1 OR 1=1"}}, KEYED) is None


def test_what_can_not_be_replayed_says_what_helps() -> None:
    """A row that its layout cannot represent needs a rebuild; a polled table publishes rows only when they change."""
    plan = planned(row_dead_letter([1]))
    ((_, remedy),) = plan.by_hand
    assert "tailorbird join t.yml --table wide --rebuild" in remedy
    value = json.loads(capture_dead_letter(1)[1]) | {"table": "p.d.slow"}
    ((_, remedy),) = planned((b"k", json.dumps(value).encode())).by_hand
    assert "polled" in remedy


def test_what_was_reported_once_is_not_read_again() -> None:
    """A snapshot of an unreadable table would see no row and delete all of them."""
    value = json.loads(capture_dead_letter(1)[1]) | {"table": "sys.logs.messages"}
    plan = planned((b"k", json.dumps(value).encode()))
    ((dead_letter_record, remedy),) = plan.by_hand
    assert plan.rereads == {}
    assert "filled by an external sender" in remedy
    assert f"tailorbird dead-letters resolve t.yml {dead_letter_record.id}" in remedy


@pytest.mark.parametrize("quarantine", [False, True])
@pytest.mark.parametrize("dead_letters", [0, 1])
def test_status_is_as_loud_of_dead_letters_as_of_lag(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dead_letters: int, quarantine: bool
) -> None:
    """Though every process moves and every index is served: exit code 1 while one waits, or a table is in quarantine,
    and 0 again when none does.
    """
    file = tmp_path / "t.yml"
    file.write_text(TEXT)
    monkeypatch.setattr(cli_status, "asked_parts", lambda topology: [])
    monkeypatch.setattr(kafka_probe, "kafka_problem", lambda brokers: "")
    monkeypatch.setattr(cli_status, "_indexes", lambda topology, captured, away: [])
    monkeypatch.setattr(cli_status, "_captured", lambda topology: IN_QUARANTINE if quarantine else {})
    monkeypatch.setattr(DeadLetterReader, "read", lambda reader: folded(*[capture_dead_letter(1)] * dead_letters))
    result = CliRunner().invoke(app, ["status", str(file)])
    assert result.exit_code == int(dead_letters or quarantine)
    assert ("INCOMPLETE table s.d.orders (so do wide): 1 dead letter" in result.output) == bool(dead_letters)
    assert ("(so do wide): in quarantine, 40 events" in result.output) == quarantine
    assert (f"tailorbird dead-letters list {file}" in result.output) == bool(dead_letters or quarantine)


@pytest.mark.parametrize("part", ["Solr", "positions", "dead letters"])
def test_status_exits_with_1_while_one_part_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    """Though every process that answers makes progress. The error is printed."""
    file = tmp_path / "t.yml"
    file.write_text(TEXT)

    def unavailable(*_: object) -> Any:
        raise Retriable(f"{part} is unavailable")

    def nothing(*_: object) -> Any:
        return {}

    def indexes(topology: object, captured: object, away: list[str]) -> list[Any]:
        away += ["Solr is unavailable"] if part == "Solr" else []
        return []

    monkeypatch.setattr(cli_status, "asked_parts", lambda topology: [])
    monkeypatch.setattr(kafka_probe, "kafka_problem", lambda brokers: "")
    monkeypatch.setattr(cli_status, "_indexes", indexes)
    monkeypatch.setattr(kafka_captured, "captured_positions", unavailable if part == "positions" else nothing)
    read = unavailable if part == "dead letters" else lambda *_: folded()
    monkeypatch.setattr(DeadLetterReader, "read", read)
    result = CliRunner().invoke(app, ["status", str(file)])
    assert (result.exit_code, f"{part} is unavailable" in result.output) == (1, True)


def test_a_later_change_of_a_row_settles_its_records_alone() -> None:
    """The capture settles records by the row's key; `upto` keeps records that were refused again in between."""
    keys = [json.loads(value)["key"] for _, value in (capture_dead_letter(1), capture_dead_letter(2))]
    table = "s.d.orders"
    settled = (b"s.d.orders", settled_row("capture", table, keys[0], "a later change"))
    found = folded(capture_dead_letter(1), capture_dead_letter(1, born="?"), capture_dead_letter(2), settled)
    assert [json.loads(one.key)["id"] for one in found.dead_letters] == [2]
    assert [one.settled for one in found.settled] == ["a later change"] * 2
    late = (b"s.d.orders", settled_row("capture", table, keys[1], "a later change", upto=0))
    assert len(folded(capture_dead_letter(1), capture_dead_letter(2), late).dead_letters) == 2
