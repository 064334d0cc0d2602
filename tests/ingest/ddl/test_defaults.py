"""Values that older rows have in an added column, and the collation by which a column compares."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from cdc.model.event import Position
from cdc.model.history import History, checkpoint, history_from_records
from cdc.model.schema import Column, TableId, TableSchema, schema_from_json
from cdc.model.types import Canonical
from ingest.ddl.catalog import Catalog, TableDefinition, table_from_json
from ingest.ddl.defaults import shown_initial
from ingest.ddl.dialect import Dialect
from ingest.ddl.schema_history import begun, catalog_at, catalog_of, follow, reported
from ingest.ddl.statements import apply

MYSQL = Dialect(server="mysql", version=80036)
MARIA = Dialect(server="mariadb", version=101106)
UNKNOWN = "unknown"


def table_after(*statements: str, dialect: Dialect = MYSQL) -> TableDefinition:
    """Return table `t` after statements on one with an `id`."""
    catalog = Catalog(default_charset="utf8mb4", databases={"d": "utf8mb4"})
    for sql in ("CREATE TABLE t (id INT PRIMARY KEY)", *statements):
        applied = apply(catalog, sql, database="d", dialect=dialect)
        assert applied.error is None, sql
        catalog = applied.catalog
    return catalog.tables["d", "t"]


def column_after(*statements: str, name: str = "c") -> Column:
    column = table_after(*statements).column(name)
    assert column is not None
    return column.column


def initial(column: Column) -> Canonical:
    return column.default if column.default_known else UNKNOWN


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ("INT", None),
        ("INT NULL DEFAULT NULL", None),
        ("POINT NOT NULL", UNKNOWN),
        ("GEOMETRY", None),
        ("INT DEFAULT 5", 5),
        ("INT DEFAULT -5", -5),
        ("INT DEFAULT '7'", 7),
        ("INT NOT NULL", 0),
        ("TINYINT(1) DEFAULT TRUE", 1),
        ("BIGINT UNSIGNED DEFAULT 18446744073709551615", 18446744073709551615),
        ("DECIMAL(8,3) DEFAULT 2.5", "2.500"),
        ("DECIMAL(8,2) DEFAULT '-1.255'", "-1.26"),
        ("DECIMAL(8,3) NOT NULL", "0.000"),
        ("DOUBLE DEFAULT 1e3", 1000.0),
        ("FLOAT NOT NULL", 0.0),
        ("VARCHAR(20) DEFAULT 'it''s'", "it's"),
        ("VARCHAR(20) DEFAULT 0", "0"),
        ("VARCHAR(20) NOT NULL", ""),
        ("VARCHAR(20) CHARACTER SET latin1 NOT NULL DEFAULT _utf8mb4'x' COLLATE latin1_bin", "x"),
        ("CHAR(5) DEFAULT 'a  '", "a"),
        ("ENUM('new','old') NOT NULL", "new"),
        ("ENUM('new','old') DEFAULT 'OLD'", "old"),
        ("SET('a','b') NOT NULL", ""),
        ("SET('a','b') DEFAULT 'a,b'", "a,b"),
        ("DATE DEFAULT '2020-01-31'", "2020-01-31Z"),
        ("DATETIME(3) DEFAULT '2020-01-31 10:00:00.500'", "2020-01-31T10:00:00.5Z"),
        ("TIME NOT NULL", "00:00:00"),
        ("YEAR DEFAULT 2020", 2020),
        ("JSON NOT NULL", "null"),
        ("BIT(1) DEFAULT b'1'", True),
        ("BIT(9) NOT NULL", "AAA="),
        ("BINARY(2) DEFAULT 'a'", "YQA="),
        ("VARBINARY(4) DEFAULT 0x6162", "YWI="),
        ("TEXT NOT NULL", ""),
        # values that only the server knows
        ("DATETIME DEFAULT CURRENT_TIMESTAMP", UNKNOWN),
        ("DATETIME NOT NULL DEFAULT NOW()", UNKNOWN),
        ("INT DEFAULT (1 + 1)", UNKNOWN),
        ("TIMESTAMP NULL DEFAULT '2020-01-31 10:00:00'", UNKNOWN),
        ("DATE NOT NULL", UNKNOWN),
        ("INT AS (id + 1)", UNKNOWN),
        ("INT UNIQUE AUTO_INCREMENT", UNKNOWN),
    ],
)
def test_older_rows_read_the_default_of_an_added_column(words: str, wanted: Canonical) -> None:
    """A row without the column has the server's value: the default, NULL or the type's own; never a guess."""
    added = column_after(f"ALTER TABLE t ADD c {words}")
    assert initial(added) == wanted
    assert type(initial(added)) is type(wanted)


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ("UUID NOT NULL", "00000000-0000-0000-0000-000000000000"),
        ("UUID DEFAULT '6CCD780CBABA102695645B8C656024DB'", "6ccd780c-baba-1026-9564-5b8c656024db"),
        ("INET6 NOT NULL", "::"), ("INET6 DEFAULT '1.2.3.4'", "::ffff:1.2.3.4"),
        ("INET6 DEFAULT '::1.2.3.4'", "::1.2.3.4"),
        ("INET4 NOT NULL", "0.0.0.0"), ("INET4 DEFAULT '10.0.0.0'", "10.0.0.0"), ("UUID DEFAULT UUID()", UNKNOWN),
    ],
)  # fmt: skip
def test_addresses_and_uuids_are_as_mariadb_prints_them(words: str, wanted: Canonical) -> None:
    """Rows that existed before the column read as MariaDB 11.4 shows them, however its default was written."""
    column = table_after(f"ALTER TABLE t ADD c {words}", dialect=MARIA).column("c")
    assert column is not None
    assert initial(column.column) == wanted


def test_a_later_default_is_not_that_of_older_rows() -> None:
    """SET DEFAULT applies to later rows: rows older than the column keep the value of ADD COLUMN."""
    assert initial(column_after("ALTER TABLE t ADD c INT DEFAULT 5", "ALTER TABLE t ALTER c SET DEFAULT 6")) == 5
    assert initial(column_after("ALTER TABLE t ADD c INT DEFAULT 5", "ALTER TABLE t MODIFY c INT DEFAULT 6")) == 5


@pytest.mark.parametrize(
    ("before", "after", "wanted"),
    [
        ("INT DEFAULT 5", "BIGINT", 5),
        ("INT DEFAULT 5", "DECIMAL(5,2)", "5.00"),
        ("INT DEFAULT 5", "VARCHAR(9) DEFAULT 'x'", "5"),
        ("DECIMAL(4,2) DEFAULT 2.99", "DECIMAL(8,3)", "2.990"),
        ("DATE DEFAULT '2020-01-31'", "DATETIME", "2020-01-31T00:00:00Z"),
        ("VARCHAR(5) DEFAULT 'a'", "TEXT", "a"),
        ("VARCHAR(5) DEFAULT 'a'", "INT", UNKNOWN),
        ("INT", "INT NOT NULL DEFAULT 7", 0),
    ],
)
def test_a_retyped_column_converts_the_value_of_older_rows(before: str, after: str, wanted: Canonical) -> None:
    """MODIFY converts the value of older rows like all others."""
    assert initial(column_after(f"ALTER TABLE t ADD c {before}", f"ALTER TABLE t CHANGE c c {after}")) == wanted


@pytest.mark.parametrize(
    ("shown", "extra", "column_type", "nullable", "dialect", "wanted"),
    [
        (None, "", "int", "YES", MYSQL, None),
        (None, "", "int", "NO", MYSQL, 0),
        (None, "auto_increment", "int", "NO", MYSQL, UNKNOWN),
        ("5", "", "int", "YES", MYSQL, 5),
        (b"2.50", "", "decimal(5,2)", "YES", MYSQL, "2.50"),
        ("it's", "", "varchar(9)", "YES", MYSQL, "it's"),
        ("NULL", "", "varchar(9)", "YES", MYSQL, "NULL"),
        ("b'1'", "", "bit(1)", "YES", MYSQL, True),
        ("0x6162", "", "varbinary(4)", "YES", MYSQL, "YWI="),
        ("CURRENT_TIMESTAMP", "DEFAULT_GENERATED", "datetime", "YES", MYSQL, UNKNOWN),
        ("CURRENT_TIMESTAMP", "", "datetime", "YES", MYSQL, UNKNOWN),
        ("uuid()", "DEFAULT_GENERATED", "varchar(36)", "YES", MYSQL, UNKNOWN),
        ("NULL", "", "varchar(9)", "YES", MARIA, None),
        ("'it''s'", "", "varchar(9)", "YES", MARIA, "it's"),
        ("uuid()", "", "varchar(36)", "YES", MARIA, UNKNOWN),
    ],
)
def test_information_schema_has_the_same_defaults(
    shown: object, extra: str, column_type: str, nullable: str, dialect: Dialect, wanted: Canonical
) -> None:
    """The start of a snapshot knows the same defaults as statements give, in each server's notation."""
    row = {"column_default": shown, "extra": extra, "column_type": column_type, "is_nullable": nullable}
    value, known = shown_initial(row, dialect)
    assert (value if known else UNKNOWN) == wanted


@pytest.mark.parametrize(
    ("table", "column", "wanted"),
    [
        ("", "VARCHAR(9)", None),  # the default of the database, which is not followed
        ("", "INT", None),
        ("COLLATE utf8mb4_bin", "VARCHAR(9)", "utf8mb4_bin"),
        ("COLLATE utf8mb4_bin", "VARBINARY(9)", None),
        ("CHARSET utf8mb4", "VARCHAR(9)", "utf8mb4_0900_ai_ci"),
        ("CHARSET latin1", "TEXT", "latin1_swedish_ci"),
        ("CHARSET latin1 COLLATE latin1_german1_ci", "TEXT", "latin1_german1_ci"),
        ("COLLATE utf8mb4_bin", "VARCHAR(9) CHARACTER SET utf8mb4", "utf8mb4_0900_ai_ci"),
        ("COLLATE utf8mb4_bin", "VARCHAR(9) COLLATE utf8mb4_general_ci", "utf8mb4_general_ci"),
        ("CHARSET latin1", "VARCHAR(9) BINARY", "latin1_bin"),
        ("COLLATE utf8mb4_bin", "ENUM('a')", "utf8mb4_bin"),
    ],
)
def test_a_column_has_the_collation_of_the_server(table: str, column: str, wanted: object) -> None:
    """The column's own clause decides, then its character set's default, then its table's; otherwise it is unknown."""
    found = table_after(f"CREATE TABLE u (c {column}) {table}", "DROP TABLE t", "RENAME TABLE u TO t").column("c")
    assert found is not None
    assert found.collation == wanted
    if table:
        assert column_after(f"ALTER TABLE t {table}", f"ALTER TABLE t ADD c {column}").collation == wanted


def test_a_databases_default_is_followed() -> None:
    """A table without a clause compares as its database does, also after ALTER DATABASE and a restart."""
    position = Position(file="f", pos=1, gtid_set="", sequence=0)
    rows = [{"schema_name": "d", "default_character_set_name": "utf8mb4", "default_collation_name": "utf8mb4_bin"}]
    catalog = catalog_of([], [], [], rows, "utf8mb4", MYSQL)
    history = History().record(begun(catalog, "s", position))
    wanted = ["utf8mb4_bin", "utf8mb4_0900_ai_ci", "latin1_german1_ci", "utf8mb4_bin"]
    statements = [
        "CREATE TABLE t0 (c VARCHAR(9))",
        "CREATE TABLE t1 (c VARCHAR(9)) CHARSET utf8mb4",
        "ALTER DATABASE d COLLATE latin1_german1_ci",
        "CREATE TABLE t2 (c VARCHAR(9))",
        "CREATE DATABASE e COLLATE utf8mb4_bin",
        "CREATE TABLE e.t3 (c VARCHAR(9))",
    ]
    for number, sql in enumerate(statements, 1):
        at = replace(position, sequence=number)
        followed = follow(history, catalog, sql, source="s", position=at, database="d", dialect=MYSQL)
        assert followed.error is None
        stored = json.loads(json.dumps(list(checkpoint(followed.history, at))))
        history = history_from_records([(key, value) for key, value in stored], "s")
        catalog = catalog_at(history, "s", at, "utf8mb4")
    names = [("d", "t0"), ("d", "t1"), ("d", "t2"), ("e", "t3")]
    assert [catalog.tables[name].columns[0].collation for name in names] == wanted
    assert dict(catalog.collations) == {"d": "latin1_german1_ci", "e": "utf8mb4_bin"}


def test_convert_to_changes_the_collation_of_all_columns() -> None:
    """CONVERT TO … COLLATE is followed, and collations that it leaves open become unknown."""
    made = "CREATE TABLE u (c VARCHAR(9)) COLLATE utf8mb4_bin", "DROP TABLE t", "RENAME TABLE u TO t"
    to = "ALTER TABLE t CONVERT TO CHARACTER SET utf8mb4"
    assert column_after(*made, to).collation == "utf8mb4_0900_ai_ci"
    assert column_after(*made, f"{to} COLLATE utf8mb4_general_ci").collation == "utf8mb4_general_ci"


def test_schemas_have_defaults_and_read_older_records() -> None:
    """Defaults and collations survive the topic of schemas and the history; records without them are still read."""
    table = table_after(
        "ALTER TABLE t ADD c INT DEFAULT 5, ADD n INT, ADD x VARCHAR(3) COLLATE utf8mb4_bin DEFAULT (1)"
    )
    assert table_from_json(json.loads(json.dumps(table.to_json()))) == table
    schema = table.schema(TableId(source="s", database="d", table="t"), 3)
    value = json.loads(json.dumps(schema.to_json()))
    assert schema_from_json(value) == schema
    c, n, x = value["columns"][1:]
    assert (c["default"], n["default"], x["collation"]) == (5, None, "utf8mb4_bin")
    assert "default" not in x
    assert "collation" not in c
    old = {"name": "c", "column_type": "int", "nullable": True, "charset": None}
    assert schema_from_json({**value, "columns": [old]}).columns == (Column(name="c", column_type="int"),)


def test_the_logs_metadata_keeps_other_attributes() -> None:
    """A TABLE_MAP that corrects one column keeps the defaults and collations of the others."""
    position = Position(file="f", pos=1, gtid_set="", sequence=1)
    begun = Catalog(databases={"d": "utf8mb4"})
    sql = "CREATE TABLE t (id INT PRIMARY KEY, c VARCHAR(3) COLLATE utf8mb4_bin DEFAULT 'x')"
    made = follow(History(), begun, sql, source="s", position=position, database="d", dialect=MYSQL)
    columns = [
        Column(name="id", column_type="bigint", nullable=False),
        Column(name="c", column_type="varchar(3)", charset="utf8mb4"),
    ]
    table = TableId(source="s", database="d", table="t")
    learnt = reported(made.history, made.catalog, table, columns, ["id"], position=position)
    schema = learnt.history.schema_at(table, position)
    assert isinstance(schema, TableSchema)
    assert schema.columns[0].column_type == "bigint"
    assert schema.columns[1] == Column(
        name="c",
        column_type="varchar(3)",
        charset="utf8mb4",
        collation="utf8mb4_bin",
        default="x",
        default_known=True,
    )
    same = reported(learnt.history, learnt.catalog, table, columns, ["id"], position=position)
    assert same.change is None
