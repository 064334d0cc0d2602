"""A capture does no harm: an application's statements work as well with a capture as without."""

from __future__ import annotations

import time
from typing import Any

import psycopg
import pytest

from cdc.model.errors import UsageError
from tests.support.pg_captured import Capture, PgCaptured
from tests.support.pg_rows import equal, in_log, same
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]
ACCEPT = ", filter_policy: accept"

# Tables of every kind that a publication treats specially; `{s}` is the schema.
TABLES = """
CREATE TABLE {s}.plain (id INT PRIMARY KEY, v TEXT);
CREATE TABLE {s}.stored_full (id INT PRIMARY KEY, v INT, d INT GENERATED ALWAYS AS (v * 2) STORED);
ALTER TABLE {s}.stored_full REPLICA IDENTITY FULL;
CREATE TABLE {s}.stored_key (v INT, id INT GENERATED ALWAYS AS (v + 1) STORED PRIMARY KEY);
CREATE TABLE {s}.stored_index (v INT NOT NULL, id INT GENERATED ALWAYS AS (v + 1) STORED NOT NULL);
CREATE UNIQUE INDEX stored_index_id ON {s}.stored_index (id);
ALTER TABLE {s}.stored_index REPLICA IDENTITY USING INDEX stored_index_id;
CREATE TABLE {s}.no_key (id INT, v TEXT);
CREATE TABLE {s}.no_key_full (id INT, v TEXT);
ALTER TABLE {s}.no_key_full REPLICA IDENTITY FULL;
CREATE TABLE {s}.nothing (id INT PRIMARY KEY, v TEXT);
ALTER TABLE {s}.nothing REPLICA IDENTITY NOTHING;
CREATE TABLE {s}.by_index (id INT NOT NULL, v TEXT);
CREATE UNIQUE INDEX by_index_id ON {s}.by_index (id);
ALTER TABLE {s}.by_index REPLICA IDENTITY USING INDEX by_index_id;
CREATE TABLE {s}.deferrable (id INT PRIMARY KEY DEFERRABLE INITIALLY DEFERRED, v TEXT);
CREATE UNLOGGED TABLE {s}.unlogged (id INT PRIMARY KEY, v TEXT);
CREATE TABLE {s}.parent (id INT PRIMARY KEY, v TEXT);
CREATE TABLE {s}.child (more TEXT) INHERITS ({s}.parent);
CREATE TABLE {s}.parts (id INT, v TEXT, PRIMARY KEY (id)) PARTITION BY RANGE (id);
CREATE TABLE {s}.parts_1 PARTITION OF {s}.parts FOR VALUES FROM (0) TO (100);
CREATE TABLE {s}.parts_2 PARTITION OF {s}.parts FOR VALUES FROM (100) TO (200);
CREATE TABLE {s}.parts_bare (id INT, v TEXT) PARTITION BY RANGE (id);
CREATE TABLE {s}.parts_bare_1 PARTITION OF {s}.parts_bare FOR VALUES FROM (0) TO (200);
ALTER TABLE {s}.parts_bare REPLICA IDENTITY FULL;
CREATE TABLE {s}.parts_nothing (id INT PRIMARY KEY, v TEXT) PARTITION BY RANGE (id);
CREATE TABLE {s}.parts_nothing_1 PARTITION OF {s}.parts_nothing FOR VALUES FROM (0) TO (200);
ALTER TABLE {s}.parts_nothing_1 REPLICA IDENTITY NOTHING;
CREATE TABLE {s}.parts_full (id INT PRIMARY KEY, v INT, d INT GENERATED ALWAYS AS (v + 1) STORED)
PARTITION BY LIST (id);
CREATE TABLE {s}.parts_full_1 PARTITION OF {s}.parts_full DEFAULT;
ALTER TABLE {s}.parts_full_1 REPLICA IDENTITY FULL;
CREATE TABLE {s}.triggered (id INT PRIMARY KEY, v TEXT);
CREATE TABLE {s}.audit (at INT, what TEXT);
CREATE FUNCTION {s}.noted() RETURNS trigger LANGUAGE plpgsql AS
$$BEGIN INSERT INTO {s}.audit VALUES (1, TG_OP); UPDATE {s}.audit SET at = 2; RETURN NULL; END$$;
CREATE TRIGGER noted AFTER INSERT OR UPDATE OR DELETE ON {s}.triggered FOR EACH ROW EXECUTE FUNCTION {s}.noted();
CREATE TABLE {s}.referring (id INT PRIMARY KEY, t INT REFERENCES {s}.plain ON DELETE CASCADE ON UPDATE CASCADE);
CREATE VIEW {s}.shown AS SELECT id, v FROM {s}.plain;
"""
VIRTUAL = """
CREATE TABLE {s}.virtual (id INT PRIMARY KEY, v INT, d INT GENERATED ALWAYS AS (v * 2) VIRTUAL);
CREATE TABLE {s}.virtual_full (id INT PRIMARY KEY, v INT, d INT GENERATED ALWAYS AS (v * 2) VIRTUAL);
ALTER TABLE {s}.virtual_full REPLICA IDENTITY FULL;
"""
NUMBERS = ("stored_full", "parts_full", "virtual", "virtual_full")
KEYED = (
    "plain", "no_key", "no_key_full", "nothing", "by_index", "unlogged", "parent", "parts", "parts_bare",
    "parts_nothing", "triggered", "shown", "deferrable",
)  # fmt: skip
SPECIAL = (
    "INSERT INTO {s}.stored_key (v) VALUES (1), (2)", "UPDATE {s}.stored_key SET v = 5 WHERE v = 1",
    "DELETE FROM {s}.stored_key WHERE v = 2", "INSERT INTO {s}.stored_index (v) VALUES (1), (2)",
    "UPDATE {s}.stored_index SET v = 5 WHERE v = 1", "DELETE FROM {s}.stored_index WHERE v = 2",
    "INSERT INTO {s}.child VALUES (1, 'a', 'b')", "UPDATE {s}.child SET v = 'c'", "UPDATE {s}.parent SET v = 'd'",
    "DELETE FROM {s}.parent WHERE id = 1", "INSERT INTO {s}.child VALUES (2, 'a', 'b')", "DELETE FROM {s}.child",
    "UPDATE {s}.parts SET id = id + 100 WHERE id = 5", "TRUNCATE {s}.parts_2", "DELETE FROM {s}.parts_1",
    "UPDATE {s}.audit SET at = 3", "DELETE FROM {s}.audit",
    "INSERT INTO {s}.referring VALUES (1, 5)", "UPDATE {s}.plain SET id = 7 WHERE id = 5",
    "DELETE FROM {s}.plain WHERE id = 7", "SELECT * FROM {s}.plain FOR UPDATE", "TRUNCATE {s}.plain CASCADE",
    "BEGIN; SET LOCAL session_replication_role = replica; INSERT INTO {s}.referring VALUES (8, 8); "
    "UPDATE {s}.referring SET id = 9; COMMIT",
    "BEGIN; INSERT INTO {s}.deferrable VALUES (50, 'x'), (51, 'y'); UPDATE {s}.deferrable SET id = 101 - id "
    "WHERE id >= 50; COMMIT",
    "ALTER TABLE {s}.plain ADD COLUMN more INT DEFAULT 3", "UPDATE {s}.plain SET more = 4",
    "CREATE TABLE {s}.parts_bare_2 PARTITION OF {s}.parts_bare FOR VALUES FROM (200) TO (300)",
    "INSERT INTO {s}.parts_bare VALUES (250, 'new')", "UPDATE {s}.parts_bare SET v = 'u' WHERE id = 250",
    "CREATE TABLE {s}.parts_3 PARTITION OF {s}.parts FOR VALUES FROM (300) TO (400)",
    "INSERT INTO {s}.parts VALUES (350, 'new')", "UPDATE {s}.parts SET v = 'u' WHERE id = 350",
    "CREATE TABLE {s}.late (id INT, v TEXT)", "INSERT INTO {s}.late VALUES (1, 'a')", "UPDATE {s}.late SET v = 'b'",
    "ALTER TABLE {s}.plain RENAME TO renamed", "UPDATE {s}.renamed SET v = 'r'", "DROP TABLE {s}.renamed CASCADE",
)  # fmt: skip


def statements(version: int) -> list[str]:
    """Return the application's statements on each of its tables."""
    found = []
    for table in KEYED:
        found += [
            f"INSERT INTO {{s}}.{table} VALUES (1, 'a'), (2, 'b'), (3, NULL)",
            f"INSERT INTO {{s}}.{table} SELECT g, g FROM generate_series(10, 40) g",
            f"UPDATE {{s}}.{table} SET v = 'c' WHERE id = 1", f"UPDATE {{s}}.{table} SET id = 5 WHERE id = 2",
            f"UPDATE {{s}}.{table} SET v = v || '!'", f"DELETE FROM {{s}}.{table} WHERE id = 3",
            f"INSERT INTO {{s}}.{table} VALUES (1, 'd') ON CONFLICT (id) DO UPDATE SET v = EXCLUDED.v",
            f"MERGE INTO {{s}}.{table} t USING (VALUES (1, 'm'), (6, 'm')) s(id, v) ON t.id = s.id "
            "WHEN MATCHED THEN UPDATE SET v = s.v WHEN NOT MATCHED THEN INSERT VALUES (s.id, s.v)",
            f"MERGE INTO {{s}}.{table} t USING (VALUES (6)) s(id) ON t.id = s.id WHEN MATCHED THEN DELETE",
            f"WITH gone AS (DELETE FROM {{s}}.{table} WHERE id = 10 RETURNING *) "
            f"INSERT INTO {{s}}.{table} SELECT id + 80, v FROM gone",
            f"COPY {{s}}.{table} FROM STDIN",
            f"BEGIN; DELETE FROM {{s}}.{table} WHERE id = 11; SAVEPOINT a; DELETE FROM {{s}}.{table}; "
            "ROLLBACK TO a; COMMIT",
        ]  # fmt: skip
    for table in NUMBERS[: 4 if version >= 18 else 2]:
        found += [
            f"INSERT INTO {{s}}.{table} (id, v) VALUES (1, 1), (2, 2), (3, 3)",
            f"UPDATE {{s}}.{table} SET v = 5 WHERE id = 1", f"UPDATE {{s}}.{table} SET id = 9 WHERE id = 2",
            f"DELETE FROM {{s}}.{table} WHERE id = 3",
        ]  # fmt: skip
    found += SPECIAL
    found += [f"TRUNCATE {{s}}.{table}" for table in ("no_key", "nothing", "unlogged", "parts", "triggered")]
    return found


def outcomes(captured: PgCaptured, schema: str, todo: list[str]) -> list[tuple[str, Any]]:
    """Return the result of each statement: the SQLSTATE, or its number of rows."""
    found: list[tuple[str, Any]] = []
    with captured.connect() as connection:
        for text in todo:
            sql = text.format(s=schema)
            try:
                cursor = connection.cursor()
                if sql.startswith("COPY"):
                    with cursor.copy(sql.encode()) as copy:
                        copy.write("70\tx\n71\ty\n")
                else:
                    cursor.execute(sql.encode())
                found.append((text, cursor.rowcount))
            except psycopg.Error as error:
                found.append((text, f"{error.sqlstate}"))
                connection.execute("ROLLBACK")
    return found


def test_statements_work_alike_while_all_tables_are_captured(capture: Capture) -> None:
    """Every statement has the same result in a captured schema as in one that is not, and the capturable tables are
    captured, row by row."""
    captured = capture("[]", ACCEPT)
    version = captured.sql("SELECT current_setting('server_version_num')::int")[0][0] // 10_000
    made = TABLES + (VIRTUAL if version >= 18 else "")
    captured.sql("CREATE SCHEMA apart", made.format(s="apart"), made.format(s="public"))
    captured.start()
    captured.caught_up()
    todo = statements(version)
    apart = outcomes(captured, "apart", todo)
    assert outcomes(captured, "public", todo) == apart
    captured.caught_up()
    published = {name for (name,) in captured.sql("SELECT tablename FROM pg_publication_tables")}
    assert published >= {"stored_full", "by_index", "parent", "parts", "parts_full", "triggered", "referring"} - (
        set() if version >= 18 else {"parts_full"}
    )
    assert not published & {"no_key", "nothing", "deferrable", "unlogged", "child", "parts_bare", "parts_nothing"}
    if version >= 18:
        assert "stored_key" in published
        assert "virtual" in published
        assert "virtual_full" not in published
    else:
        assert "stored_key" not in published
    equal(captured, *sorted(published - {"audit"}))
    captured.stop()


def test_a_generated_column_with_full_identity_is_published(capture: Capture) -> None:
    """This needs a server that can publish it; the application's UPDATE works, and readers get the generated value."""
    captured = capture(extra=", replica_identity: full")
    captured.sql(
        "CREATE TABLE t (id INT PRIMARY KEY, v INT, d INT GENERATED ALWAYS AS (v * 2) STORED)",
        "ALTER TABLE t REPLICA IDENTITY FULL", "INSERT INTO t VALUES (1, 1)",
    )  # fmt: skip
    captured.start()
    captured.caught_up()
    captured.sql("UPDATE t SET v = 5", "INSERT INTO t VALUES (2, 2)", "DELETE FROM t WHERE id = 2")
    captured.caught_up()
    captured.stop()
    assert same(captured, "t")


def test_a_table_that_loses_its_identity_is_withdrawn(capture: Capture) -> None:
    """Its UPDATE works again within seconds, its source continues, and it is read again once it has an identity."""
    captured = capture("[t, u]")
    captured.sql(
        "CREATE TABLE t (id INT PRIMARY KEY, v INT)", "CREATE TABLE u (id INT PRIMARY KEY, v INT)",
        "INSERT INTO t VALUES (1, 1), (2, 2)",
    )  # fmt: skip
    captured.start()
    captured.caught_up()
    captured.sql("ALTER TABLE t DROP CONSTRAINT t_pkey")

    def works() -> bool:
        try:
            captured.sql("UPDATE t SET v = 3 WHERE id = 1")
        except psycopg.errors.ObjectNotInPrerequisiteState:
            return False
        return True

    began = time.monotonic()
    wait_for(works, "its UPDATE fails", seconds=10)
    assert time.monotonic() - began < 10
    captured.sql("INSERT INTO u VALUES (1, 1)", "DELETE FROM t WHERE id = 2")
    wait_for(lambda: same(captured, "u"), "the source stands still", seconds=20)
    assert "table is left out" in captured.phases.said
    captured.sql("ALTER TABLE t ADD PRIMARY KEY (id)", "INSERT INTO t VALUES (4, 4)")
    wait_for(lambda: same(captured, "t"), f"{in_log(captured, 't')}", seconds=30)
    captured.stop()
    assert captured.failed is None


@pytest.mark.parametrize(
    ("table", "why"),
    [
        ("CREATE TABLE t (id INT, v TEXT)", "no replica identity"),
        ("CREATE TABLE t (id INT PRIMARY KEY DEFERRABLE, v TEXT)", "no replica identity"),
        ("CREATE TABLE t (id INT PRIMARY KEY, v TEXT); ALTER TABLE t REPLICA IDENTITY NOTHING", "no replica identity"),
        ("CREATE TABLE t (id INT, v TEXT) PARTITION BY LIST (id); ALTER TABLE t REPLICA IDENTITY FULL", "primary key"),
    ],
)
def test_a_listed_table_that_would_be_harmed_is_refused_before_anything_is_touched(
    capture: Capture, table: str, why: str
) -> None:
    """Neither publication nor slot is created, and the error has the reason and the remedy."""
    captured = capture()
    captured.sql(table)
    captured.start()
    failed = captured.ended()
    assert isinstance(failed, UsageError)
    assert why in failed.message
    assert failed.hint
    assert captured.sql("SELECT count(*) FROM pg_publication")[0][0] == 0
    assert captured.sql(f"SELECT count(*) FROM pg_replication_slots WHERE slot_name = '{captured.slot()}'")[0][0] == 0


def test_a_publication_of_the_user_is_not_changed(capture: Capture) -> None:
    """FOR ALL TABLES is used as it is. A table with a row filter or a column list is left out until it has none."""
    captured = capture(extra=", publication_name: own")
    captured.sql(
        "CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1, 1)",
        "CREATE PUBLICATION own FOR TABLE t (id) WHERE (id > 5)",
    )  # fmt: skip
    captured.start()
    captured.caught_up()
    captured.stop()
    assert "table is left out" in captured.phases.said
    assert captured.state("t") == {}
    captured.sql("DROP PUBLICATION own", "CREATE PUBLICATION own FOR ALL TABLES")
    captured.start()
    captured.caught_up()
    captured.sql("UPDATE t SET v = 2", "INSERT INTO t VALUES (2, 2)")
    captured.caught_up()
    captured.stop()
    assert same(captured, "t")
    assert captured.sql("SELECT puballtables, pubviaroot FROM pg_publication") == [(True, False)]
