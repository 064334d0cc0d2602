"""ALTERs that keep every value, and only those, cause no re-read."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ingest.ddl.catalog import Catalog, table_from_json
from ingest.ddl.dialect import Dialect
from ingest.ddl.statements import apply

MYSQL = Dialect(server="mysql", version=80040, strict=True)
MARIA = Dialect(server="mariadb", version=101100, strict=True)


def rewritten(made: str, alter: str, dialect: Dialect = MYSQL, verb: str = "ALTER TABLE") -> tuple[str, ...]:
    """Return the columns of `t` that a statement rewrites."""
    catalog = Catalog(databases={"d": "utf8mb4"})
    catalog = apply(catalog, f"CREATE TABLE t ({made})", database="d", dialect=dialect).catalog
    return rewritten_by(catalog, f"{verb} t {alter}", dialect)[1]


def rewritten_by(catalog: Catalog, sql: str, dialect: Dialect = MYSQL) -> tuple[Catalog, tuple[str, ...]]:
    """Return the catalog after a statement, and the columns of `t` that it rewrites."""
    applied = apply(catalog, sql, database="d", dialect=dialect)
    assert applied.error is None, applied.error
    return applied.catalog, applied.rewritten.get(("d", "t"), ())


@pytest.mark.parametrize(
    ("made", "alter"),
    [
        ("id INT PRIMARY KEY, v INT", "MODIFY v BIGINT"),
        ("id INT PRIMARY KEY AUTO_INCREMENT", "MODIFY id BIGINT AUTO_INCREMENT"),
        ("id INT PRIMARY KEY, v VARCHAR(9)", "MODIFY v VARCHAR(300)"),
        ("id INT PRIMARY KEY, v VARCHAR(9)", "MODIFY v LONGTEXT"),
        ("id INT PRIMARY KEY, v ENUM('a','b')", "MODIFY v ENUM('a','b','c') FIRST"),
        ("id INT PRIMARY KEY, v DECIMAL(5,2)", "MODIFY v DECIMAL(9,4) NULL"),
        ("id INT PRIMARY KEY, v DATETIME", "MODIFY v DATETIME(6)"),
        ("id INT PRIMARY KEY, v INT", "MODIFY v INT NOT NULL"),
        ("id INT PRIMARY KEY, v INT", "ADD w INT DEFAULT 5, DROP v"),
        ("id INT PRIMARY KEY, v INT", "ADD INDEX (v), ALTER v SET DEFAULT 7"),
        ("id INT PRIMARY KEY, v VARCHAR(9) CHARACTER SET latin1", "CONVERT TO CHARACTER SET utf8mb4"),
        ("id INT PRIMARY KEY, v INT, g INT AS (v + 1)", "ADD w INT, ENGINE=InnoDB, ROW_FORMAT=DYNAMIC"),
        ("id INT PRIMARY KEY, v INT", "ADD COLUMN v2 VARCHAR(9) NOT NULL DEFAULT 'x' AFTER id"),
    ],
)  # fmt: skip
def test_an_alter_that_keeps_every_value_causes_no_reread(made: str, alter: str) -> None:
    """A common, cheap ALTER does not have the table read again."""
    assert rewritten(made, alter) == ()


@pytest.mark.parametrize(
    ("made", "alter", "columns"),
    [
        ("id INT PRIMARY KEY, v INT", "MODIFY v VARCHAR(20)", ("v",)),
        ("id INT PRIMARY KEY, v INT", "RENAME COLUMN v TO w", ("w",)),
        ("id INT PRIMARY KEY, v INT", "DROP v, ADD v INT DEFAULT 3", ("v",)),
        ("id INT PRIMARY KEY, v INT, w INT", "RENAME COLUMN v TO w, RENAME COLUMN w TO v", ("w", "v")),
        ("id INT PRIMARY KEY, v DECIMAL(5,2)", "DROP PRIMARY KEY, ADD PRIMARY KEY (v), MODIFY v DECIMAL(6,3)", ("v",)),
        ("id INT PRIMARY KEY, v TIMESTAMP NULL", "MODIFY v TIMESTAMP NOT NULL DEFAULT '2020-01-01'", ("v",)),
        ("id INT PRIMARY KEY, v INT", "MODIFY id INT AUTO_INCREMENT", ("id",)),
        ("id INT PRIMARY KEY, v DECIMAL(5,2), g VARCHAR(9) AS (CONCAT(v, ''))", "MODIFY v DECIMAL(6,3)", ("g",)),
        ("id INT PRIMARY KEY, v VARCHAR(9)", "ADD w DATETIME DEFAULT CURRENT_TIMESTAMP", ("w",)),
        ("id INT PRIMARY KEY, v SET('a','b')", "MODIFY v SET('b','a')", ("v",)),
    ],
)  # fmt: skip
def test_columns_with_server_dependent_conversions_are_named(made: str, alter: str, columns: tuple[str, ...]) -> None:
    """If a conversion depends on the server, its columns are named."""
    assert rewritten(made, alter) == columns


def test_a_lenient_session_is_distinguished_from_a_strict_one() -> None:
    """NULL becomes 0 in a column that gets NOT NULL, unless the session is strict."""
    lax = MYSQL.in_mode_bits(0)
    assert MYSQL.in_mode_bits(1 << 21).strict
    assert rewritten("id INT PRIMARY KEY, v INT", "MODIFY v INT NOT NULL", lax) == ("v",)


def test_alter_ignore_may_remove_rows() -> None:
    """MariaDB's ALTER IGNORE TABLE deletes duplicates without row events."""
    made = "id INT PRIMARY KEY, v INT"
    assert rewritten(made, "ADD UNIQUE (v)", MARIA, "ALTER IGNORE TABLE") == ("*",)
    assert rewritten(made, "ADD UNIQUE (v)", MARIA) == ()


@pytest.mark.parametrize(
    ("statements", "columns"),
    [
        (["ALTER TABLE t DROP v", "ALTER TABLE t ADD v INT DEFAULT 7"], ("v",)),
        (["ALTER TABLE t DROP v", "ALTER TABLE t ADD w INT", "ALTER TABLE t ADD V VARCHAR(9)"], ("V",)),
        (["ALTER TABLE t DROP v", "ALTER TABLE t RENAME s", "RENAME TABLE s TO t", "ALTER TABLE t ADD v INT"], ("v",)),
        (["ALTER TABLE t DROP v, RENAME s", "RENAME TABLE s TO t", "ALTER TABLE t ADD v INT"], ("v",)),
        (["ALTER TABLE t DROP v", "ALTER TABLE t ADD w INT DEFAULT 7"], ()),
        (["ALTER TABLE t DROP v", "DROP TABLE t", "CREATE TABLE t (id INT)", "ALTER TABLE t ADD v INT"], ()),
    ],
)  # fmt: skip
def test_a_dropped_column_is_remembered(statements: list[str], columns: tuple[str, ...]) -> None:
    """A column that is added under the name of one that was dropped any time before: older rows of the log have its
    values. A capture may restart in between."""
    catalog = apply(
        Catalog(databases={"d": "utf8mb4"}), "CREATE TABLE t (id INT PRIMARY KEY, v INT)", database="d", dialect=MYSQL
    ).catalog
    found: tuple[str, ...] = ()
    for statement in statements:
        tables = {name: table_from_json(table.to_json()) for name, table in catalog.tables.items()}
        catalog, found = rewritten_by(replace(catalog, tables=tables), statement)
    assert found == columns
