"""Single guarantees of the DDL reader: ignored statements, quarantine, and the effects of a session's state."""

from __future__ import annotations

import pytest

from ingest.ddl.catalog import Catalog, TableDefinition, table_from_json
from ingest.ddl.dialect import Dialect, dialect_of
from ingest.ddl.statements import Applied, apply

MYSQL = dialect_of("mysql")
MARIA = dialect_of("mariadb")


def start(*statements: str, dialect: Dialect = MYSQL) -> Catalog:
    """Return a catalog after these statements, all of which must be understood."""
    catalog = Catalog(default_charset="utf8mb4", databases={"d": "utf8mb4"})
    for sql in statements:
        applied = run(catalog, sql, dialect=dialect)
        assert applied.error is None, applied.error
        catalog = applied.catalog
    return catalog


def run(catalog: Catalog, sql: str, *, dialect: Dialect = MYSQL, session: int = 0) -> Applied:
    return apply(catalog, sql, database="d", dialect=dialect, session=session)


def names(table: TableDefinition) -> list[str]:
    return [column.name for column in table.columns]


@pytest.mark.parametrize(
    "sql",
    [
        "",
        " ; ",
        "/* nothing */ -- at all",
        "BEGIN",
        "COMMIT",
        "XA START 'x'",
        "SAVEPOINT `a`",
        "SET @x = 1",
        "INSERT INTO t VALUES ('CREATE TABLE x (a int)')",
        "(SELECT 1)",
        "GRANT ALL ON *.* TO 'a'@'%'",
        "CREATE USER 'a'@'%' IDENTIFIED BY 'create table'",
        "ALTER USER u PASSWORD EXPIRE",
        "DROP ROLE r",
        "CREATE OR REPLACE DEFINER=`a`@`%` PROCEDURE p() BEGIN DROP TABLE t; END",
        "CREATE AGGREGATE FUNCTION f RETURNS INTEGER SONAME 'x.so'",
        "CREATE DEFINER='a'@'b' TRIGGER tr BEFORE INSERT ON t FOR EACH ROW SET NEW.a = 1",
        "CREATE ALGORITHM=MERGE SQL SECURITY INVOKER VIEW v AS SELECT 1",
        "ALTER EVENT e ON SCHEDULE EVERY 1 DAY DO DROP TABLE t",
        "CREATE SERVER s FOREIGN DATA WRAPPER mysql OPTIONS (USER 'x')",
        "ALTER TABLESPACE ts ADD DATAFILE 'x' ENGINE NDB",
        "CREATE LOGFILE GROUP g ADD UNDOFILE 'x'",
        "CREATE SPATIAL REFERENCE SYSTEM 4120 NAME 'x' DEFINITION 'y'",
        "DROP PREPARE p",
        "TRUNCATE TABLE t",
        "RENAME USER a TO b",
        "ALTER INSTANCE ROTATE INNODB MASTER KEY",
        "OPTIMIZE TABLE t",
        "CREATE RESOURCE GROUP g TYPE = USER",
    ],
)
def test_statements_without_columns_are_ignored(sql: str) -> None:
    """A statement that cannot change columns is recognised: no error, no change."""
    catalog = start("CREATE TABLE t (a INT)")
    applied = run(catalog, sql)
    assert (applied.error, applied.changed, applied.gone, applied.catalog) == (None, {}, (), catalog)


@pytest.mark.parametrize(
    "sql",
    [
        "ALTER TABLE t ADD b NOSUCHTYPE",
        "ALTER TABLE t FROBNICATE a",
        "ALTER TABLE t ADD b INT FROBNICATED",
        "ALTER TABLE t ADD b INT, ADD",
        "ALTER TABLE t ADD b VARCHAR(10) CHARACTER SET klingon",
        "ALTER TABLE t ADD b INT AFTER nowhere",
        "ALTER TABLE t DROP nothing",
        "ALTER TABLE t MODIFY nothing INT",
        "ALTER TABLE t ADD a INT",
        "ALTER TABLE t DROP a",
        "ALTER TABLE t ADD b INT 'x",
        "ALTER TABLE t CONVERT PARTITION p TO TABLE u",
        "ALTER TABLE t ENGINE=InnoDB SOMETHING_NEW 5",
        "CREATE INDEX i ON t",
    ],
)
def test_an_unknown_statement_quarantines_its_table_only(sql: str) -> None:
    """Nothing is guessed: the error has the reason, the table is unknown from then on, the others are untouched."""
    catalog = start("CREATE TABLE t (a INT)", "CREATE TABLE other (b INT)")
    applied = run(catalog, sql)
    assert applied.error
    assert applied.quarantined == (("d", "t"),)
    assert set(applied.catalog.tables) == {("d", "other")}
    assert applied.catalog.unknown[("d", "t")] == applied.error
    assert applied.changed == {}


def test_a_quarantine_lasts_until_the_columns_are_known() -> None:
    """Later statements on the table remain errors with the first reason, follow its renames, and end with a CREATE."""
    catalog = start("CREATE TABLE t (a INT)")
    first = run(catalog, "ALTER TABLE t ADD b NOSUCHTYPE")
    later = run(first.catalog, "ALTER TABLE t ADD c INT")
    assert later.error
    assert first.error is not None
    assert first.error in later.error
    moved = run(later.catalog, "RENAME TABLE t TO u")
    assert (moved.error, moved.changed, moved.gone) == (None, {}, (("d", "t"),))
    assert moved.catalog.unknown == {("d", "u"): first.error}
    made = run(moved.catalog, "CREATE OR REPLACE TABLE u (z INT)")
    assert names(made.changed[("d", "u")]) == ["z"]
    assert made.catalog.unknown == {}


def test_a_statement_that_cannot_be_tokenized_quarantines_the_tables_it_may_name() -> None:
    """An unclosed quote hides the table's name: every known table whose name is in the text becomes unknown."""
    catalog = start("CREATE TABLE t1 (a INT)", "CREATE TABLE t2 (a INT)", "CREATE TABLE x (a INT)")
    applied = run(catalog, "ALTER TABLE `T1, t2 ADD b INT")
    assert set(applied.quarantined) == {("d", "t1"), ("d", "t2")}
    assert set(applied.catalog.tables) == {("d", "x")}


def test_temporary_tables_hide_tables_from_their_session_only() -> None:
    """A temporary table of the same name takes its session's statements; those of other sessions reach the table."""
    catalog = start("CREATE TABLE t (a INT)")
    catalog = run(catalog, "CREATE TEMPORARY TABLE t (z INT)", session=7).catalog
    hidden = run(catalog, "ALTER TABLE t ADD b INT", session=7)
    assert (hidden.error, hidden.changed) == (None, {})
    seen = run(hidden.catalog, "ALTER TABLE t ADD b INT", session=8)
    assert names(seen.changed[("d", "t")]) == ["a", "b"]
    dropped = run(seen.catalog, "DROP TABLE t", session=7)
    assert (dropped.gone, dropped.catalog.temporary) == ((), frozenset())
    assert run(dropped.catalog, "DROP TABLE t", session=7).gone == (("d", "t"),)


def test_a_swap_of_names_is_one_change() -> None:
    """RENAME a TO tmp, b TO a, tmp TO b exchanges the columns; no table is dropped."""
    catalog = start("CREATE TABLE a (x INT)", "CREATE TABLE b (y INT, z INT)")
    applied = run(catalog, "RENAME TABLE a TO tmp, b TO a, tmp TO b")
    assert {name[1]: names(table) for name, table in applied.changed.items()} == {"a": ["y", "z"], "b": ["x"]}
    assert applied.gone == ()


def test_the_default_database_is_the_sessions() -> None:
    """USE changes it, qualified names do not; a database's tables are dropped with it."""
    catalog = start("CREATE DATABASE e CHARACTER SET latin1")
    used = run(catalog, "USE e")
    assert used.database == "e"
    made = apply(used.catalog, "CREATE TABLE t (a VARCHAR(3))", database="e", dialect=MYSQL)
    assert made.catalog.tables[("e", "t")].columns[0].charset == "latin1"
    assert run(made.catalog, "DROP DATABASE e").gone == (("e", "t"),)


def test_an_unknown_character_set_is_not_guessed() -> None:
    """A text column in a database with an unknown default is an error; a number or an explicit set is not."""
    catalog = Catalog()
    assert run(catalog, "CREATE TABLE t (a VARCHAR(3))").error
    assert run(catalog, "CREATE TABLE t (a INT, b TEXT CHARACTER SET latin1)").error is None
    assert run(catalog, "CREATE TABLE t (a VARCHAR(3)) CHARSET utf8mb4").error is None


@pytest.mark.parametrize(
    ("dialect", "columns"),
    [
        (MYSQL, ["a", "old", "new"]),
        (MARIA, ["a", "old", "maria"]),
        (dialect_of("mysql", 50700), ["a", "old"]),
    ],
    ids=["mysql", "mariadb", "old mysql"],
)
def test_comments_are_opened_as_the_server_does(dialect: Dialect, columns: list[str]) -> None:
    """Executable comments depend on the server and its version; quotes hide comments and vice versa."""
    sql = (
        "CREATE TABLE t (a INT DEFAULT '/*' COMMENT '*/ -- # ', /*!50000 old INT */ /*!80000 , new INT */"
        " /*M!100000 , maria INT */ -- it's a comment\n # so is \" this\n /* ` */)"
    )
    assert names(start(sql, dialect=dialect).tables[("d", "t")]) == columns


def test_keys_follow_their_columns() -> None:
    """The primary key is renamed with its column, loses dropped parts, and leaves NOT NULL in place."""
    catalog = start(
        "CREATE TABLE t (a INT, b INT, c INT, PRIMARY KEY (a, b))",
        "ALTER TABLE t RENAME COLUMN b TO bb, DROP COLUMN a",
    )
    table = catalog.tables[("d", "t")]
    assert table.primary_key == ("bb",)
    dropped = start("CREATE TABLE t (a INT PRIMARY KEY)", "DROP INDEX `PRIMARY` ON t").tables[("d", "t")]
    assert dropped.primary_key == ()
    assert not dropped.columns[0].nullable
    assert table_from_json(table.to_json()) == table


def test_names_are_compared_as_the_server_does() -> None:
    """Columns ignore case; tables are compared as written, unless lower_case_table_names folds them."""
    catalog = start("CREATE TABLE T (Aa INT)", "ALTER TABLE T MODIFY aA BIGINT")
    assert names(catalog.tables[("d", "T")]) == ["aA"]
    assert run(catalog, "ALTER TABLE t ADD b INT").error
    folding = Dialect(server="mysql", version=90700, fold_names=True)
    assert names(start("CREATE TABLE T (a INT)", "ALTER TABLE t ADD b INT", dialect=folding).tables[("d", "t")]) == [
        "a", "b",
    ]  # fmt: skip


def test_old_timestamps_are_not_null() -> None:
    """explicit_defaults_for_timestamp=OFF makes TIMESTAMP the one type that is NOT NULL by default."""
    old = Dialect(server="mysql", version=80036, explicit_timestamps=False)
    table = start("CREATE TABLE t (a TIMESTAMP, b TIMESTAMP NULL, c DATETIME)", dialect=old).tables[("d", "t")]
    assert [column.nullable for column in table.columns] == [False, True, True]


def test_sql_mode_is_given_as_names_or_as_the_logs_number() -> None:
    """Both forms of sql_mode mean the same dialect."""
    assert MYSQL.in_mode("ANSI_QUOTES,NO_BACKSLASH_ESCAPES,REAL_AS_FLOAT") == MYSQL.in_mode_bits(1 | 4 | 1 << 20)
    assert MYSQL.in_mode("") == MYSQL.in_mode_bits(2) == MYSQL
