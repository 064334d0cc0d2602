"""Changes that the capture must refuse, survive or report on real servers; it never loses any silently."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

import pytest

from cdc.model.event import Position
from cdc.model.geometry import point_of
from cdc.model.naming import TRUNCATE_KEY, schemas_topic
from cdc.topology.reader import read_topology
from ingest.log.kafka_log import KafkaLog
from ingest.log.kafka_topics import make_topics
from ingest.records.capture_interfaces import Checkpoint

pytestmark = [pytest.mark.integration, pytest.mark.kafka("mysql-shop"), pytest.mark.timeout(120)]


def test_geometries_are_captured(capture: Callable[..., Any]) -> None:
    """A geometry column, existing or added later, is published as Debezium's struct by snapshot and stream."""
    captured = capture("t")
    captured.sql("CREATE TABLE t (id INT PRIMARY KEY, g GEOMETRY, v INT)", "INSERT INTO t VALUES (1, POINT(1, 2), 1)")
    process = captured.start()
    captured.streaming(process)
    captured.sql(
        "INSERT INTO t VALUES (2, POINT(1, 2), 2)", "ALTER TABLE t ADD COLUMN h POINT, ADD COLUMN w INT",
        "INSERT INTO t VALUES (3, NULL, 3, POINT(3, 3), 4)", "UPDATE t SET g = POINT(5, 5) WHERE id = 1",
    )  # fmt: skip
    captured.caught_up()
    process.terminate()
    assert captured.end_of(process)[0] == 0
    rows = sorted((event["after"] for event in captured.events("t")), key=lambda row: (row["id"], len(row)))
    place, moved = ({key: point_of(x, y)[key] for key in ("wkb", "srid")} for x, y in ((1, 2), (5, 5)))
    assert rows == [
        {"id": 1, "g": place, "v": 1}, {"id": 1, "g": moved, "v": 1, "h": None, "w": None},
        {"id": 2, "g": place, "v": 2}, {"id": 3, "g": None, "v": 3, "h": point_of(3, 3), "w": 4},
    ]  # fmt: skip
    schema = json.loads(captured.read(schemas_topic(captured.name), partitions=1)[-1][2])
    types = [column["column_type"].removesuffix("(11)") for column in schema["columns"]]
    assert types == ["int", "geometry", "int", "point", "int"]
    assert "left_out" not in schema


@pytest.mark.parametrize(
    "statement",
    ["TRUNCATE TABLE t", "DROP DATABASE IF EXISTS {}", pytest.param("DROP TABLE t", marks=pytest.mark.matrix)],
)
def test_a_truncated_table_is_marked(capture: Callable[..., Any], statement: str) -> None:
    """TRUNCATE has no row events: a marker in every partition says that all rows of smaller sequence are deleted."""
    captured = capture("t")
    create = "CREATE TABLE t (id INT PRIMARY KEY, v INT)"
    captured.sql(create, "INSERT INTO t VALUES (1, 1)")
    process = captured.start()
    captured.streaming(process)
    captured.sql("INSERT INTO t VALUES (2, 2)", statement.format(captured.name))
    captured.sql_anywhere(f"CREATE DATABASE IF NOT EXISTS {captured.name}")
    if not statement.startswith("TRUNCATE"):
        captured.sql(create)
    captured.sql("INSERT INTO t VALUES (2, 3)")
    captured.caught_up()
    process.terminate()
    assert captured.end_of(process)[0] == 0
    records = captured.read(captured.topic("t"))
    marks = [(p, json.loads(value)) for p, key, value in records if key == TRUNCATE_KEY]
    # a table that is created again is read again, after its own marker
    times = 1 if statement.startswith("TRUNCATE") else 2
    assert sorted((p, mark["op"], mark["before"], mark["after"]) for p, mark in marks) == [
        *[(0, "t", None, None)] * times, *[(1, "t", None, None)] * times,
    ]  # fmt: skip
    (after,) = [event for event in captured.events("t") if event["after"] == {"id": 2, "v": 3}]
    (before,) = [event for event in captured.events("t") if event["after"] == {"id": 2, "v": 2}]
    numbers = sorted(mark["source"]["sequence"] for _, mark in marks)
    assert before["source"]["sequence"] < numbers[0]
    assert numbers[-1] < after["source"]["sequence"]
    assert len(set(numbers)) == times


# XA on the server's log: tests/ingest/binlog/test_xa.py
@pytest.mark.parametrize("kind", ["statement", pytest.param("xa", marks=pytest.mark.matrix)])
def test_transactions_without_row_events(capture: Callable[..., Any], kind: str) -> None:
    """After a statement logged as text its table is read again; rows of an XA transaction are published at its
    commit."""
    captured = capture("t")
    captured.sql("CREATE TABLE t (id INT PRIMARY KEY)", f"CREATE DATABASE {captured.name}_x")
    other = f"{captured.name}_x.t"
    captured.sql(f"CREATE TABLE {other} (id INT PRIMARY KEY)")
    process = captured.start()
    captured.streaming(process)

    def insert(table: str) -> None:
        if kind == "statement":
            captured.sql(
                f"USE {table.split('.')[0]}", "SET binlog_format = STATEMENT", f"INSERT INTO {table} VALUES (1)"
            )
        else:
            parts = ["START", "END", "PREPARE", "COMMIT"]
            start, *rest = [f"XA {part} '{captured.name}'" for part in parts]
            captured.sql(start, f"INSERT INTO {table} VALUES (1)", *rest)

    insert(other)
    captured.sql("INSERT INTO t VALUES (7)")
    captured.caught_up()
    assert process.poll() is None
    insert(f"{captured.name}.t")
    captured.sql(f"DROP DATABASE {captured.name}_x")

    def reported() -> list[int]:
        return [event["after"]["id"] for event in captured.events("t") if event["after"]]

    expected = [1, 7, 7] if kind == "statement" else [1, 7]
    captured.wait_for(lambda: sorted(reported()) == expected, "the row does not arrive")
    process.terminate()
    assert captured.end_of(process)[0] == 0


def test_a_changed_table_gets_a_new_schema_version_before_its_rows(capture: Callable[..., Any]) -> None:
    """ALTER TABLE while the capture streams, and while it is down: rows keep the schema that they were logged with."""
    captured = capture("t")
    captured.sql("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1, 1)")
    process = captured.start()
    captured.streaming(process)
    captured.sql("INSERT INTO t VALUES (2, 2)", "ALTER TABLE t ADD COLUMN w DECIMAL(5,1) UNSIGNED, MODIFY v BIGINT")
    captured.sql("INSERT INTO t VALUES (3, 3, 1.5)")
    captured.caught_up()
    process.terminate()
    assert captured.end_of(process)[0] == 0
    captured.sql("INSERT INTO t VALUES (4, 4, 2.5)", "ALTER TABLE t DROP COLUMN v", "INSERT INTO t VALUES (5, 3.5)")
    process = captured.start()
    captured.caught_up()
    rows = sorted((event["after"] for event in captured.events("t")), key=lambda row: row["id"])
    assert rows == [
        {"id": 1, "v": 1},
        {"id": 2, "v": 2},
        {"id": 3, "v": 3, "w": "1.5"},
        {"id": 4, "v": 4, "w": "2.5"},
        {"id": 5, "w": "3.5"},
    ]
    versions = [json.loads(value) for _, _, value in captured.read(f"{captured.name}.schemas", 1)]
    assert [(v["version"], [c["column_type"].split("(")[0] for c in v["columns"]]) for v in versions] == [
        (1, ["int", "int"]),
        (2, ["int", "bigint", "decimal"]),
        (3, ["int", "decimal"]),
    ]


def test_a_lost_connection_loses_and_repeats_nothing(capture: Callable[..., Any]) -> None:
    """The server closes the log's connection repeatedly: the capture resumes from its own committed position."""
    captured = capture("t")
    captured.sql("CREATE TABLE t (id INT PRIMARY KEY AUTO_INCREMENT, v INT)")
    process = captured.start()
    captured.streaming(process)
    for i in range(2):
        captured.sql(*[f"INSERT INTO t (v) VALUES ({i})"] * 5)
        captured.caught_up()
        dumps = captured.sql(
            "SELECT id FROM information_schema.processlist WHERE command LIKE 'Binlog Dump%' AND user = 'cdc'"
        )
        mine = [thread for (thread,) in dumps if any(f"{process.pid}/" in line for line in holders(captured, thread))]
        captured.sql(*[f"KILL {thread}" for thread in mine])
        captured.sql(*[f"INSERT INTO t (v) VALUES ({i})"] * 5)
    captured.caught_up()
    process.terminate()
    code, _ = captured.end_of(process)
    assert code == 0
    events = captured.events("t")
    assert sorted(event["after"]["id"] for event in events) == list(range(1, 21))
    assert sorted(event["source"]["sequence"] for event in events) == list(range(1, 21))


def holders(captured: Any, thread: int) -> list[str]:
    """Return this machine's sockets that talk to the server's thread, as `pid/fd` of the owning process."""
    ((host,),) = captured.sql(f"SELECT host FROM information_schema.processlist WHERE id = {thread}")
    return [f"{captured.processes[-1].pid}/{host}"] if int(host.rpartition(":")[2]) in ports(captured) else []


def ports(captured: Any) -> set[int]:
    """Return the local ports of the TCP sockets of the test's newest process."""
    pid = captured.processes[-1].pid
    folder = f"/proc/{pid}/fd"
    inodes = {os.readlink(f"{folder}/{fd}").removeprefix("socket:[").rstrip("]") for fd in os.listdir(folder)}
    with open(f"/proc/{pid}/net/tcp") as table:
        rows = [line.split() for line in table.readlines()[1:]]
    return {int(row[1].rpartition(":")[2], 16) for row in rows if row[9] in inodes}


def test_a_position_that_the_server_does_not_have(capture: Callable[..., Any]) -> None:
    """A server that was reset, restored or replaced is reported; the capture never skips changes silently."""
    captured = capture("t")
    captured.sql("CREATE TABLE t (id INT PRIMARY KEY)")
    topology = read_topology(captured.file.read_text(), file="t.yml", environ=os.environ)
    source = topology.sources["shop"]
    log = KafkaLog(topology, source, make_topics(topology, source))
    log.recover()
    foreign = "00000000-0000-0000-0000-00000000beef:1-9"
    position = Position(file="binlog.000001", pos=4, gtid_set=foreign, sequence=9)
    log.commit(Checkpoint(position=position, snapshot="running", ts_ms=1))
    log.close()
    code, line = captured.end_of(captured.start())
    assert code == 1
    assert foreign in line
    assert "snapshot" in line


def test_a_purged_position_is_reported(capture: Callable[..., Any]) -> None:
    """With `position_lost: fail`, transactions that were purged before they were read stop the capture with an error
    that names them."""
    captured = capture("t", extra=", position_lost: fail")
    captured.sql("CREATE TABLE t (id INT PRIMARY KEY)")
    process = captured.start()
    captured.streaming(process)
    captured.caught_up()
    process.terminate()
    assert captured.end_of(process)[0] == 0
    captured.sql("INSERT INTO t VALUES (1)", "FLUSH BINARY LOGS")
    newest = captured.sql("SHOW BINARY LOGS")[-1][0]
    captured.sql(f"PURGE BINARY LOGS TO '{newest}'")
    code, line = captured.end_of(captured.start())
    assert code == 1
    assert "purged" in line
    assert "position_lost: resnapshot" in line
    assert "binlog_expire_logs_seconds" in line
