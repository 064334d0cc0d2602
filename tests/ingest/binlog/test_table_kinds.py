"""Kinds of tables and columns that only one server has: the topic has the rows that SELECT returns, while they
change."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import pytest

from tests.ingest.binlog.binlog_servers import Server
from tests.support.live_capture import LiveCapture, live

pytestmark = pytest.mark.timeout(300)
VERSIONED = "rs TIMESTAMP(6) GENERATED ALWAYS AS ROW START, re TIMESTAMP(6) GENERATED ALWAYS AS ROW END, PERIOD FOR "
VERSIONED += "SYSTEM_TIME(rs, re)"


def shown(captured: LiveCapture, table: str, *columns: str) -> list[tuple[Any, ...]]:
    """Return the columns of a table's rows in its topic, bytes as text."""
    rows = captured.rows(table)
    return [tuple(row.get(name) for name in columns) for row in rows]


def as_captured(captured: LiveCapture, table: str, *columns: str) -> Callable[[], bool]:
    def equal() -> bool:
        names = ", ".join(columns)
        wanted = captured.sql(f"SELECT {names} FROM {table} ORDER BY {columns[0]}")
        made = [
            tuple(base64.b64encode(value).decode() if isinstance(value, bytes) else value for value in row)
            for row in wanted
        ]
        return shown(captured, table, *columns) == made

    return equal


@pytest.mark.matrix  # only MariaDB has them
@pytest.mark.parametrize("flavour", ["maria10", "maria11"])
@pytest.mark.parametrize("metadata", ["NO_LOG", "FULL"])
def test_versioned_hashed_and_compressed_tables_of_mariadb(
    servers: Callable[[str], Server], flavour: str, metadata: str
) -> None:
    """System-versioned tables (hidden and explicit periods, partitioned, by transaction, altered while captured),
    unique texts, compressed and invisible columns, sequences: current rows only, whether the log names the columns or
    not."""
    server = servers(flavour)
    captured = live(server, f"kinds_{metadata.lower()}", "nothing", extra=", filter_policy: accept")
    captured.sql(
        f"SET GLOBAL binlog_row_metadata = {metadata}",
        "CREATE TABLE v (id INT PRIMARY KEY, a VARCHAR(10)) WITH SYSTEM VERSIONING",
        "INSERT INTO v VALUES (1, 'x'), (2, 'y')", "UPDATE v SET a = 'q' WHERE id = 2",
        "CREATE TABLE u (id INT PRIMARY KEY, t TEXT, b BLOB, UNIQUE (t), UNIQUE (b))",
        "INSERT INTO u VALUES (1, 'a', 'b')", "CREATE SEQUENCE before_us",
        "CREATE TABLE c (id INT PRIMARY KEY, a VARCHAR(500) COMPRESSED, b BLOB COMPRESSED, t TEXT COMPRESSED, "
        "l VARCHAR(400) CHARACTER SET latin1 COMPRESSED, i INT INVISIBLE)",
        "INSERT INTO c VALUES (1, REPEAT('ab', 200), 'q', 's', REPEAT('l', 300))",
    )  # fmt: skip
    captured.start()
    captured.wait(lambda: bool(captured.broker.checkpoints), "it does not begin")
    captured.sql(
        "UPDATE v SET a = 'z' WHERE id = 1", "DELETE FROM v WHERE id = 2", "INSERT INTO v VALUES (3, 'n'), (4, 'o')",
        "REPLACE INTO v VALUES (3, 'r')", "UPDATE v SET id = 5 WHERE id = 4",
        "INSERT INTO v VALUES (1, 'd') ON DUPLICATE KEY UPDATE a = 'd'",
        "UPDATE u SET t = 'b'", "INSERT INTO u VALUES (2, 'c', 'x')", "ALTER TABLE u ADD COLUMN m INT",
        "INSERT INTO u VALUES (3, 'd', 'y', 5)", "ALTER TABLE u ADD SYSTEM VERSIONING",
        "UPDATE u SET m = 6 WHERE id = 3", "DELETE FROM u WHERE id = 1", "SELECT NEXT VALUE FOR before_us",
        "UPDATE c SET a = REPEAT('xy', 150), b = REPEAT('r', 200), i = 3, l = REPEAT('m', 350)",
        "INSERT INTO c (id, a, b, t) VALUES (2, 'short', '', '')",
        f"CREATE TABLE e (id INT PRIMARY KEY, a INT, {VERSIONED}) WITH SYSTEM VERSIONING",
        "INSERT INTO e (id, a) VALUES (1, 1), (2, 2)", "UPDATE e SET a = a + 1", "DELETE FROM e WHERE id = 1",
        "CREATE TABLE p (id INT PRIMARY KEY, x INT) WITH SYSTEM VERSIONING "
        "PARTITION BY SYSTEM_TIME (PARTITION p0 HISTORY, PARTITION pn CURRENT)",
        "INSERT INTO p VALUES (1, 1), (2, 2)", "UPDATE p SET x = 7 WHERE id = 1", "DELETE FROM p WHERE id = 2",
        "CREATE TABLE tr (id INT PRIMARY KEY, x INT, "
        f"{VERSIONED.replace('TIMESTAMP(6)', 'BIGINT UNSIGNED')}) WITH SYSTEM VERSIONING",
        "INSERT INTO tr (id, x) VALUES (1, 1)", "UPDATE tr SET x = 5", "DELETE HISTORY FROM v",
        "CREATE TABLE part (id INT PRIMARY KEY, a INT, b INT WITHOUT SYSTEM VERSIONING) WITH SYSTEM VERSIONING",
        "INSERT INTO part VALUES (1, 1, 1)", "UPDATE part SET b = 2", "UPDATE part SET a = 3",
        "CREATE TABLE copied LIKE v", "INSERT INTO copied VALUES (1, 'l')", "UPDATE copied SET a = 'm'",
        "ALTER TABLE copied DROP SYSTEM VERSIONING", "UPDATE copied SET a = 'n'",
        "CREATE TABLE own (id INT PRIMARY KEY, row_start TIMESTAMP(6) NULL, row_end TIMESTAMP(6) NULL)",
        "INSERT INTO own VALUES (1, '2020-01-01', '2020-01-02')", "CREATE SEQUENCE since_us",
        "SELECT NEXT VALUE FOR since_us", "CREATE TABLE other (id INT PRIMARY KEY) ENGINE=Aria",
        "INSERT INTO other VALUES (1)",
    )  # fmt: skip
    columns = {
        "v": ("id", "a"), "u": ("id", "t", "b", "m"), "c": ("id", "a", "b", "t", "l", "i"), "e": ("id", "a"),
        "p": ("id", "x"), "tr": ("id", "x"), "part": ("id", "a", "b"), "copied": ("id", "a"),
    }  # fmt: skip
    try:
        for table, names in columns.items():
            equal = as_captured(captured, table, *names)
            captured.wait(equal, f"{table} differs")
        captured.wait(lambda: len(captured.rows("own")) == 1, "a table with columns of such names is no versioned one")
        captured.wait(lambda: captured.left_out() == {"other"}, "a sequence is no table")
        captured.wait_quiet()
        for table, names in columns.items():
            assert as_captured(captured, table, *names)(), (table, captured.rows(table))
        assert "kept" not in captured.state()
        assert not {"row_end", "DB_ROW_HASH_1"} & {name for t in columns for row in captured.rows(t) for name in row}
    finally:
        captured.stop()


@pytest.mark.matrix  # only MySQL 9 has them
def test_generated_invisible_primary_keys(servers: Callable[[str], Server]) -> None:
    """MySQL's generated keys identify rows, whether their tables existed before or are created while captured."""
    captured = live(servers("mysql9"), "gipk", "nothing", extra=", filter_policy: accept")
    generate = "SET sql_generate_invisible_primary_key = ON"
    captured.sql(generate, "CREATE TABLE t (a INT)", "INSERT INTO t VALUES (1), (2)")
    captured.start()
    captured.wait(lambda: bool(captured.broker.checkpoints), "it does not begin")
    captured.sql(
        generate, "CREATE TABLE later (a INT)", "INSERT INTO later VALUES (7), (8)", "UPDATE t SET a = 3 WHERE a = 1",
        "DELETE FROM later WHERE a = 7", "CREATE INDEX f ON t ((a + 1))", "INSERT INTO t VALUES (9)",
    )  # fmt: skip
    try:
        for table in ("t", "later"):
            captured.wait(as_captured(captured, table, "my_row_id", "a"), f"{table} differs")
        assert captured.left_out() == set()
    finally:
        captured.stop()


@pytest.mark.parametrize(
    "flavour",
    ["mysql80", *(pytest.param(f, marks=pytest.mark.matrix) for f in ("mysql57", "mysql9", "maria10", "maria11"))],
)
def test_a_statement_that_is_not_understood_leaves_no_table_unknown(
    servers: Callable[[str], Server], flavour: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the log's end the server is asked for the columns, and the table is read again, with or without later rows."""
    from ingest.ddl import alter
    from ingest.ddl.errors import DdlNotUnderstood

    def refuse(*_: object) -> None:
        raise DdlNotUnderstood("a word of a newer server")

    captured = live(servers(flavour), "refused", "t", "quiet")
    captured.sql(
        "CREATE TABLE t (id INT PRIMARY KEY, v INT)", "CREATE TABLE quiet (id INT PRIMARY KEY, v INT)",
        "INSERT INTO t VALUES (1, 1)", "INSERT INTO quiet VALUES (1, 1)",
    )  # fmt: skip
    captured.start()
    captured.wait_rows("quiet", [{"id": 1, "v": 1}])
    monkeypatch.setattr(alter, "_action", refuse)
    captured.sql(
        "ALTER TABLE t MODIFY v BIGINT, ADD COLUMN w INT DEFAULT 5", "INSERT INTO t VALUES (2, 2, 2)",
        "ALTER TABLE quiet DROP COLUMN v, ADD COLUMN w INT DEFAULT 5",
    )  # fmt: skip
    try:
        captured.wait_rows("t", [{"id": 1, "v": 1, "w": 5}, {"id": 2, "v": 2, "w": 2}])
        captured.wait_rows("quiet", [{"id": 1, "w": 5}])
        captured.wait(lambda: "kept" not in captured.state(), "rows are still in quarantine")
    finally:
        captured.stop()


@pytest.mark.parametrize(
    "flavour",
    ["mysql80", *(pytest.param(f, marks=pytest.mark.matrix) for f in ("mysql57", "mysql9", "maria10", "maria11"))],
)
def test_tables_that_cannot_be_captured_leave_their_source_alone(
    servers: Callable[[str], Server], flavour: str
) -> None:
    """With accept: tables of other engines and without keys are created, changed and dropped; keys are dropped and
    added while the capture is down; a table that its grants do not let it read is named."""
    server = servers(flavour)
    captured = live(server, "alone", "nothing", extra=", filter_policy: accept")
    engines = ["MyISAM", "MEMORY", "CSV", "BLACKHOLE", "MRG_MyISAM", "ARCHIVE", "Aria"]
    there = {str(row[0]) for row in captured.sql("SHOW ENGINES") if str(row[1]) in ("YES", "DEFAULT")}
    engines = [engine for engine in engines if engine in there]
    captured.sql("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1, 1)")
    captured.sql("CREATE TABLE nokey (id INT NOT NULL, v INT)", "INSERT INTO nokey VALUES (1, 1), (2, 2)")
    captured.start()
    try:
        captured.wait_rows("t", [{"id": 1, "v": 1}])
        for engine in engines:
            captured.sql(f"CREATE TABLE x{engine} (id INT NOT NULL, v INT NOT NULL) ENGINE={engine}")
            if engine not in ("MRG_MyISAM",):
                captured.sql(f"INSERT INTO x{engine} VALUES (1, 1)")
        captured.sql("UPDATE nokey SET v = 7 LIMIT 1", "INSERT INTO t VALUES (2, 2)")
        wanted = {"nokey", *(f"x{engine}" for engine in engines)}
        captured.wait(lambda: captured.left_out() == wanted, "they are not named")
        captured.wait_rows("t", [{"id": 1, "v": 1}, {"id": 2, "v": 2}])
        captured.sql("ALTER TABLE nokey ADD PRIMARY KEY (id)", "DELETE FROM nokey WHERE id = 2")
        captured.wait(as_captured(captured, "nokey", "id", "v"), "it is not read")
        captured.sql(*(f"DROP TABLE x{engine}" for engine in engines[1:]))
        captured.sql("ALTER TABLE nokey DROP PRIMARY KEY", "INSERT INTO nokey VALUES (3, 3)")
        captured.wait(lambda: captured.left_out() == {"nokey", f"x{engines[0]}"}, "a key that went is not noticed")
        captured.stop()
        captured.sql("DELETE FROM nokey WHERE id = 1", "ALTER TABLE nokey ADD PRIMARY KEY (id)")
        captured.sql(f"ALTER TABLE x{engines[0]} ENGINE = InnoDB, ADD PRIMARY KEY (id)")
        captured.start()
        captured.wait(as_captured(captured, "nokey", "id", "v"), "it is not read again")
        captured.wait(as_captured(captured, f"x{engines[0]}", "id", "v"), "it is not read")
        captured.wait(lambda: captured.left_out() == set(), "they are still left out")
    finally:
        captured.stop()


def test_a_table_without_select_is_left_out_until_it_is_granted(mysql80: Server) -> None:
    """Without SELECT on one table, the other one flows; after the grant, all rows of the first are read."""
    captured = live(mysql80, "unreadable", "t", "secret", user="half")
    captured.sql(
        "CREATE TABLE t (id INT PRIMARY KEY)", "CREATE TABLE secret (id INT PRIMARY KEY, v INT)",
        "INSERT INTO t VALUES (1)", "INSERT INTO secret VALUES (1, 1)", "DROP USER IF EXISTS half@'%'",
        "CREATE USER half@'%' IDENTIFIED BY 'cdc'", "GRANT SELECT ON unreadable.t TO half@'%'",
        "GRANT INSERT ON unreadable.secret TO half@'%'",
        "GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO half@'%'",
    )  # fmt: skip
    captured.start()
    try:
        captured.wait_rows("t", [{"id": 1}])
        captured.sql("INSERT INTO secret VALUES (2, 2)", "INSERT INTO t VALUES (2)")
        captured.wait_rows("t", [{"id": 1}, {"id": 2}])
        captured.wait(lambda: captured.left_out() == {"secret"}, "it is not named")
        captured.sql("GRANT SELECT ON unreadable.secret TO half@'%'")
        captured.wait_rows("secret", [{"id": 1, "v": 1}, {"id": 2, "v": 2}])
        captured.wait(lambda: captured.left_out() == set(), "it is still left out")
    finally:
        captured.stop()
