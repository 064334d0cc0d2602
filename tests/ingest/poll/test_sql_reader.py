"""Polling any SQLAlchemy URL, here SQLite: refusals and hidden columns (`test_poll_contract.py` has the rest)."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import orjson
import pytest

from cdc.model.errors import Fatal, Retriable, UsageError
from cdc.model.naming import change_topic, dead_letter_topic, schemas_topic
from cdc.model.polling import Poll
from cdc.model.schema import TableId
from cdc.topology.reader import read_topology
from cdc.topology.topology import Source, Topology
from ingest.capture.observer import Observer
from ingest.log.memory_log import Broker, MemoryLog
from ingest.poll.run_poll import poll
from ingest.poll.sql_reader import SqlReader, sql_reader

TABLE = TableId(source="s", database="main", table="t")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "source.db"


def topology(file: Path, more: str = "") -> Topology:
    text = (
        f"name: top\nsources:\n  s: {{type: sql, capture: poll, url: 'sqlite:///{file}', database: main, tables: [t], "
        f"limit: 3, {more}interval: 10ms}}\n"
        "tables:\n  t: {query: SELECT t.id FROM s.t t, row_key: [id]}\n"
    )
    return read_topology(text, file="top.yml", environ={})


@contextmanager
def reading(top: Topology) -> Iterator[tuple[SqlReader, Source, Poll]]:
    source = top.sources["s"]
    assert source.poll is not None
    with sql_reader(source, source.poll) as reader:
        yield reader, source, source.poll


def execute(file: Path, *sql: str) -> None:
    with sqlite3.connect(file) as connection:
        for statement in sql:
            connection.execute(statement)
    connection.close()


def run(top: Topology, broker: Broker, cycles: int = 3) -> list[dict[str, Any]]:
    """Run a session of so many cycles; return the envelopes so far."""
    source, left = top.sources["s"], [cycles]
    assert source.poll is not None

    def wait(seconds: float) -> None:
        left[0] -= 1

    log = MemoryLog(broker, schemas_topic("top"))
    poll(top, source, source.poll, log, observer=Observer(), stopped=lambda: left[0] <= 0, wait=wait)
    return [orjson.loads(r.value) for r in broker.records if r.topic == change_topic("top", TABLE) and r.value]


def test_every_type_is_published_canonically_or_refused_by_name(file: Path) -> None:
    """Values of a foreign database are published in canonical form; a value that has none is refused."""
    execute(
        file,
        "CREATE TABLE t (id INTEGER PRIMARY KEY, b BOOLEAN, i INTEGER, d DECIMAL(12,2), f FLOAT, s VARCHAR(20), "
        "l TEXT, x BLOB, day DATE, at TIME, j JSON, updated_at DATETIME NOT NULL)",
        "CREATE INDEX i ON t (updated_at)",
        "INSERT INTO t VALUES (1, 1, -5, 12.5, 0.25, 'Zoë', NULL, x'00ff', '2026-02-28', '01:02:03.500000', "
        "'{\"a\": [1]}', '2026-11-21 10:00:00.120000')",
        "INSERT INTO t VALUES (2, 0, 'abc', 1, 1, '', 'x', x'', '2026-02-28', '01:02:03', '1', '2026-11-21 10:00:01')",
    )
    broker = Broker()
    event, other = run(topology(file), broker)
    assert other["after"] == {
        "id": 2, "b": False, "i": None, "d": "1.00", "f": 1.0, "s": "", "l": "x", "x": "", "day": "2026-02-28Z",
        "at": "01:02:03", "j": "1", "updated_at": "2026-11-21T10:00:01Z",
    }  # fmt: skip
    assert event["after"] == {
        "id": 1, "b": True, "i": -5, "d": "12.50", "f": 0.25, "s": "Zoë", "l": None, "x": "AP8=",
        "day": "2026-02-28Z", "at": "01:02:03.5", "j": '{"a":[1]}', "updated_at": "2026-11-21T10:00:00.12Z",
    }  # fmt: skip
    assert event["source"]["connector"] == "sqlite"
    assert event["source"]["last_update_only"] is True
    assert event["source"]["snapshot"] == "true"
    strict = Broker()
    assert run(topology(file, more="unrepresentable: dead_letter, "), strict) == [event | {"ts_ms": ANY}]
    (dead_letter,) = [orjson.loads(r.value) for r in strict.records if r.topic == dead_letter_topic("top") and r.value]
    assert "column i: ValueError" in dead_letter["why"]
    execute(file, "UPDATE t SET day = 'no day', updated_at = '2026-11-21 10:00:02' WHERE id = 2")
    with pytest.raises(Fatal, match=r"poll s\.main\.t"):
        run(topology(file), broker)


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("CREATE TABLE t (id INTEGER PRIMARY KEY)", "has no column updated_at"),
        ("CREATE TABLE t (id INTEGER PRIMARY KEY, updated_at INTEGER NOT NULL)", "mode: feed"),
        ("CREATE TABLE t (id INTEGER PRIMARY KEY, updated_at DATETIME)", "NOT NULL"),
        ("CREATE TABLE t (id INTEGER, updated_at DATETIME NOT NULL)", "no primary key"),
        ("CREATE TABLE u (id INTEGER)", "no table main.t"),
    ],
)
def test_a_table_that_cannot_be_polled_is_refused_with_the_remedy(file: Path, sql: str, said: str) -> None:
    """No table is polled that would lose rows silently."""
    execute(file, sql)
    with reading(topology(file)) as (reader, _, _), pytest.raises(UsageError, match=said):
        reader.schemas({})


def test_an_unavailable_database_is_waited_for(tmp_path: Path) -> None:
    """An unreachable database is Retriable, a missing driver is not."""
    with pytest.raises(Retriable, match="source s: connect"), reading(topology(tmp_path / "no" / "where.db")):
        pass
    text = topology(tmp_path / "x")
    source = text.sources["s"]
    assert source.poll is not None
    broken = replace(source, url="oracle://x/y")
    with pytest.raises(UsageError, match="driver"), sql_reader(broken, source.poll):
        pass


def test_ignored_columns_are_not_read_and_masks_are_applied(file: Path) -> None:
    """Columns that a topology hides are neither in events nor in dead letters of a polled table."""
    text = (
        f"name: top\nsources:\n  s: {{type: sql, capture: poll, url: 'sqlite:///{file}', database: main, "
        "interval: 10ms, tables: {t: {ignored_columns: [secret], mask: {mail: redact, n: truncate(1)}}}}\n"
        "tables:\n  t: {query: SELECT t.id FROM s.t t, row_key: [id]}\n"
    )
    execute(
        file,
        "CREATE TABLE t (id INTEGER PRIMARY KEY, secret TEXT, mail TEXT, n INTEGER, updated_at DATETIME NOT NULL)",
        "INSERT INTO t VALUES (1, 'geheim', 'a@b.c', 55, '2026-01-01 00:00:00')",
        "INSERT INTO t VALUES (2, 'geheim', 'x@b.c', 'privat', '2026-01-01 00:00:00')",
    )
    broker = Broker()
    event, other = run(read_topology(text, file="top.yml", environ={}), broker)
    assert event["after"] == {"id": 1, "mail": "***", "n": "5", "updated_at": "2026-01-01T00:00:00Z"}
    assert other["after"] == {"id": 2, "mail": "***", "n": "p", "updated_at": "2026-01-01T00:00:00Z"}
    written = b"".join(record.value or b"" for record in broker.records)
    assert not any(hidden in written for hidden in (b"geheim", b"b.c", b"privat"))
