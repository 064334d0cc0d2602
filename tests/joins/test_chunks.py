"""Work that may exceed memory is done in parts, with the same result."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from cdc.stored.cells import barrier_key
from joins.runtime.chunks import folded, stale_keys, whole_rows
from joins.runtime.records import ROW_GONE, ROW_PUT, Message, RefusedRecord
from joins.stores.hbase_table import HBaseConnection, JoinedTable


def message(row: int, op: int, v: int) -> Message:
    return Message(b"\xff%d" % row, op, b"", v, b"")


@pytest.mark.parametrize("most", [1, 7, 1000])
def test_the_newest_of_each_row_is_written(most: int) -> None:
    """However few rows are held at a time: each row's newest put or deletion is written, and no put of a deleted row;
    notices are passed on."""
    chance = random.Random(most)
    messages = [message(chance.randrange(30), chance.choice([ROW_PUT, ROW_GONE]), v) for v in range(300)]
    notice = RefusedRecord("t", 0, 0, "because", None, None).message()
    newest = {one.k: one for one in messages}
    written = [one for some in folded([*messages, notice], most) for one in some]
    assert notice in written
    puts = {one.k: one for one in written if one.op == ROW_PUT}
    assert puts == {k: one for k, one in newest.items() if one.op == ROW_PUT}
    assert len([one for one in written if one.op == ROW_PUT]) == len(puts)
    assert {one.k for one in written if one.op == ROW_GONE} >= {k for k, one in newest.items() if one.op == ROW_GONE}


def test_very_many_deletes_are_never_held_together() -> None:
    """A TRUNCATE's deletes are emitted in parts."""
    assert max(map(len, folded((message(row, ROW_GONE, row) for row in range(1000)), 50))) <= 51


def test_a_row_lies_in_one_chunk() -> None:
    """A put beats a deletion within a chunk, so a row's messages are never split."""
    chance = random.Random(3)
    messages = sorted((message(chance.randrange(100, 200), ROW_PUT, v) for v in range(500)), key=lambda one: one.k)
    chunks = list(whole_rows(messages, 20))
    assert [one for chunk in chunks for one in chunk] == messages
    assert len(chunks) > 10
    keys = [{one.k for one in chunk} for chunk in chunks]
    assert sum(map(len, keys)) == len(set().union(*keys))
    assert list(whole_rows([])) == []


@pytest.mark.parametrize("most", [3, 40, 10_000])
def test_keys_of_former_runs_are_found_in_parts(most: int) -> None:
    """However few keys are held at a time: each key whose newest record another run wrote is found once."""
    chance = random.Random(most)
    log = [(b"%d" % chance.randrange(200), chance.choice(["old", "older", "new", None])) for _ in range(900)]
    newest = dict(log)
    found = list(stale_keys(lambda: log, "new", most))
    assert max(map(len, found)) <= most
    keys = [key for some in found for key in some]
    assert sorted(keys) == sorted(key for key, of in newest.items() if of in ("old", "older"))


def test_the_sweep_deletes_while_it_reads() -> None:
    """Rows of a former run are deleted during the scan, so that ten million of them do not fill memory; newer rows and
    barriers stay."""
    deleted: list[bytes] = []
    asked = 0

    class Table:
        def scan(self, **_: object) -> Iterator[tuple[bytes, dict[bytes, tuple[bytes, int]]]]:
            nonlocal asked
            yield barrier_key(0), {b"d:_barrier": (b"", 1)}
            for row in range(5000):
                asked += row % 2
                assert asked - len(deleted) <= 1000, "rows are collected"
                yield b"\x00row%d" % row, {b"d:_layout": (b"", 5 if row % 2 else 50)}

        def batch(self, timestamp: int) -> Any:
            assert timestamp == 10
            return self

        def __enter__(self) -> Any:
            return self

        def __exit__(self, *_: object) -> None:
            return None

        def delete(self, row: bytes, columns: object) -> None:
            deleted.append(row)

    class Connection:
        def table(self, name: str) -> Table:
            return Table()

    hbase = HBaseConnection("127.0.0.1:1")
    hbase._connection = Connection()
    hbase._used = float("inf")
    table = JoinedTable(hbase, table="t", layouts="l", name="wide", family="d", buckets=1)
    assert table.sweep(10) == 2500
    assert deleted == [b"\x00row%d" % row for row in range(1, 5000, 2)]
