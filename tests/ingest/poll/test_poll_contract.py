"""The contract of polling for any database that SQLAlchemy supports, tested on SQLite and a real PostgreSQL.

SQL Server, which does not run here, shares everything but the text of its SQL (`test_sql_server.py`).
"""

from __future__ import annotations

from typing import Any

import pytest

from cdc.model.naming import dead_letter_topic
from ingest.poll.ddl import statements
from ingest.poll.poll_interfaces import Ask
from ingest.poll.sql_reader import SqlReader
from tests.support.polled import PolledDatabase, PollKilledError, polled_table

FEED = ", mode: feed, cursor: nr"
LONG_AGO = "'2026-01-01 00:00:00.000000'"


def test_values_are_published_in_canonical_form(database: PolledDatabase) -> None:
    """The same values of two databases are published alike."""
    one = polled_table(database)
    database.run(
        "CREATE TABLE t (id BIGINT PRIMARY KEY, b BOOLEAN, i SMALLINT, d DECIMAL(12,2), f REAL8, s VARCHAR(20), "
        "l TEXT, x BYTES, day DATE, at TIME, j JSON, updated_at TIME6 NOT NULL)",
        "INSERT INTO t VALUES (1, true, -5, 12.5, 0.25, 'Zoë', NULL, HEX, '2026-02-28', '01:02:03.500000', "
        "'{\"a\": [1]}', '2026-11-21 10:00:00.120000')",
    )
    one.run()
    (event,) = one.events()
    assert event["after"] == {
        "id": 1, "b": True, "i": -5, "d": "12.50", "f": 0.25, "s": "Zoë", "l": None, "x": "AP8=",
        "day": "2026-02-28Z", "at": "01:02:03.5", "j": '{"a":[1]}', "updated_at": "2026-11-21T10:00:00.12Z",
    }  # fmt: skip
    assert event["source"]["connector"] == database.dialect
    assert event["source"]["last_update_only"] is True


@pytest.mark.parametrize("limit", [1, 7])
def test_changes_are_seen_with_the_printed_column(database: PolledDatabase, limit: int) -> None:
    """Column, index and triggers of `tailorbird poll ddl` do what polling needs: inserts and updates appear once
    each."""
    one = polled_table(database, limit=limit)
    database.run("CREATE TABLE t (id INTEGER PRIMARY KEY, v INTEGER)", "INSERT INTO t VALUES (1, 1), (2, 2), (3, 3)")
    assert one.source.poll is not None
    database.run(*statements(database.dialect, one.table_id, one.source.poll))
    one.run()
    assert {row["id"]: row["v"] for row in one.rows()} == {1: 1, 2: 2, 3: 3}
    database.run("INSERT INTO t (id, v) VALUES (4, 4)", "UPDATE t SET v = 20 WHERE id = 2")
    one.run()
    one.run()
    assert {e["after"]["id"]: e["after"]["v"] for e in one.events()[3:]} == {4: 4, 2: 20}
    assert [e["source"]["sequence"] for e in one.events()] == [1, 2, 3, 4, 5]


def test_ties_are_walked_by_a_composite_key(database: PolledDatabase) -> None:
    """Within one timestamp a page continues after a key of several columns, in the database's own order."""
    one = polled_table(database, limit=2)
    keys = [(a, b) for a in ("x", "y") for b in range(20)]
    rows = ", ".join(f"('{a}', {b}, {LONG_AGO})" for a, b in keys)
    database.run(
        "CREATE TABLE t (a VARCHAR(3), b INTEGER, updated_at TIME6 NOT NULL, PRIMARY KEY (a, b))",
        f"INSERT INTO t VALUES {rows}",
    )
    one.run()
    assert sorted((e["after"]["a"], e["after"]["b"]) for e in one.events()) == keys
    with one.reading() as (reader, _, _):
        (schema,) = reader.schemas({}).values()
        (first, *_) = reader.page(schema, Ask(start=None, after=None, limit=1))
        found = [first.key]
        while page := reader.page(schema, Ask(start=first.cursor, after=found[-1], limit=7)):
            found += [row.key for row in page]
        assert found == keys
        assert reader.look(schema).newest == first.cursor
        assert reader.backlog(schema, None, 4) == 4
        assert reader.backlog(schema, first.cursor + 1, 4) == 0


def test_a_feed_is_followed_by_its_number(database: PolledDatabase) -> None:
    """Rows without a number yet are not published; each number is published once."""
    one = polled_table(database, FEED)
    database.run("CREATE TABLE t (id INTEGER PRIMARY KEY, nr BIGINT UNIQUE)", "INSERT INTO t VALUES (1, 1), (2, NULL)")
    one.run()
    assert [e["after"]["id"] for e in one.events()] == [1]
    database.run("UPDATE t SET nr = 2 WHERE id = 2", "INSERT INTO t VALUES (9, 3)")
    one.run()
    assert [e["after"]["id"] for e in one.events()] == [1, 2, 9]


def test_hidden_columns_are_not_published(database: PolledDatabase) -> None:
    """Columns that a topology hides are in no polled row, no dump, and no dead letter."""
    one = polled_table(database, tables="{t: {ignored_columns: [secret], mask: {mail: redact}}}")
    database.run(
        "CREATE TABLE t (id INTEGER PRIMARY KEY, secret TEXT, mail TEXT, updated_at TIME6 NOT NULL)",
        f"INSERT INTO t VALUES (1, 'geheim', 'a@b.c', {LONG_AGO})",
    )
    one.run()
    one.send("execute-snapshot")
    one.run()
    assert [e["after"]["mail"] for e in one.events()] == ["***", "***"]
    written = b"".join(record.value or b"" for record in one.broker.records)
    assert b"geheim" not in written
    assert b"b.c" not in written


def feed_of_eleven(database: PolledDatabase) -> None:
    """A key of two columns; rows 3 and 4 have no number."""
    rows = ", ".join(f"('{'ab'[i % 2]}', {i}.50, {i if i not in (3, 4) else 'NULL'}, {i})" for i in range(11))
    database.run(
        "CREATE TABLE t (a VARCHAR(3), d DECIMAL(8,2), nr BIGINT UNIQUE, v INTEGER, PRIMARY KEY (a, d))",
        f"INSERT INTO t VALUES {rows}",
    )


def table_of(database: PolledDatabase) -> dict[tuple[str, str], int]:
    return {(a, f"{d:.2f}"): v for a, d, v in database.run("SELECT a, d, v FROM t")}


def reported_of(rows: list[dict[str, Any]]) -> dict[tuple[str, str], int]:
    return {(row["a"], row["d"]): row["v"] for row in rows}


def test_a_dump_publishes_changes_that_polling_cannot_see(database: PolledDatabase) -> None:
    """Rows without a cursor, rows changed without it, deleted rows: after a dump the log equals the table."""
    one = polled_table(database, FEED)
    feed_of_eleven(database)
    one.run()
    assert len(one.rows()) == 9
    database.run("UPDATE t SET v = 77 WHERE d = 5.5", "DELETE FROM t WHERE d IN (0.5, 7.5)")
    one.send("execute-snapshot")
    one.run()
    assert reported_of(one.rows()) == table_of(database)
    dumped = one.events()[9:]
    assert len(dumped) == 9
    assert {(e["op"], e["source"]["snapshot"], e["source"]["last_update_only"]) for e in dumped} == {
        ("r", "true", True)
    }
    assert one.reported.of("signal")[-1]["refused"] == ""


def test_a_dump_of_a_condition_reads_its_rows_alone(database: PolledDatabase) -> None:
    """The condition is passed to the database unchanged; no row that does not match it is deleted."""
    one = polled_table(database)
    database.run(
        "CREATE TABLE t (id INTEGER PRIMARY KEY, note TEXT, updated_at TIME6 NOT NULL)",
        *(
            f"INSERT INTO t VALUES ({i}, '{note}', {LONG_AGO})"
            for i, note in enumerate(["a%1", "b:c", "d", "a%2", "x"])
        ),
    )
    one.run()
    database.run("DELETE FROM t WHERE id = 4", "UPDATE t SET note = 'a%3' WHERE id = 3")
    one.send("execute-snapshot", "note LIKE 'a%' OR note = 'b:c'")
    one.run()
    # polling publishes its fourth row first, since its version is another one
    assert [(e["after"]["id"], e["after"]["note"]) for e in one.events()[6:]] == [(0, "a%1"), (1, "b:c"), (3, "a%3")]
    assert len(one.rows()) == 5


def test_a_dump_resumes_where_it_was_killed(database: PolledDatabase) -> None:
    """Progress is committed with the rows. A process dies before its first page is committed, then after each of two
    pages: each row is dumped exactly once, under increasing numbers."""
    one = polled_table(database, FEED, limit=3)
    feed_of_eleven(database)
    one.run()
    one.send("execute-snapshot")
    for dies_at, dumped in [(1, 0), (2, 3), (2, 6)]:
        with pytest.raises(PollKilledError):
            one.run(dies_at=dies_at, cycles=9)
        assert len(one.events()) == 9 + dumped
    one.run()
    assert reported_of(one.rows()) == table_of(database)
    assert len(one.events()) == 9 + 11
    numbers = [event["source"]["sequence"] for event in one.events()]
    assert numbers == sorted(set(numbers))


def test_a_dump_never_overwrites_newer_rows(database: PolledDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page is published before anything else is read: rows that change just before or after it was read end
    correctly, and so do rows inserted and deleted after the walk has passed."""
    one = polled_table(database, limit=2)
    database.run("CREATE TABLE t (id INTEGER PRIMARY KEY, v INTEGER)")
    assert one.source.poll is not None
    database.run(*statements(database.dialect, one.table_id, one.source.poll))
    database.run(*(f"INSERT INTO t (id, v) VALUES ({i}, {i})" for i in range(10, 18)), "DELETE FROM t WHERE id = 11")
    one.run()
    pages, walk = list[int](), SqlReader.walk

    def walked(reader: SqlReader, *asked: Any) -> Any:
        pages.append(n := len(pages) + 1)
        database.run(f"UPDATE t SET v = {100 * n} WHERE id % 2 = 0")
        found = walk(reader, *asked)
        database.run(f"UPDATE t SET v = {100 * n + 50} WHERE id % 3 = 0", f"INSERT INTO t (id, v) VALUES ({n}, {n})")
        return found

    monkeypatch.setattr(SqlReader, "walk", walked)
    one.send("execute-snapshot")
    one.run()
    one.run()
    assert len(pages) > 3
    assert {row["id"]: row["v"] for row in one.rows()} == dict(database.run("SELECT id, v FROM t"))
    reported: dict[int, int] = {}
    for row in (event["after"] for event in one.events()):
        assert row["v"] >= reported.get(row["id"], 0), "an older version followed a newer one"
        reported[row["id"]] = row["v"]


def test_signals_are_answered(database: PolledDatabase) -> None:
    """Requests that polled sources do not support are refused with the alternative. A condition that the database
    refuses ends only its dump. Each signal is executed once, and stop-snapshot cancels a dump."""
    one = polled_table(database, limit=1)
    database.run(
        "CREATE TABLE t (id INTEGER PRIMARY KEY, updated_at TIME6 NOT NULL)",
        *(f"INSERT INTO t VALUES ({i}, {LONG_AGO})" for i in range(3)),
    )
    one.run()
    one.send("pause-snapshot")
    one.send("mend-rows", keys=[{"id": 1}])
    one.send("execute-snapshot", table="x")
    one.send("execute-snapshot", "nothing = 1")
    one.run()
    refused = [details["refused"] for details in one.reported.of("signal")]
    assert [text.partition(":")[0] for text in refused] == [
        "dumps of polled tables cannot be paused", "a polled source has no log to repair",
        f"{database.schema}.x is not polled", "",
    ]  # fmt: skip
    (given_up,) = one.reported.of("a dump is cancelled")
    assert "the condition nothing = 1" in given_up["why"]
    one.send("execute-snapshot")
    one.send("stop-snapshot")
    one.run()
    assert len(one.events()) == 3
    assert len(one.reported.of("signal")) == 6
    assert one.state["signals"] == 6
    assert not [record for record in one.broker.records if record.topic == dead_letter_topic("top")]


def test_a_dump_of_a_changed_table_starts_again(database: PolledDatabase) -> None:
    """A table with another key is dumped from its beginning; the dump of a table that is no longer polled is dropped
    with a log line."""
    one = polled_table(database, FEED, limit=2)
    feed_of_eleven(database)
    one.run()
    one.send("execute-snapshot")
    with pytest.raises(PollKilledError):
        one.run(dies_at=2, cycles=20)
    database.run("CREATE TABLE u (a VARCHAR(3), d DECIMAL(8,2), nr BIGINT UNIQUE, v INTEGER, PRIMARY KEY (d))")
    database.run("INSERT INTO u SELECT a, d, nr, v FROM t", "DROP TABLE t", "ALTER TABLE u RENAME TO t")
    one.run()
    assert len(one.events()) >= 9 + 11
    one.send("execute-snapshot")
    with pytest.raises(PollKilledError):
        one.run(dies_at=2, cycles=20)
    database.run("CREATE TABLE w (a VARCHAR(3) PRIMARY KEY, nr BIGINT UNIQUE)")
    other = polled_table(database, FEED, tables="[w]")
    other.broker = one.broker
    other.run()
    (forgotten,) = other.reported.of("dumps are dropped: their tables are no longer polled")
    assert forgotten["tables"] == [f"{database.schema}.t"]
