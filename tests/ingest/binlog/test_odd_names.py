"""Databases, tables and columns of any name are captured: rows, statements and snapshots refer to the same table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from cdc.model.naming import change_topic, is_topic, table_of
from cdc.model.schema import TableId
from tests.ingest.binlog.binlog_servers import Server
from tests.support.memory_capture import NAME, captured, topology_of

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]
DATABASE = "my shop.日本-x0020-"
TABLES = [
    "order details", 'bestellung "x"', "日本", "a.b", "a_b", "a-x002e-b", "it`s", "50%", "x%s", "$", "path/to",
    "n" * 64, "日" * 50, "SELECT", "Ünïcödé", "{a}", "a,b", "x' OR '1", "\\back", "#hash", "-- dash", "/* c */",
]  # fmt: skip
COLUMNS = ["order id", "näme", "a.b", "50%", "x%s", "`", '"', "日本", "select", "$", "a\\b", "-x0020-", "x'y"]


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def check(server: Server) -> None:
    database = quoted(DATABASE)
    columns = ", ".join(f"{quoted(name)} INT" for name in COLUMNS)
    with server.session() as connected, connected.cursor() as cursor:

        def run(sql: str) -> None:
            cursor.execute(sql)

        run(f"DROP DATABASE IF EXISTS {database}")
        run("CREATE DATABASE IF NOT EXISTS elsewhere")
        run(f"CREATE DATABASE {database} DEFAULT CHARSET utf8mb4")
        run("USE elsewhere")
        for name in TABLES[::2]:
            run(f"CREATE TABLE {database}.{quoted(name)} (`my id` INT PRIMARY KEY, {columns})")
            run(f"INSERT INTO {database}.{quoted(name)} (`my id`, `order id`) VALUES (1, 10), (2, 20)")
        with captured(topology_of(server, DATABASE), server) as capture:
            for name in TABLES[1::2]:  # created while the capture runs, from another default database
                run(f"CREATE TABLE {database}.{quoted(name)} (`my id` INT PRIMARY KEY, {columns})")
                run(f"INSERT INTO {database}.{quoted(name)} (`my id`, `order id`) VALUES (1, 10), (2, 20)")
            for name in TABLES:
                run(f"UPDATE {database}.{quoted(name)} SET `50%` = 5, `a.b` = 6 WHERE `my id` = 1")
                run(f"DELETE FROM {database}.{quoted(name)} WHERE `my id` = 2")
                run(f"ALTER TABLE {database}.{quoted(name)} ADD `later one` INT DEFAULT 7, MODIFY `日本` VARCHAR(9)")
            run(f"TRUNCATE TABLE {database}.`a.b`")
            capture.caught_up(server)
            with captured(topology_of(server, DATABASE, server_id=9202), server) as fresh:
                for name in TABLES:
                    table = capture.table(name)
                    assert len(capture.folded(table)) == (name != "a.b"), name
                    assert capture.read(table) == fresh.read(table), name
            topics = {change_topic(NAME, capture.table(name)) for name in TABLES}
            assert all(map(is_topic, topics))
            assert len(topics) == len(TABLES)
            long = capture.table("日" * 50)
            assert {table_of(NAME, topic) for topic in topics} == {
                None if name == long.table else TableId(source="shop", database=DATABASE, table=name) for name in TABLES
            }


def test_any_name_is_captured(mysql80: Server) -> None:
    """Spaces, quotes, dots, `$`, `%`, other scripts and 64 characters, in databases, tables and columns."""
    check(mysql80)


@pytest.mark.matrix
@pytest.mark.parametrize("flavour", ["mysql57", "mysql9", "maria10", "maria11"])
def test_any_name_on_other_servers(servers: Callable[[str], Server], flavour: str) -> None:
    """The same on other servers."""
    check(servers(flavour))


def test_names_with_dots_are_not_taken_for_each_other(mysql80: Server) -> None:
    """`a`.`b.c` and `a.b`.`c` are two tables of one source, also when a signal or a rule names them."""
    with mysql80.session() as connected, connected.cursor() as cursor:
        for database, table in (("a", "b.c"), ("a.b", "c")):
            cursor.execute(f"DROP DATABASE IF EXISTS `{database}`")
            cursor.execute(f"CREATE DATABASE `{database}`")
            cursor.execute(f"CREATE TABLE `{database}`.`{table}` (id INT PRIMARY KEY, mail VARCHAR(20))")
            cursor.execute(f"INSERT INTO `{database}`.`{table}` VALUES (1, '{database}')")
        tables = '{"a.`b.c`": {}, "`a.b`.c": {ignored_columns: [mail]}}'
        topology = topology_of(mysql80, "a", tables, policy="drop")
        with captured(topology, mysql80) as capture:
            found: dict[tuple[str, str], list[Any]] = {}
            for database, table in (("a", "b.c"), ("a.b", "c")):
                found[database, table] = capture.read(capture.table(table, database))
        assert found == {("a", "b.c"): [(1, "a")], ("a.b", "c"): [(1,)]}


def test_a_topic_that_kafka_would_refuse_leaves_one_table_out(mysql80: Server) -> None:
    """Kafka cannot distinguish `a_b.c` from `a.b_c`: with `accept` one of the two is left out, and the other one
    flows."""
    with mysql80.session() as connected, connected.cursor() as cursor:
        for database, table in (("meets_a", "b"), ("meets", "other")):
            cursor.execute(f"DROP DATABASE IF EXISTS {database}")
            cursor.execute(f"CREATE DATABASE {database}")
            cursor.execute(f"CREATE TABLE {database}.{table} (id INT PRIMARY KEY)")
            cursor.execute(f"INSERT INTO {database}.{table} VALUES (1)")
        cursor.execute("CREATE TABLE meets.a_b (id INT PRIMARY KEY)")
        topology = topology_of(mysql80, "meets", "{meets_a.b: {ignored_columns: [nothing]}}")
        with captured(topology, mysql80) as capture:
            cursor.execute("INSERT INTO meets.a_b VALUES (5)")
            cursor.execute("INSERT INTO meets_a.b VALUES (6)")
            cursor.execute("INSERT INTO meets.other VALUES (7)")
            capture.caught_up(mysql80)
            assert capture.read(capture.table("b", "meets_a")) == [(1,), (6,)]
            assert capture.read(capture.table("other")) == [(1,), (7,)]
            assert not capture.folded(capture.table("a_b"))
            assert "Kafka cannot distinguish" in capture.broker.checkpoints[-1].state["left_out"]["meets.a_b"]["why"]
