"""ALTER TABLE rewrites rows without row events: readers see the server's result, not a guess.

Each case has rows that were captured before the ALTER. After it, the topic as the join reads it must equal a new
capture of the server.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from tests.ingest.binlog.binlog_servers import Server
from tests.support.memory_capture import captured, topology_of

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]


@dataclass(frozen=True)
class Case:
    """A table `t` whose column `v` has values, and what rewrites them: the statement's actions, or those of several
    statements, separated by "; ". `session` runs before it."""

    made: str
    values: tuple[str, ...]
    alter: str
    session: tuple[str, ...] = ()
    only: str = ""


def modify(before: str, after: str, *values: str, session: tuple[str, ...] = ()) -> Case:
    return Case(before, values, f"MODIFY v {after}", session)


LAX = ("SET SESSION sql_mode = ''",)
ZONE = ("SET SESSION time_zone = '+05:30'",)
CASES = {
    "timestamp to datetime": modify("TIMESTAMP NULL", "DATETIME", "'2024-01-01 12:00:00'", "NULL", session=ZONE),
    "datetime to timestamp": modify("DATETIME", "TIMESTAMP NULL", "'2024-01-01 12:00:00'", "NULL", session=ZONE),
    "timestamp to text": modify("TIMESTAMP NULL", "VARCHAR(40)", "'2024-01-01 12:00:00'", session=ZONE),
    "timestamp to date": modify("TIMESTAMP NULL", "DATE", "'2024-01-01 23:00:00'", session=(*ZONE, *LAX)),
    "datetime cut": modify("DATETIME(6)", "DATETIME", "'2024-01-01 12:00:00.600000'", "'2024-01-01 12:00:00.4'"),
    "datetime to date": modify("DATETIME", "DATE", "'2024-01-01 12:00:00'", session=LAX),
    "date to datetime": modify("DATE", "DATETIME", "'2024-01-01'", "NULL"),
    "time to datetime": modify("TIME", "VARCHAR(30)", "'-12:00:00'", "'100:00:01'"),
    "enum to int": modify("ENUM('5','a','2')", "INT", "'5'", "'2'", session=LAX),
    "enum to text": modify("ENUM('5','a','2')", "VARCHAR(9)", "'5'", "'a'", "NULL"),
    "enum reordered": modify("ENUM('a','b','c')", "ENUM('c','b','a')", "'a'", "'b'", "'c'"),
    "enum extended": modify("ENUM('a','b')", "ENUM('a','b','c')", "'a'", "'b'", "NULL"),
    "enum loses a label": modify("ENUM('a','b')", "ENUM('b')", "'a'", "'b'", session=LAX),
    "set to int": modify("SET('5','a','2')", "INT", "'5,2'", "''", session=LAX),
    "set reordered": modify("SET('a','b')", "SET('b','a')", "'a,b'", "'a'"),
    "year to int": modify("YEAR", "INT", "1999", "2024", "0"),
    "int to year": modify("INT", "YEAR", "1999", "24", "0", session=LAX),
    "bit to int": modify("BIT(10)", "INT", "b'1000000001'", "NULL"),
    "bit to text": modify("BIT(8)", "VARCHAR(9)", "b'01000001'", session=LAX),
    "bit wider": modify("BIT(1)", "BIT(10)", "b'1'", "b'0'"),
    "zerofill to text": modify("INT(5) ZEROFILL", "VARCHAR(9)", "7", "123456"),
    "int to text": modify("INT", "VARCHAR(20)", "-7", "123456"),
    "text to int": modify("VARCHAR(20)", "INT", "'7'", "'12abc'", "' 5'", "'1e3'", session=LAX),
    "text to decimal": modify("VARCHAR(20)", "DECIMAL(5,1)", "'7.25'", "'1e3'", "'x'", session=LAX),
    "decimal rounded": modify("DECIMAL(10,3)", "DECIMAL(10,1)", "1.250", "-1.250", "2.349"),
    "decimal cut": modify("DECIMAL(10,3)", "DECIMAL(3,1)", "1234.5", "1.0", session=LAX),
    "decimal wider": modify("DECIMAL(10,2)", "DECIMAL(14,4)", "1.25", "-0.10", "NULL"),
    "decimal to int": modify("DECIMAL(10,2)", "INT", "1.50", "-2.50", "2.49"),
    "decimal to text": modify("DECIMAL(10,2)", "VARCHAR(20)", "1.50", "-2.00"),
    "float to double": modify("FLOAT", "DOUBLE", "0.1", "16777216", "1e20"),
    "double to float": modify("DOUBLE", "FLOAT", "0.1", "123456789.123"),
    "double to int": modify("DOUBLE", "INT", "2.5", "-2.5", "1e5"),
    "double to text": modify("DOUBLE", "VARCHAR(40)", "0.1", "1e20", "1e-7", "2"),
    "int wider": modify("INT", "BIGINT", "1", "-2147483648", "NULL"),
    "int narrower": modify("INT", "TINYINT", "1", "300", "-300", session=LAX),
    "int to unsigned": modify("INT", "INT UNSIGNED", "1", "-5", session=LAX),
    "unsigned to wider": modify("INT UNSIGNED", "BIGINT", "4294967295", "0"),
    "int to decimal": modify("INT", "DECIMAL(12,2)", "7", "-7"),
    "int to bool": modify("INT", "BIT(1)", "0", "1"),
    "latin1 to utf8mb4": modify("VARCHAR(9) CHARACTER SET latin1", "VARCHAR(9) CHARACTER SET utf8mb4", "'äö€'", "NULL"),
    "utf8mb4 to latin1": modify(
        "VARCHAR(20) CHARACTER SET utf8mb4", "VARCHAR(20) CHARACTER SET latin1", "'ä日'", "'a'", session=LAX
    ),
    "text to bytes": modify("VARCHAR(20) CHARACTER SET latin1", "VARBINARY(20)", "'äö'", "'a'"),
    "bytes to text": modify("VARBINARY(20)", "VARCHAR(20) CHARACTER SET latin1", "X'e4f6'", "X'41'"),
    "binary to varbinary": modify("BINARY(4)", "VARBINARY(9)", "X'41'", "X'0000'"),
    "binary longer": modify("BINARY(4)", "BINARY(6)", "X'41'", "X'0000'"),
    "char to varchar": modify("CHAR(10)", "VARCHAR(10)", "'a  '", "'b'"),
    "varchar to char": modify("VARCHAR(10)", "CHAR(10)", "'a  '", "'b'"),
    "text cut": modify("VARCHAR(20)", "VARCHAR(3)", "'abcdef'", "'a'", session=LAX),
    "text longer": modify("VARCHAR(20)", "TEXT", "'abcdef '", "''"),
    "json to text": modify("JSON", "LONGTEXT", """'{"b": [1, 2.50], "a": null}'""", "NULL"),
    "text to json": modify("LONGTEXT", "JSON", """'{"b":[1,2.50],"a":null, "a": 1}'""", "NULL"),
    "null to not null": modify("INT", "INT NOT NULL", "NULL", "5", session=LAX),
    "null to not null, strict": modify("INT", "INT NOT NULL", "4", "5"),
    "dropped and added": Case("INT", ("1", "2"), "DROP v, ADD v INT DEFAULT 7"),
    "dropped and added without default": Case("INT", ("1", "2"), "DROP v, ADD v INT"),
    "dropped, later added": Case("INT", ("1", "2"), "DROP v; ADD v INT DEFAULT 7"),
    "dropped, later added in another case": Case("INT", ("1", "2"), "DROP v; ADD w INT DEFAULT 1; ADD V INT"),
    "dropped and added twice": Case("INT", ("1",), "DROP v; ADD v INT DEFAULT 7; DROP v, ADD w INT; ADD v INT"),
    "dropped, later another takes its name": Case("INT, w INT DEFAULT 9", ("1", "2"), "DROP v; CHANGE w v INT"),
    "names swapped": Case(
        "INT, w INT DEFAULT 9", ("1", "2"), "CHANGE v w INT, CHANGE w v INT"
    ),
    "renamed": Case("INT", ("1", "2"), "CHANGE v x INT"),
    "added now()": Case("INT", ("1",), "ADD w DATETIME DEFAULT CURRENT_TIMESTAMP"),
    "added not null datetime": Case("INT", ("1",), "ADD w DATE NOT NULL DEFAULT '2020-02-02'"),
    "added timestamp": Case(
        "INT", ("1",), "ADD w TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP"
    ),
    "added generated": Case("INT", ("1", "2"), "ADD w INT AS (v * 2) STORED"),
    "added virtual": Case("INT", ("1", "2"), "ADD w INT AS (v * 3) VIRTUAL"),
    "generated over a changed column": Case(
        "DECIMAL(6,2), g VARCHAR(20) AS (CONCAT(v, '')) STORED", ("1.50", "2"), "MODIFY v DECIMAL(8,3)"
    ),
    "generated otherwise": Case(
        "INT, g INT AS (v + 1) STORED", ("1", "2"), "MODIFY g INT AS (v + 2) STORED"
    ),
    "added auto increment": Case("INT", ("1", "2"), "ADD w INT NOT NULL AUTO_INCREMENT UNIQUE"),
    "added a constant": Case("INT", ("1",), "ADD w VARCHAR(9) NOT NULL DEFAULT 'x'"),
    "converted": Case("VARCHAR(20)", ("'ä'", "'日'"), "CONVERT TO CHARACTER SET latin1", LAX),
    "first place": Case("INT", ("1",), "MODIFY v INT FIRST"),
    "uuid": Case("INT", ("1", "2"), "ADD w VARCHAR(40) DEFAULT (UUID())", only="maria10 maria11"),
    "ignored duplicates": Case("INT", ("1", "1", "2"), "ADD UNIQUE (v)", only="maria10 maria11"),
}  # fmt: skip


def check(server: Server, cases: dict[str, Case], database: str = "rewrites") -> None:
    """Capture a table per case, alter all of them, and compare."""
    cases = {name: case for name, case in cases.items() if not case.only or server.flavour in case.only.split()}
    with server.session(charset="utf8mb4") as connected, connected.cursor() as cursor:
        cursor.execute(f"DROP DATABASE IF EXISTS {database}")
        cursor.execute(f"CREATE DATABASE {database} DEFAULT CHARSET utf8mb4")
        cursor.execute(f"USE {database}")
        cursor.execute("SET SESSION sql_mode = ''")
        for number, case in enumerate(cases.values()):
            cursor.execute(f"CREATE TABLE t{number} (id INT PRIMARY KEY, v {case.made})")
            for key, value in enumerate(case.values):
                cursor.execute(f"INSERT INTO t{number} (id, v) VALUES ({key}, {value})")
        topology = topology_of(server, database)
        with captured(topology, server) as capture:
            for number, case in enumerate(cases.values()):
                cursor.execute("SET SESSION sql_mode = 'STRICT_TRANS_TABLES', time_zone = '+00:00'")
                for statement in case.session:
                    cursor.execute(statement)
                ignore = "IGNORE " if "ignored" in [*cases][number] else ""
                for alter in case.alter.split("; "):
                    cursor.execute(f"ALTER {ignore}TABLE t{number} {alter}")
            capture.caught_up(server)
            reported = {name: capture.read(capture.table(f"t{number}")) for number, name in enumerate(cases)}
            folded = capture
        with captured(topology, server) as fresh:
            wrong = {
                name: (reported[name], wanted)
                for number, name in enumerate(cases)
                if reported[name] != (wanted := fresh.read(fresh.table(f"t{number}")))
            }
        assert not wrong, "\n".join(
            f"{name}: {reported} and not {wanted}" for name, (reported, wanted) in wrong.items()
        )
        assert folded.broker.records


QUICK = (
    "timestamp to datetime", "enum to int", "zerofill to text", "decimal rounded", "text to int", "bit to int",
    "int wider", "set reordered", "json to text", "null to not null", "dropped and added", "names swapped", "renamed",
    "dropped, later added", "dropped and added twice",
    "added now()", "added generated", "generated over a changed column", "converted", "decimal wider",
    "latin1 to utf8mb4", "enum extended",
)  # fmt: skip


def test_rewritten_values_are_those_of_the_server(mysql80: Server) -> None:
    """Rows captured before an ALTER are read as the server has them after it."""
    check(mysql80, {name: CASES[name] for name in QUICK})


@pytest.mark.matrix
@pytest.mark.parametrize("flavour", ["mysql57", "mysql80", "mysql9", "maria10", "maria11"])
def test_every_rewrite_on_every_server(servers: Callable[[str], Server], flavour: str) -> None:
    """All conversions, on all servers."""
    check(servers(flavour), CASES)


KEYS = {
    "another column": ("id INT PRIMARY KEY, v INT NOT NULL", "DROP PRIMARY KEY, ADD PRIMARY KEY (v)"),
    "one column more": ("id INT PRIMARY KEY, v INT NOT NULL", "DROP PRIMARY KEY, ADD PRIMARY KEY (id, v)"),
    "another name": ("id INT PRIMARY KEY, v INT", "CHANGE id no INT"),
    "another order": ("id INT, v INT, PRIMARY KEY (id, v)", "DROP PRIMARY KEY, ADD PRIMARY KEY (v, id)"),
    "another type": ("id INT PRIMARY KEY, v INT", "MODIFY id VARCHAR(20)"),
    "more digits": ("id DECIMAL(6,2) PRIMARY KEY, v INT", "MODIFY id DECIMAL(9,4)"),
    "a unique key before": ("id INT NOT NULL UNIQUE, v INT NOT NULL", "ADD PRIMARY KEY (v, id)"),
}


def check_keys(server: Server) -> None:
    """Capture a table per case, give it another key, change rows before and after, and compare."""
    database = "other_keys"
    with server.session() as connected, connected.cursor() as cursor:
        cursor.execute(f"DROP DATABASE IF EXISTS {database}")
        cursor.execute(f"CREATE DATABASE {database} DEFAULT CHARSET utf8mb4")
        cursor.execute(f"USE {database}")
        for number, (made, _) in enumerate(KEYS.values()):
            cursor.execute(f"CREATE TABLE k{number} ({made})")
            cursor.execute(f"INSERT INTO k{number} (id, v) VALUES (1, 10), (2, 20), (3, 30)")
        with captured(topology_of(server, database), server) as capture:
            for number, (_, alter) in enumerate(KEYS.values()):
                cursor.execute(f"UPDATE k{number} SET v = v + 1 WHERE v = 20")
                cursor.execute(f"ALTER TABLE k{number} {alter}")
                cursor.execute(f"UPDATE k{number} SET v = v + 1 WHERE v = 30")
                cursor.execute(f"DELETE FROM k{number} WHERE v = 10")
            capture.caught_up(server)
            reported = {name: capture.read(capture.table(f"k{number}")) for number, name in enumerate(KEYS)}
        with captured(topology_of(server, database), server) as fresh:
            wanted = {name: fresh.read(fresh.table(f"k{number}")) for number, name in enumerate(KEYS)}
    assert reported == wanted
    assert all(len(rows) == 2 for rows in reported.values())


def test_rows_under_an_old_primary_key_are_deleted(mysql80: Server) -> None:
    """After a change of the primary key, a reader that applies markers has no row under the old one."""
    check_keys(mysql80)


@pytest.mark.matrix
@pytest.mark.parametrize("flavour", ["mysql57", "mysql9", "maria10", "maria11"])
def test_rows_under_an_old_primary_key_are_deleted_on_other_servers(
    servers: Callable[[str], Server], flavour: str
) -> None:
    """The same on other servers."""
    check_keys(servers(flavour))


def test_a_partition_takes_its_rows_to_the_other_table(mysql80: Server) -> None:
    """EXCHANGE PARTITION swaps the rows of two tables, and both are captured."""
    with mysql80.session() as connected, connected.cursor() as cursor:
        for statement in (
            "DROP DATABASE IF EXISTS exchanged",
            "CREATE DATABASE exchanged",
            "USE exchanged",
            "CREATE TABLE t (id INT PRIMARY KEY) PARTITION BY RANGE (id) (PARTITION a VALUES LESS THAN (10), "
            "PARTITION b VALUES LESS THAN (20))",
            "CREATE TABLE u (id INT PRIMARY KEY)",
            "INSERT INTO t VALUES (1), (2), (11)",
            "INSERT INTO u VALUES (3)",
        ):
            cursor.execute(statement)
        with captured(topology_of(mysql80, "exchanged"), mysql80) as capture:
            cursor.execute("ALTER TABLE t EXCHANGE PARTITION a WITH TABLE u")
            capture.caught_up(mysql80)
            assert capture.read(capture.table("t")) == [(11,), (3,)]
            assert capture.read(capture.table("u")) == [(1,), (2,)]


@pytest.mark.matrix
@pytest.mark.parametrize("flavour", ["maria10", "maria11"])
def test_a_replaced_table_starts_empty(servers: Callable[[str], Server], flavour: str) -> None:
    """MariaDB's CREATE OR REPLACE TABLE drops the rows of the table that it replaces."""
    server = servers(flavour)
    with server.session() as connected, connected.cursor() as cursor:
        for statement in (
            "CREATE OR REPLACE DATABASE replaced",
            "USE replaced",
            "CREATE TABLE t (id INT PRIMARY KEY)",
            "INSERT INTO t VALUES (1), (2)",
        ):
            cursor.execute(statement)
        with captured(topology_of(server, "replaced"), server) as capture:
            cursor.execute("CREATE OR REPLACE TABLE t (id INT PRIMARY KEY, v INT)")
            cursor.execute("INSERT INTO t VALUES (7, 7)")
            capture.caught_up(server)
            assert capture.read(capture.table("t")) == [(7, 7)]
