"""No change is silent: changes without row events in PostgreSQL's log are found, and the table is read again."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import count
from typing import Any

import orjson
import pytest

from ingest.ddl.catalog import TableName
from ingest.postgres.pg_connection import PgConnection
from ingest.postgres.pg_watch import Members, PgWatch
from ingest.postgres.watched import TableLook
from tests.support.pg_captured import Capture, PgCaptured
from tests.support.pg_rows import equal, in_log, in_server, same
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]
ACCEPT = ", filter_policy: accept"

# By table: the statements that create and fill it, and those that run while it is captured. `{t}` is its name.
PARTS = (
    "CREATE TABLE {t} (id INT PRIMARY KEY, v INT) PARTITION BY RANGE (id); "
    "CREATE TABLE {t}_1 PARTITION OF {t} FOR VALUES FROM (0) TO (10); "
    "CREATE TABLE {t}_2 PARTITION OF {t} FOR VALUES FROM (10) TO (20); "
    "INSERT INTO {t} VALUES (1, 1), (2, 2), (11, 11), (12, 12)"
)
PLAIN = "CREATE TABLE {t} (id INT PRIMARY KEY, v INT); INSERT INTO {t} VALUES (1, 1), (2, 2)"
ENUM = "CREATE TYPE {t}_e AS ENUM ('a', 'b'); "
CASES: dict[str, tuple[str, str]] = {
    "truncated": (PARTS, "TRUNCATE {t}_1"),
    "detached": (PARTS, "ALTER TABLE {t} DETACH PARTITION {t}_2"),
    "dropped": (PARTS, "DROP TABLE {t}_2"),
    "attached": (
        PARTS,
        "CREATE TABLE {t}_3 (id INT PRIMARY KEY, v INT); INSERT INTO {t}_3 VALUES (21, 21); "
        "ALTER TABLE {t} ATTACH PARTITION {t}_3 FOR VALUES FROM (20) TO (30)",
    ),
    "nested": (
        PARTS,
        "CREATE TABLE {t}_n (id INT NOT NULL, v INT) PARTITION BY RANGE (id); "
        "CREATE TABLE {t}_n1 PARTITION OF {t}_n FOR VALUES FROM (20) TO (25); INSERT INTO {t}_n VALUES (21, 21); "
        "ALTER TABLE {t} ATTACH PARTITION {t}_n FOR VALUES FROM (20) TO (30)",
    ),
    "part_default": (PARTS, "ALTER TABLE {t} ADD COLUMN n INT DEFAULT 7"),
    "part_type": (PARTS, "ALTER TABLE {t} ALTER v TYPE BIGINT USING v * 10"),
    "rewritten": (PLAIN, "ALTER TABLE {t} ALTER v TYPE INT USING v * 10"),
    "rewritten_after_rows": (PLAIN, "UPDATE {t} SET v = 9 WHERE id = 1; ALTER TABLE {t} ALTER v TYPE INT USING v * 10"),
    "to_text": (PLAIN, "ALTER TABLE {t} ALTER v TYPE TEXT USING 'x' || v"),
    "volatile": (PLAIN, "ALTER TABLE {t} ADD COLUMN r TEXT DEFAULT gen_random_uuid()::text"),
    "serial": (PLAIN, "ALTER TABLE {t} ADD COLUMN n INT GENERATED ALWAYS AS IDENTITY"),
    "again": (PLAIN, "ALTER TABLE {t} DROP COLUMN v; ALTER TABLE {t} ADD COLUMN v INT"),
    "renamed_column": (PLAIN, "ALTER TABLE {t} RENAME COLUMN v TO w"),
    "oid": (
        "CREATE TABLE {t} (id INT PRIMARY KEY, v INT); INSERT INTO {t} VALUES (1, -1)",
        "ALTER TABLE {t} ALTER v TYPE OID",
    ),
    "renamed_label": (
        ENUM + "CREATE TABLE {t} (id INT PRIMARY KEY, v {t}_e); INSERT INTO {t} VALUES (1, 'a'), (2, 'b')",
        "ALTER TYPE {t}_e RENAME VALUE 'a' TO 'z'; ALTER TYPE {t}_e ADD VALUE 'c'",
    ),
    "label_of_a_domain": (
        ENUM + "CREATE DOMAIN {t}_d AS {t}_e; CREATE TABLE {t} (id INT PRIMARY KEY, v {t}_d); "
        "INSERT INTO {t} VALUES (1, 'a'), (2, 'b')",
        "ALTER TYPE {t}_e RENAME VALUE 'a' TO 'z'",
    ),
    "swapped": (
        PLAIN,
        "CREATE TABLE {t}_new (id INT PRIMARY KEY, v INT); INSERT INTO {t}_new VALUES (2, 20), (3, 30); "
        "ALTER TABLE {t} RENAME TO {t}_old; ALTER TABLE {t}_new RENAME TO {t}",
    ),
    "unpublished": (PLAIN, "ALTER PUBLICATION {p} DROP TABLE {t}; INSERT INTO {t} VALUES (3, 3); DELETE FROM {t} "
                    "WHERE id = 1"),
    "replica": (
        PLAIN,
        "SET session_replication_role = replica; UPDATE {t} SET v = 5; INSERT INTO {t} VALUES (3, 3); "
        "RESET session_replication_role",
    ),
    "parent": (
        "CREATE TABLE {t} (id INT PRIMARY KEY, v INT); CREATE TABLE {t}_c (more INT) INHERITS ({t}); "
        "INSERT INTO {t} VALUES (1, 1); INSERT INTO {t}_c VALUES (2, 2, 2)",
        "DELETE FROM {t} WHERE id = 2; INSERT INTO {t}_c VALUES (3, 3, 3); UPDATE {t} SET v = 7",
    ),
    "rekeyed": (
        "CREATE TABLE {t} (id INT PRIMARY KEY, v INT, k INT NOT NULL); INSERT INTO {t} VALUES (1, 1, 10), (2, 2, 20)",
        "ALTER TABLE {t} DROP CONSTRAINT {t}_pkey, ADD PRIMARY KEY (k); UPDATE {t} SET v = 7 WHERE id = 2",
    ),
    "emptied": (PLAIN, "TRUNCATE {t}; ALTER TABLE {t} ADD COLUMN n INT DEFAULT 4; INSERT INTO {t} VALUES (8, 8, 8)"),
}  # fmt: skip
STORED = {
    "expression": (
        "CREATE TABLE {t} (id INT PRIMARY KEY, v INT, d INT GENERATED ALWAYS AS (v * 2) STORED); "
        "INSERT INTO {t} (id, v) VALUES (1, 1), (2, 2)",
        "ALTER TABLE {t} ALTER d SET EXPRESSION AS (v * 3)",
    ),
    "generated": (PLAIN, "ALTER TABLE {t} ADD COLUMN d INT GENERATED ALWAYS AS (v * 2) STORED"),
}


def cases(captured: PgCaptured) -> dict[str, tuple[str, str]]:
    ((version,),) = captured.sql("SELECT current_setting('server_version_num')::int")
    return CASES | (STORED if version >= 180_000 else {})


def each(captured: PgCaptured, name: str, sql: str) -> None:
    """Run statements one by one, each in its own transaction."""
    with captured.connect() as connection:
        for statement in sql.format(t=name, p=captured.slot()).split("; "):
            connection.execute(statement)


@pytest.mark.parametrize("when", ["during", pytest.param("between", marks=pytest.mark.matrix)])
def test_rows_that_change_without_log_events_are_read_again(capture: Capture, when: str) -> None:
    """While the capture runs, and while it is down: at the end a reader has the server's rows of every table."""
    captured = capture("[]", ACCEPT)
    todo = cases(captured)
    for name, (made, _) in todo.items():
        each(captured, name, made)
    captured.start()
    captured.caught_up()
    equal(captured, *todo)
    if when == "between":
        captured.stop()
    for name, (_, happens) in todo.items():
        each(captured, name, happens)
    if when == "between":
        captured.start()
    equal(captured, *todo)
    for name in todo:  # and the log continues
        column = captured.sql(
            f"SELECT attname FROM pg_attribute WHERE attrelid = '{name}'::regclass AND attnum > 0 AND attname <> 'id' "
            "AND attgenerated = '' AND attidentity = '' AND NOT attisdropped ORDER BY attnum LIMIT 1"
        )[0][0]
        captured.sql(f"UPDATE {name} SET {column} = NULL")
    captured.caught_up()
    equal(captured, *todo)
    captured.stop()


def test_a_table_that_is_rewritten_in_the_middle_of_a_check_is_read_again(
    capture: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An ALTER between two queries of a check: the check contains all of it or nothing, and so the next one finds
    it."""
    captured = capture("[t]")
    each(captured, "t", PLAIN)
    captured.start()
    captured.caught_up()
    equal(captured, "t")
    texts, todo = PgConnection.texts, ["ALTER TABLE t ALTER v TYPE INT USING v * 10"]

    def texts_after_alter(self: PgConnection, sql: str, *arguments: str) -> list[tuple[str, ...]]:
        if sql.startswith("SELECT a.attrelid, a.attnum, a.attname") and todo:
            captured.sql(todo.pop())
        return texts(self, sql, *arguments)

    monkeypatch.setattr(PgConnection, "texts", texts_after_alter)
    captured.sql("ALTER TABLE t ALTER v SET STATISTICS 10")  # the next check reads the table
    wait_for(lambda: not todo, "no check ran", seconds=30)
    equal(captured, "t")
    captured.stop()


def counting(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Count the checks; return a function that waits for one that begins from now on."""
    look, looks = PgWatch._look, list[float]()

    def counted(self: PgWatch) -> None:
        look(self)
        looks.append(time.monotonic())

    def checked() -> None:
        before = len(looks)
        wait_for(lambda: len(looks) >= before + 2, "no check ran", seconds=60)

    monkeypatch.setattr(PgWatch, "_look", counted)
    return checked


def test_a_column_that_is_added_under_the_name_of_a_dropped_one(
    capture: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Older rows of the log have the values of the dropped column. A check saw that it was dropped (t), or only the
    log has shown that it existed (u), or the next check follows a restart (w)."""
    checked = counting(monkeypatch)
    captured = capture("[t, u, w]")
    for table in "tuw":
        each(captured, table, PLAIN)
    captured.start()
    captured.caught_up()
    checked()
    captured.stop()
    captured.sql("ALTER TABLE u ADD COLUMN n INT", "UPDATE u SET n = 5", "ALTER TABLE u DROP COLUMN n")
    captured.start()
    captured.caught_up()
    captured.sql("ALTER TABLE t DROP COLUMN v", "ALTER TABLE w DROP COLUMN v")
    checked()
    captured.stop()
    captured.sql("ALTER TABLE w ADD COLUMN v INT DEFAULT 3")
    captured.start()
    captured.caught_up()
    captured.sql("ALTER TABLE t ADD COLUMN v INT", "ALTER TABLE u ADD COLUMN n INT DEFAULT 4")
    equal(captured, "t", "u", "w")
    read = [len(reads(captured, table)) for table in "tuw"]
    captured.sql("ALTER TABLE t ADD COLUMN other INT", "ALTER TABLE u ALTER v SET STATISTICS 10", "UPDATE w SET v = 1")
    checked()
    captured.caught_up()
    captured.stop()
    assert [len(reads(captured, table)) for table in "tuw"] == read == [4, 4, 4]


def test_a_rewrite_that_changes_no_value_causes_no_reread(capture: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    """VACUUM FULL, CLUSTER, statistics, indexes, constants as defaults, new partitions, grants: only the files
    change, or only the catalog. If both change between two checks, the table is read again without need."""
    checked = counting(monkeypatch)
    captured = capture("[t, p]")
    each(captured, "t", PLAIN)
    each(captured, "p", PARTS)
    captured.start()
    captured.caught_up()
    read = [len(reads(captured, table)) for table in ("t", "p")]
    for statement in (
        "VACUUM FULL t", "CLUSTER t USING t_pkey", "ANALYZE t", "", "ALTER TABLE t ALTER v SET STATISTICS 10",
        "CREATE INDEX ON t (v)", "REINDEX TABLE t", "GRANT SELECT (v) ON t TO cdc", "ALTER TABLE t ADD COLUMN n INT",
        "ALTER TABLE t ADD COLUMN m INT DEFAULT 3", "ALTER TABLE t DROP COLUMN n",
        "ALTER TABLE t ALTER v SET DEFAULT 3",
        "CREATE TABLE p_3 PARTITION OF p FOR VALUES FROM (20) TO (30)", "INSERT INTO p VALUES (21, 21)",
        "CREATE TABLE p_4 (id INT PRIMARY KEY, v INT)",
        "ALTER TABLE p ATTACH PARTITION p_4 FOR VALUES FROM (30) TO (40)",
        "INSERT INTO p VALUES (31, 31)", "", "TRUNCATE t", "INSERT INTO t VALUES (1, 1, 1), (2, 2, 2)",
    ):  # fmt: skip
        captured.sql(statement) if statement else checked()
    captured.caught_up()
    captured.sql("ALTER TABLE t ALTER v TYPE INT USING v + 1")  # the next check that finds a change finds all
    equal(captured, "t", "p")
    captured.stop()
    assert [len(reads(captured, table)) for table in ("t", "p")] == [read[0] + 2, read[1]]


def test_a_check_reads_only_tables_near_a_change(capture: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise each ALTER would cost as much as all tables, of which a source may have thousands."""
    captured, look, seen = capture("[]", ACCEPT), PgWatch._seen, list[int]()
    for number in range(12):
        each(captured, f"t{number}", "CREATE TABLE {t} (id INT PRIMARY KEY)")

    def counted(self: PgWatch, rows: list[tuple[str, ...]], members: Members) -> dict[TableName, TableLook]:
        seen.append(len(rows))
        return look(self, rows, members)

    monkeypatch.setattr(PgWatch, "_seen", counted)
    captured.start()
    captured.caught_up()
    wait_for(lambda: seen, "no check ran", seconds=30)
    assert seen[0] >= 12
    numbers = count(10)

    def reads_few() -> bool:
        """A check reads all tables only if the stream was reopened, so one of the next changes is read by itself."""
        captured.sql(f"ALTER TABLE t3 ALTER id SET STATISTICS {next(numbers)}")
        return 0 < seen[-1] <= 3

    wait_for(reads_few, "each check reads all tables", seconds=60)
    captured.stop()


def reads(captured: PgCaptured, table: str) -> list[Any]:
    return [record for record in captured.records(table) if record.value and b'"op":"r"' in record.value]


@pytest.mark.parametrize("identity", [pytest.param("default", marks=pytest.mark.matrix), "full"])
def test_partitions_that_log_less_than_their_table_end_with_correct_rows(capture: Capture, identity: str) -> None:
    """Partitions do not inherit REPLICA IDENTITY FULL: before images are NULL or missing, and are not used. Every
    retraction that readers of whole rows get is the image that they had."""
    captured = capture(extra=f", replica_identity: {identity}")
    each(captured, "t", PARTS + "; ALTER TABLE t REPLICA IDENTITY FULL; ALTER TABLE t_2 REPLICA IDENTITY FULL")
    captured.start()
    captured.caught_up()
    for statement in (
        "UPDATE t SET v = v + 100", "UPDATE t SET id = 3 WHERE id = 1", "DELETE FROM t WHERE id = 2",
        "UPDATE t SET id = 4 WHERE id = 12", "INSERT INTO t VALUES (5, 5)", "UPDATE t SET v = NULL WHERE id = 11",
        "CREATE TABLE t_3 PARTITION OF t FOR VALUES FROM (20) TO (30)", "INSERT INTO t VALUES (21, 1)",
        "UPDATE t SET v = 2 WHERE id = 21", "DELETE FROM t WHERE id = 11",
    ):  # fmt: skip
        captured.sql(statement)
    captured.caught_up()
    equal(captured, "t")
    captured.stop()
    total: dict[Any, Any] = {}
    for record in captured.records("t"):
        event = orjson.loads(record.value) if record.value else None
        if event is None or event["op"] == "t" or identity == "default":
            continue
        before, after = event["before"], event["after"]
        if before is not None:
            assert total.get(record.key) == before, event
            total.pop(record.key)
        if after is not None:
            assert identity != "full" or event["op"] != "u" or before is not None
            total[record.key] = after
    if identity == "full":
        assert sum(row["v"] for row in total.values()) == captured.sql("SELECT sum(v) FROM t")[0][0]


def test_the_rows_of_a_removed_table_are_deleted(capture: Capture) -> None:
    """DROP, RENAME and SET SCHEMA remove a table from its topic; the source continues."""
    captured = capture("[t, u, w, kept]")
    for name in ("t", "u", "w", "kept"):
        each(captured, name, PLAIN)
    captured.start()
    captured.caught_up()
    captured.sql("DROP TABLE t", "ALTER TABLE u RENAME TO v", "CREATE SCHEMA s", "ALTER TABLE w SET SCHEMA s")
    wait_for(lambda: not any(captured.state(name) for name in "tuw"), "rows of a table that is gone", seconds=30)
    captured.sql("UPDATE kept SET v = 5", "ALTER TABLE v RENAME TO u", "CREATE TABLE t (id INT PRIMARY KEY, v INT)")
    captured.sql("INSERT INTO t VALUES (7, 7)", "UPDATE u SET v = 6")
    wait_for(lambda: all(same(captured, name) for name in ("t", "u", "kept")), "they are not deleted", seconds=30)
    captured.stop()
    assert captured.failed is None


def test_a_schema_is_renamed_and_renamed_back(capture: Capture) -> None:
    """ALTER SCHEMA … RENAME removes all of its tables, and restores them."""
    captured = capture("[t]")
    each(captured, "t", PLAIN)
    captured.start()
    captured.caught_up()
    captured.sql("ALTER SCHEMA public RENAME TO elsewhere")
    wait_for(lambda: not captured.state("t"), "its rows stay", seconds=30)
    captured.sql("INSERT INTO elsewhere.t VALUES (3, 3)", "ALTER SCHEMA elsewhere RENAME TO public")
    wait_for(lambda: same(captured, "t"), f"{in_log(captured, 't')}", seconds=30)
    captured.stop()


def test_new_tables_are_captured_with_their_rows(capture: Capture) -> None:
    """With `accept`, also with capitals in names; tables that cannot be captured do not delay the others."""
    captured = capture("[]", ACCEPT)
    each(captured, "t", PLAIN)
    captured.start()
    captured.caught_up()
    captured.sql(
        'CREATE TABLE "Order" (id INT PRIMARY KEY, v INT)', 'INSERT INTO "Order" VALUES (1, 1)',
        "CREATE TABLE nokey (a INT, b INT)", "INSERT INTO nokey VALUES (1, 1)", "UPDATE nokey SET b = 2",
        "CREATE TABLE nokey_full (a INT)", "ALTER TABLE nokey_full REPLICA IDENTITY FULL",
        "INSERT INTO nokey_full VALUES (1)", "CREATE UNLOGGED TABLE fast (id INT PRIMARY KEY, v INT)",
        "INSERT INTO fast VALUES (1, 1)", "CREATE TABLE secret (id INT PRIMARY KEY)", "CREATE SEQUENCE numbers",
        "CREATE TABLE later (id INT PRIMARY KEY, v INT)",
        "INSERT INTO later SELECT g, g FROM generate_series(1, 5000) g",
    )  # fmt: skip
    equal(captured, "Order", "later", "t")
    captured.sql('UPDATE "Order" SET v = 5', "DELETE FROM later WHERE id > 10", "ALTER TABLE fast SET LOGGED")
    captured.sql("ALTER TABLE nokey ADD PRIMARY KEY (a)", 'ALTER TABLE "Order" ALTER v TYPE INT USING v * 2')
    equal(captured, "Order", "later", "t", "fast", "nokey")
    captured.stop()
    assert captured.failed is None
    assert "table is left out" in captured.phases.said


def test_prepared_transactions_are_published_at_their_commit_once(capture: Capture) -> None:
    """PREPARE TRANSACTION and ROLLBACK PREPARED publish nothing; messages of the application are skipped."""
    captured = capture()
    each(captured, "t", PLAIN)
    captured.start()
    captured.caught_up()
    with captured.connect(autocommit=False) as one, captured.connect(autocommit=False) as two:
        one.execute("INSERT INTO t VALUES (10, 1)")
        one.execute("SELECT pg_logical_emit_message(true, 'app', 'hello')")
        one.execute("PREPARE TRANSACTION 'one'")
        two.execute("INSERT INTO t VALUES (11, 1)")
        two.execute("PREPARE TRANSACTION 'two'")
    captured.sql("SELECT pg_logical_emit_message(false, 'app', 'hello')", "INSERT INTO t VALUES (12, 1)")
    captured.caught_up()
    assert [event["after"]["id"] for event in captured.events("t")] == [12]
    captured.sql("ROLLBACK PREPARED 'two'", "COMMIT PREPARED 'one'")
    captured.caught_up()
    captured.stop()
    assert [event["after"]["id"] for event in captured.events("t")] == [12, 10]
    assert in_log(captured, "t") == in_server(captured, "t")


def test_a_dropped_publication_is_recreated_and_tables_are_read(capture: Capture) -> None:
    """Changes made without a publication are in no stream."""
    captured = capture()
    each(captured, "t", PLAIN)
    captured.start()
    captured.caught_up()
    captured.sql(f"DROP PUBLICATION {captured.slot()}", "INSERT INTO t VALUES (3, 3)", "DELETE FROM t WHERE id = 1")
    equal(captured, "t")
    captured.sql("UPDATE t SET v = 8")
    captured.caught_up()
    equal(captured, "t")
    captured.stop()
