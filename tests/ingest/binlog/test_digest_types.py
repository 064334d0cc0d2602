"""The digest that a server computes in SQL equals that of its rows as the snapshot reader has them, for every type and
edge value. Columns that stores print differently are excluded and reported."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from cdc.merkle.canonical import RowText, covered
from cdc.merkle.leaves import LeafOf, grid_of
from cdc.merkle.tree import Leaves, delta
from cdc.model.schema import TableSchema
from cdc.topology.topology import Source
from ingest.events.log_events import RefusedImage
from ingest.mysql import mysql_schema
from ingest.mysql.mysql_connection import Connection, connected, query
from ingest.mysql.mysql_digest import digest_sql, leaf_digests, leaf_rows, range_digest
from tests.ingest.binlog.binlog_servers import Server
from tests.ingest.binlog.type_cases import TypeCase, cases_of

DATABASE = "digests"
# Types that a table's key can have; each is divided into leaves by its own rule, or by the same over other values.
KEYS = (
    "tinyint", "int", "int_unsigned", "bigint", "bigint_unsigned", "decimal_10_2", "date", "datetime_0", "datetime_3",
    "timestamp_0", "timestamp_6", "time_2", "year", "varchar_utf8mb4", "varchar_latin1", "char_utf8mb4", "varbinary",
    "binary", "bit_9", "bit_64", "enum", "set", "uuid", "inet4", "inet6",
)  # fmt: skip
LEFT_OUT = ("t_float", "t_double", "t_json", "t_json_opaque")
# Columns for one row: character sets and collations that do not compare, padding, zero fill, NULL and empty.
MIXED = """
id BIGINT NOT NULL, b VARCHAR(9) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
g VARCHAR(9) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci,
u VARCHAR(9) CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_ci,
l VARCHAR(9) CHARACTER SET latin1 COLLATE latin1_german1_ci, x VARBINARY(9), z INT ZEROFILL, zd DECIMAL(8,3) ZEROFILL,
zb BIGINT UNSIGNED ZEROFILL, c CHAR(9), e ENUM('ä','b') CHARACTER SET latin1, d DATETIME(2), n INT NOT NULL DEFAULT 5,
t TEXT, y YEAR, q BIT(1), PRIMARY KEY (id, n)
"""
ROWS = (
    "(1, 'a  ', 'B', ' c', 'ä', x'00ff', 7, 1.5, 8, 'pad  ', 'ä', '2024-02-29 10:00:00.50', 5, 'a,b', 2024, b'1')",
    "(-1, '', '', '', '', x'', 0, 0, 0, '', 'b', '2024-02-29 10:00:00', 5, '', 0, b'0')",
    "(1023, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 5, NULL, NULL, NULL)",
    "(1024, '1:', ':', ',', '1', x'2c', 1, -0, 1, ',', NULL, NULL, -6, REPEAT('é', 5000), NULL, NULL)",
    "(-9223372036854775808, NULL, 'x', NULL, 'x', NULL, NULL, NULL, NULL, NULL, NULL, NULL, 5, NULL, NULL, NULL)",
)


def source_of(server: Server) -> Source:
    """Return a source with all tables of the test's database."""
    return Source(
        name="s", type="mariadb" if server.maria else "mysql", hostname="127.0.0.1", port=server.port, username="cdc",
        password="cdc", database=DATABASE, tables=(), server_id=78, snapshot_mode="initial", filter_policy="accept",
    )  # fmt: skip


def make(server: Server) -> None:
    """Create a table for each type, with the values and NULL; one for each type that may be a key; one of many
    columns."""
    with server.session() as session, session.cursor() as cursor:
        cursor.execute("SET SESSION sql_mode = '', time_zone = '+00:00'")
        cursor.execute(f"DROP DATABASE IF EXISTS {DATABASE}")
        cursor.execute(f"CREATE DATABASE {DATABASE} DEFAULT CHARACTER SET utf8mb4")
        cursor.execute(f"USE {DATABASE}")
        for case in cases_of(server.flavour):
            cursor.execute(f"CREATE TABLE {case.name} (id INT PRIMARY KEY, c {case.sql})")
            values = ", ".join(f"({number * 700}, {value})" for number, value in enumerate((*case.values, "NULL")))
            cursor.execute(f"INSERT INTO {case.name} VALUES {values}")
            if case.name.removeprefix("t_") in KEYS:
                keyed(cursor.execute, case)
        cursor.execute("CREATE TABLE `with%percent` (`50%` INT PRIMARY KEY, `%s` VARCHAR(9))")
        cursor.execute("INSERT INTO `with%percent` VALUES (1, '%'), (2, '%%'), (3, NULL)")
        cursor.execute("CREATE TABLE emptied (id INT PRIMARY KEY)")
        cursor.execute("INSERT INTO emptied VALUES (1)")
        if server.maria:  # it gives older rows an empty point, which is not a valid point
            cursor.execute("ALTER TABLE emptied ADD COLUMN p POINT NOT NULL, ADD COLUMN g GEOMETRY NOT NULL")
        cursor.execute(f"CREATE TABLE mixed ({MIXED})")
        cursor.execute(f"INSERT INTO mixed VALUES {', '.join(ROWS)}")


def keyed(execute: Callable[[str], object], case: TypeCase) -> None:
    """Create a table whose key is the type; an invalid date has no leaf, and its row is not read."""
    name, sql = case.name.replace("t_", "k_", 1), case.sql.removesuffix(" null")
    execute(f"CREATE TABLE {name} (c {sql} NOT NULL PRIMARY KEY)")
    for value in case.values:
        execute(f"INSERT IGNORE INTO {name} VALUES ({value})")


def check(server: Server) -> None:
    make(server)
    source = source_of(server)
    with connected(source) as connection:
        schemas = mysql_schema.table_schemas(connection, source, {})
        assert len(schemas) > 100
        for setting in ("null", "dead_letter"):
            one = replace(source, unrepresentable=setting)
            assert [found for schema in schemas.values() if (found := differs(connection, one, schema))] == []
        reported = {id_.table: dict(covered(schema).left_out) for id_, schema in schemas.items()}
    assert {name for name, out in reported.items() if out} == {name for name in reported if name in LEFT_OUT}


def differs(connection: Connection, source: Source, schema: TableSchema) -> str:
    """Return the errors of a table's digests; empty if the server's equal ours, leaf by leaf and in total."""
    what, grid = covered(schema), grid_of(schema)
    sql = digest_sql(connection, schema, what, grid, stands_in=source.unrepresentable != "dead_letter")
    text, leaf, ours, refused = RowText(what.forms), LeafOf(grid, what), Leaves(), set[int]()
    images = list(leaf_rows(connection, source, sql, 0, grid.last))
    assert images or schema.table_id.table.startswith("k_")
    for image in images:
        if isinstance(image, RefusedImage):
            assert source.unrepresentable == "dead_letter"
            refused.add(leaf({name: image.values[name] for name in schema.primary_key}))
        else:
            ours.add(leaf(image), delta(None, text.hash(image)))
    theirs = leaf_digests(connection, source, sql, 0, grid.last)
    name = schema.table_id.table
    if {one: digest for one, digest in theirs.items() if one not in refused} != {
        one: digest for one, digest in ours.digests.items() if one not in refused
    }:
        shown = query(connection, f"SELECT {sql.text()} FROM {DATABASE}.`{name}`")
        return f"{name}: {[row[0] for row in shown][:8]} {[text(i) for i in images if isinstance(i, dict)][:8]}"
    if not refused and range_digest(connection, source, sql, 0, grid.last) != ours.total():
        return f"{name}: its total differs"
    for one in list(theirs)[:3]:
        found = list(leaf_rows(connection, source, sql, one, one))
        if len(found) != theirs[one].count or leaf_digests(connection, source, sql, one, one) != {one: theirs[one]}:
            return f"{name}: leaf {one} alone is another"
    return ""


@pytest.mark.integration
def test_mysql80_digests_equal_ours(mysql80: Server) -> None:
    """On MySQL 8.0: each type as a column, each possible key type as a key, and all kinds in one row."""
    check(mysql80)


@pytest.mark.matrix
@pytest.mark.timeout(900)
@pytest.mark.parametrize("flavour", ["mysql57", "mysql9", "maria10", "maria11"])
def test_digests_equal_ours(servers: Callable[[str], Server], flavour: str) -> None:
    """The same on the other servers, with their 64-bit XOR if they have no other."""
    check(servers(flavour))
