"""Compare the schema history with the server: at every position, the columns that information_schema showed there."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

from cdc.model.event import Position
from cdc.model.schema import Column
from cdc.topology.reader import read_topology
from ingest.events.log_events import CaughtUp, StatementLogged
from ingest.mysql.mysql_source import MySqlSource
from ingest.records.capture_interfaces import Checkpoint, ServerTables
from ingest.run_capture import tables_of

pytestmark = [pytest.mark.integration, pytest.mark.kafka("mysql-shop")]

STATEMENTS = """
CREATE TABLE a (id INT UNSIGNED PRIMARY KEY AUTO_INCREMENT, n VARCHAR(20) CHARACTER SET latin1, KEY k (n))
ALTER TABLE a ADD COLUMN at TIMESTAMP NULL AFTER id, ADD d DECIMAL(8,2) NOT NULL DEFAULT 0 FIRST
ALTER TABLE t CHANGE v value BIGINT UNSIGNED NOT NULL, ADD UNIQUE KEY u (value)
CREATE TABLE b LIKE a
ALTER TABLE b DROP COLUMN n, MODIFY d DOUBLE, CONVERT TO CHARACTER SET utf8mb4
INSERT INTO t VALUES (1, 5)
RENAME TABLE a TO c, b TO a, c TO b
CREATE INDEX k2 ON a (d)
ALTER TABLE t ADD e ENUM('x','y''z') DEFAULT 'x', ADD j JSON, ADD g INT AS (value + 1) STORED
TRUNCATE TABLE a
DROP TABLE b
CREATE TABLE b (id INT, value BIGINT UNSIGNED NOT NULL) CHARSET latin2
ALTER TABLE t DROP COLUMN j, RENAME COLUMN e TO f
CREATE TEMPORARY TABLE t (z INT)
DROP TEMPORARY TABLE t
ALTER TABLE b RENAME TO bb
""".strip().splitlines()
Shown = dict[str, list[tuple[str, str, bool, str | None]]]


def shown(seen: ServerTables) -> Shown:
    """Return every table's columns: name, type, whether NULL is allowed, character set."""
    return {
        name: [(c.name, c.column_type, c.nullable, c.charset) for c in table.columns]
        for (_, name), table in seen.catalog.tables.items()
    }


def row(column: Column) -> tuple[str, str, bool, str | None]:
    return column.name, column.column_type, column.nullable, column.charset


def test_the_history_is_the_servers_own(capture: Callable[..., Any]) -> None:
    """The history is computed from the log alone, long after the statements ran, and has the columns that the server
    showed.
    """
    captured = capture("t")
    captured.sql("CREATE TABLE t (id INT PRIMARY KEY, v INT)")
    source = read_topology(captured.file.read_text(), file="t.yml", environ=os.environ).sources["shop"]
    server = MySqlSource(source)
    before, start = server.seen(), server.head()
    truth: list[tuple[str, Shown]] = []
    with captured.connection() as connected, connected.cursor() as cursor:
        for statement in STATEMENTS:
            cursor.execute(statement)
            truth.append((server.head().gtid_set, shown(server.seen())))
    tables = tables_of(source)(before)
    tables.begin(before.catalog)
    numbers: dict[str, int] = {}
    sequence = 0
    with server.stream(Checkpoint(position=start, snapshot="done", ts_ms=0), tables, busy=True) as stream:
        for fact in stream:
            if isinstance(fact, StatementLogged):
                place = Position(file="", pos=0, gtid_set="", sequence=sequence + 1)
                sequence += tables.statement(fact, place).numbered
            numbers[stream.gtid_set] = sequence
            if isinstance(fact, CaughtUp) and stream.reached(
                Position(file="", pos=0, gtid_set=truth[-1][0], sequence=0)
            ):
                break
    assert sequence >= 11
    compared = 0
    for gtids, there in truth:
        at = Position(file="", pos=0, gtid_set="", sequence=numbers.get(gtids, -1))
        # another test's transaction was committed between the statement and the query for the position
        if at.sequence < 0:
            continue
        found = {
            state.table_id.table: [row(column) for column in state.schema.columns]
            for state in tables.history.tables_at(at)
            if state.schema is not None
        }
        assert found == there, gtids
        compared += 1
    assert compared >= 8
