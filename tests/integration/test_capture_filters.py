"""Select the captured tables and their keys: `filter_policy: accept`, tables without a key, huge transactions."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

pytestmark = [pytest.mark.integration, pytest.mark.kafka("mysql-shop"), pytest.mark.timeout(180)]


def rewrite(captured: Any, tables: str) -> None:
    """Replace the captured tables in the topology file."""
    text = captured.file.read_text()
    assert "tables: [t]" in text
    captured.file.write_text(text.replace("tables: [t]", tables))


def test_with_accept_new_tables_are_captured(capture: Callable[..., Any]) -> None:
    """All tables except the listed ones are captured, also tables created, renamed or filled while the capture runs or
    is down. Ignored columns are not published.
    """
    captured = capture("t")
    rewrite(captured, "filter_policy: accept, tables: {skipped: {}, users: {ignored_columns: [secret]}}")
    captured.sql(
        "CREATE TABLE t (id INT PRIMARY KEY, v INT)", "CREATE TABLE skipped (id INT PRIMARY KEY)",
        "CREATE TABLE users (id INT PRIMARY KEY, secret VARCHAR(9))", "INSERT INTO t VALUES (1, 1)",
        "INSERT INTO skipped VALUES (1)", "INSERT INTO users VALUES (1, 'geheim')",
    )  # fmt: skip
    process = captured.start()
    captured.streaming(process)
    captured.sql(
        "CREATE TABLE later (id INT PRIMARY KEY, w INT)", "INSERT INTO later VALUES (1, 5)",
        "UPDATE users SET secret = 'anders', id = 2", "INSERT INTO skipped VALUES (2)",
        "CREATE TABLE copied LIKE t", "INSERT INTO copied SELECT * FROM t", "RENAME TABLE skipped TO kept",
        "INSERT INTO kept VALUES (3)",
    )  # fmt: skip
    captured.caught_up()
    process.terminate()
    assert captured.end_of(process)[0] == 0
    captured.sql(
        "CREATE TABLE down (id INT PRIMARY KEY)", "INSERT INTO down VALUES (4)", "INSERT INTO later VALUES (2, 6)"
    )
    process = captured.start()
    captured.caught_up()

    def rows(table: str) -> list[Any]:
        return sorted((event["after"] for event in captured.events(table) if event["after"]), key=lambda r: r["id"])

    captured.wait_for(lambda: rows("kept") == [{"id": 1}, {"id": 2}, {"id": 3}], "a renamed table is not captured")
    assert rows("t") == [{"id": 1, "v": 1}]
    assert rows("users") == [{"id": 1}, {"id": 2}]
    assert rows("later") == [{"id": 1, "w": 5}, {"id": 2, "w": 6}]
    assert rows("copied") == [{"id": 1, "v": 1}]
    assert rows("down") == [{"id": 4}]
    assert captured.read(captured.topic("skipped")) == []
    ends = captured.position()["end_offsets"]
    assert {captured.topic(name) for name in ("t", "users", "later", "copied", "down", "kept")} <= ends.keys()


@pytest.mark.matrix  # with a list: the test above; the policy alone: tests/cdc/test_filters.py
def test_accept_without_a_list_captures_all(capture: Callable[..., Any]) -> None:
    """Without any listed table all are captured, as in Debezium: existing tables and new ones."""
    captured = capture("t")
    rewrite(captured, "filter_policy: accept")
    captured.sql("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    captured.streaming(captured.start())
    captured.sql("CREATE TABLE later (id INT PRIMARY KEY)", "INSERT INTO later VALUES (2)")
    captured.caught_up()
    assert [event["after"] for event in captured.events("t")] == [{"id": 1}]
    assert [event["after"] for event in captured.events("later")] == [{"id": 2}]


def test_a_table_without_a_key_is_captured_under_the_columns_named(capture: Callable[..., Any]) -> None:
    """Its snapshot is one pass that omits no row, although rows share the key; the same holds for the log."""
    captured = capture("t")
    rewrite(captured, "tables: {t: {message_key_columns: [a]}}")
    captured.sql("CREATE TABLE t (a INT, b INT NOT NULL)")
    values = ",".join(f"({n // 3},{n})" for n in range(9_000))
    captured.sql(f"INSERT INTO t VALUES {values}")
    process = captured.start()
    captured.streaming(process)
    captured.sql("INSERT INTO t VALUES (7, 9001)", "DELETE FROM t WHERE b = 5")
    captured.caught_up()
    process.terminate()
    assert captured.end_of(process)[0] == 0
    records = captured.read(captured.topic("t"))
    events = [(key, json.loads(value)) for _, key, value in records if value is not None]
    assert sorted(event["after"]["b"] for _, event in events if event["op"] == "r") == list(range(9_000))
    assert all(json.loads(key) == {"a": (event["after"] or event["before"])["a"]} for key, event in events)
    assert [event["op"] for _, event in events if event["op"] != "r"] == ["c", "d"]


def test_a_huge_transaction_resumes_at_the_next_row_after_a_kill(capture: Callable[..., Any]) -> None:
    """The transaction has more records than one Kafka transaction can take. After a kill the published part stays and
    the rest follows exactly once.
    """
    captured = capture("t")
    captured.sql("CREATE TABLE t (id INT PRIMARY KEY, v INT)")
    process = captured.start()
    captured.streaming(process)
    values = ",".join(f"({n},1)" for n in range(45_000))
    captured.sql(f"INSERT INTO t VALUES {values}")
    transactions, position = 1, dict[str, Any]()
    # a fast capture may have published all of a transaction before its open part is seen: then another one follows
    while not position.get("open"):
        captured.sql("UPDATE t SET v = v + 1")
        transactions += 1

        def seen(rows: int = 45_000 * transactions) -> bool:
            nonlocal position
            position = captured.position() or {}
            return bool(position.get("open")) or position.get("sequence", 0) >= rows

        captured.wait_for(seen, "the transaction is not published in parts")
    process.kill()
    process.wait()
    position = captured.position() or {}
    resumed = position.get("open")
    process = captured.start()
    captured.caught_up()
    process.terminate()
    assert captured.end_of(process)[0] == 0
    events = sorted(captured.events("t"), key=lambda event: event["source"]["sequence"])
    assert [event["source"]["sequence"] for event in events] == list(range(1, 45_000 * transactions + 1))
    for number in range(transactions):
        part = events[45_000 * number : 45_000 * (number + 1)]
        assert {event["op"] for event in part} == {"u" if number else "c"}
        assert len({event["transaction"]["id"] for event in part}) == 1
        assert [event["transaction"]["total_order"] for event in part] == list(range(1, 45_001))
        assert [event["after"]["id"] for event in part] == list(range(45_000))
    if resumed is not None:  # the kill came after a part was published
        assert 0 < resumed["total_order"] < 45_000
