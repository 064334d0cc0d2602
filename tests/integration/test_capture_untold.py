"""Changes without complete rows in the log, on a real server: the topic ends with the rows of the table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytestmark = [pytest.mark.integration, pytest.mark.kafka("mysql-shop"), pytest.mark.timeout(180)]


def shown(captured: Any, table: str) -> dict[int, dict[str, Any]]:
    """Return the newest image of every row in the topic, by key; a marker deletes the rows older than it."""
    rows: dict[int, tuple[int, dict[str, Any]]] = {}
    for event in captured.events(table):
        before, after, number = event["before"], event["after"], event["source"]["sequence"]
        if event["op"] == "t":
            rows = {key: row for key, row in rows.items() if row[0] >= number}
        elif after is None:
            rows.pop(before["id"], None)
        else:
            rows[after["id"]] = number, after
    return {key: row for key, (_, row) in rows.items()}


def held(captured: Any, table: str, *columns: str) -> dict[int, dict[str, Any]]:
    """Return the same from the table itself."""
    found = captured.sql(f"SELECT {', '.join(columns)} FROM {table}")
    return {row[0]: dict(zip(columns, row, strict=True)) for row in found}


def test_partial_images_and_statements_of_one_session(capture: Callable[..., Any]) -> None:
    """MINIMAL images and a statement logged as text: the rows arrive and the capture continues."""
    captured = capture("t", "u")
    for table in ("t", "u"):
        captured.sql(f"CREATE TABLE {table} (id INT PRIMARY KEY, v INT, w VARCHAR(9) DEFAULT 'x')")
        captured.sql(f"INSERT INTO {table} (id, v) VALUES " + ",".join(f"({n},{n})" for n in range(100)))
    process = captured.start()
    captured.streaming(process)
    captured.sql(
        "SET SESSION binlog_row_image = MINIMAL",
        "UPDATE t SET v = v + 1000 WHERE id < 20",
        "INSERT INTO t (id, v) VALUES (200, 1), (201, 2)",
        "DELETE FROM t WHERE id BETWEEN 30 AND 35",
        "UPDATE t SET id = 300 WHERE id = 40",
    )
    captured.sql(
        "SET SESSION binlog_format = STATEMENT",
        "UPDATE u SET v = -v WHERE id < 50",
        "DELETE FROM u WHERE id > 90",
    )
    captured.sql("UPDATE t SET w = 'after' WHERE id = 99")
    columns = ("id", "v", "w")
    for table in ("t", "u"):
        captured.wait_for(
            lambda table=table: shown(captured, table) == held(captured, table, *columns), f"{table} is not what it was"
        )
    process.terminate()
    assert captured.end_of(process)[0] == 0


def test_children_follow_their_parents(capture: Callable[..., Any]) -> None:
    """ON DELETE CASCADE, ON UPDATE CASCADE and SET NULL over two levels: changes that InnoDB does not log arrive."""
    captured = capture("parent", "child", "grandchild")
    captured.sql(
        "CREATE TABLE parent (id INT PRIMARY KEY)",
        "CREATE TABLE child (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES parent (id)"
        " ON DELETE CASCADE ON UPDATE CASCADE)",
        "CREATE TABLE grandchild (id INT PRIMARY KEY, c INT, v INT, FOREIGN KEY (c) REFERENCES child (id)"
        " ON DELETE SET NULL)",
        "INSERT INTO parent VALUES (1), (2), (3)",
        "INSERT INTO child VALUES (10, 1), (11, 1), (20, 2), (30, 3)",
        "INSERT INTO grandchild VALUES (100, 10, 0), (110, 11, 0), (200, 20, 0), (300, 30, 0)",
    )
    process = captured.start()
    captured.streaming(process)
    captured.sql(
        "DELETE FROM parent WHERE id = 1",
        "UPDATE parent SET id = 9 WHERE id = 2",
        "UPDATE grandchild SET v = 1 WHERE id = 100",
    )
    for table, columns in {"child": ("id", "p"), "grandchild": ("id", "c", "v")}.items():
        captured.wait_for(
            lambda table=table, columns=columns: shown(captured, table) == held(captured, table, *columns),
            f"{table} keeps outdated values",
        )
    assert {row["c"] for row in shown(captured, "grandchild").values()} == {None, 20, 30}
    process.terminate()
    assert captured.end_of(process)[0] == 0
