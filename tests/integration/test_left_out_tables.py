"""Only the table that cannot be captured is left out, and it is read as soon as the cause is gone."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from typing import Any

import pytest

from cdc.model.naming import TRUNCATE_KEY
from tailorbird.operate.status.kafka_captured import position_of
from tailorbird.operate.status.quarantine import quarantined

pytestmark = [pytest.mark.integration, pytest.mark.kafka("mysql-shop"), pytest.mark.timeout(180)]


def rows_of(captured: Any, table: str) -> list[tuple[Any, ...]]:
    """Return the rows of a table's topic as any reader folds it: markers delete what is older."""
    held: dict[tuple[int, bytes], tuple[int, Any]] = {}
    for partition, key, value in captured.read(captured.topic(table)):
        if value is None:
            continue
        event = json.loads(value)
        number = event["source"]["sequence"]
        if key == TRUNCATE_KEY:
            held = {at: row for at, row in held.items() if at[0] != partition or row[0] >= number}
        else:
            held[partition, key] = (number, event["after"])
    return sorted(tuple(row.values()) for _, row in held.values() if row is not None)


def left_out(captured: Any) -> set[str]:
    """Return the tables that the newest position lists as left out, as `status` shows them."""
    position = captured.position()
    reported = quarantined({"shop": position_of(position, 0)}) if position else []
    assert all(one.reason.count("; ") >= 1 for one in reported), reported
    return {one.of.rpartition(".")[2] for one in reported if one.stage == "left out"}


def test_listed_tables_that_cannot_be_captured_yet(capture: Callable[..., Any]) -> None:
    """Tables with no key, of another engine, views and missing ones: the rest flows from the first start, each is read
    when possible, and a key that is dropped and restored across a crash leaves the topic equal to the table.
    """
    captured = capture("t", "nokey", "my", "v", "later")
    captured.sql(
        "CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1, 1)",
        "CREATE TABLE nokey (id INT NOT NULL, v INT)", "INSERT INTO nokey VALUES (1, 1), (2, 2)",
        "CREATE TABLE my (id INT PRIMARY KEY, v INT) ENGINE=MyISAM", "INSERT INTO my VALUES (1, 1)",
        "CREATE VIEW v AS SELECT * FROM t",
    )  # fmt: skip
    process = captured.start()
    captured.streaming(process)
    captured.sql("INSERT INTO t VALUES (2, 2)", "INSERT INTO nokey VALUES (3, 3)", "INSERT INTO my VALUES (2, 2)")
    captured.caught_up()
    captured.wait_for(lambda: left_out(captured) == {"nokey", "my", "v", "later"}, "they are not named")
    captured.wait_for(lambda: rows_of(captured, "t") == [(1, 1), (2, 2)], "the rest does not flow")
    assert rows_of(captured, "my") == []
    captured.sql(
        "ALTER TABLE nokey ADD PRIMARY KEY (id)", "INSERT INTO nokey VALUES (4, 4)", "ALTER TABLE my ENGINE = InnoDB",
        "DROP VIEW v", "CREATE TABLE v (id INT PRIMARY KEY, v INT)", "INSERT INTO v VALUES (7, 7)",
        "CREATE TABLE later (id INT PRIMARY KEY, v INT)", "INSERT INTO later VALUES (8, 8)",
    )  # fmt: skip
    captured.wait_for(lambda: left_out(captured) == set(), "they are not captured")
    wanted = {"nokey": [(n, n) for n in range(1, 5)], "my": [(1, 1), (2, 2)], "v": [(7, 7)], "later": [(8, 8)]}
    captured.wait_for(lambda: {name: rows_of(captured, name) for name in wanted} == wanted, "rows are missing")

    captured.sql("ALTER TABLE nokey DROP PRIMARY KEY", "INSERT INTO nokey VALUES (5, 5)", "DELETE FROM nokey LIMIT 2")
    captured.wait_for(lambda: left_out(captured) == {"nokey"}, "a key that went is not noticed")
    process.send_signal(signal.SIGKILL)
    process.wait()
    captured.sql("INSERT INTO nokey VALUES (6, 6)", "ALTER TABLE nokey ADD PRIMARY KEY (id)")
    process = captured.start()
    left = sorted(tuple(row) for row in captured.sql("SELECT id, v FROM nokey"))
    captured.wait_for(lambda: rows_of(captured, "nokey") == left and not left_out(captured), "it is not read again")
    process.terminate()
    assert captured.end_of(process)[0] == 0


def test_new_tables_that_cannot_be_captured_under_accept(capture: Callable[..., Any]) -> None:
    """CREATE TABLE without a key, or of another engine (logged or not), with rows: the source continues. Adding a key,
    changing the engine or dropping the table resolves it, whether the capture runs at that time or not.
    """
    captured = capture("silent", extra=", filter_policy: accept")
    captured.sql("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "CREATE TABLE silent (a INT)")
    process = captured.start()
    captured.streaming(process)
    captured.sql(
        "CREATE TABLE nopk (a INT, b INT)", "INSERT INTO nopk VALUES (1, 1)",
        "CREATE TABLE mem (id INT PRIMARY KEY, v INT) ENGINE=MEMORY", "INSERT INTO mem VALUES (1, 1)",
        "SET default_storage_engine = MyISAM", "CREATE TABLE unlogged (id INT PRIMARY KEY, v INT)",
        "CREATE TABLE dropped (a INT)", "INSERT INTO dropped VALUES (1)", "INSERT INTO silent VALUES (1)",
        "INSERT INTO t VALUES (1, 1)",
    )  # fmt: skip
    captured.wait_for(lambda: left_out(captured) == {"nopk", "mem", "unlogged", "dropped"}, "they are not named")
    assert rows_of(captured, "t") == [(1, 1)]
    process.terminate()
    assert captured.end_of(process)[0] == 0
    captured.sql(
        "ALTER TABLE nopk ADD COLUMN id INT AUTO_INCREMENT PRIMARY KEY FIRST", "DROP TABLE dropped",
        "ALTER TABLE mem ENGINE = InnoDB", "INSERT INTO unlogged VALUES (2, 2)", "ALTER TABLE unlogged ENGINE = InnoDB",
    )  # fmt: skip
    process = captured.start()
    wanted = {"nopk": [(1, 1, 1)], "mem": [(1, 1)], "unlogged": [(2, 2)], "t": [(1, 1)]}
    # first: a topic that is read before it exists is not seen later
    captured.wait_for(lambda: left_out(captured) == set(), "they are still left out")
    captured.caught_up()
    captured.wait_for(lambda: {name: rows_of(captured, name) for name in wanted} == wanted, "rows are missing")
    assert process.poll() is None
