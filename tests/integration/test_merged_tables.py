"""Merged tables: one table over those of many tenants, each in a database of its own, while tenants come and go."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cdc.model.schema import TableId
from cdc.model.types import Canonical
from cdc.process.file_topology import load_topology
from cdc.topology.topology import Topology
from joins.select.compiler import compile_plan
from joins.stores.kafka_schemas import read_schemas
from tailorbird.operate.status.kafka_captured import position_of
from tailorbird.operate.status.quarantine import quarantined
from tailorbird.verify.log.run_topics import verify_log
from tailorbird.verify.sql_oracle import answer
from tailorbird.verify.table.source_query import read_snapshot
from tests.joins.joincase import comparable
from tests.joins.quick import evaluator
from tests.joins.simulation import Logged, Simulation

pytestmark = [pytest.mark.integration, pytest.mark.kafka("mysql-shop"), pytest.mark.timeout(180)]

TABLE = "(id INT PRIMARY KEY, total DECIMAL(9,2), note VARCHAR(20))"
Rows = dict[tuple[Canonical, ...], dict[str, Canonical]]


def merge(captured: Any, pattern: str, column: str) -> TableId:
    """Have the capture read a merged table in place of `orders`, and a query join it with `plans`."""
    text = captured.file.read_text()
    text = re.sub(r"tables: \[[^]]*\]", f'tables: [plans, "{pattern}.orders"]', text)
    query = (
        f"SELECT o.{column}, o.id, o.total, o.note, p.name AS plan FROM shop.`{pattern}`.orders o "
        f"LEFT JOIN shop.plans p ON p.tenant = o.{column}"
    )
    text = re.sub(r"wide: \{.*\}", f'wide: {{query: "{query}", row_key: [{column}, id]}}', text)
    captured.file.write_text(text)
    return TableId(source="shop", database=pattern, table="orders")


def joined(captured: Any, topology: Topology, merged: TableId) -> Rows:
    """Return the joined table, computed by the join's specification from the topics."""
    table = topology.tables["wide"]
    needed = frozenset({merged, topology.sources["shop"].tables[0]})
    schemas = read_schemas(topology.log.brokers, topology.name, needed, lambda _: None, lambda: False)
    plan = compile_plan(topology, table, schemas)
    simulation = Simulation(plan, {}, evaluator())
    for topic in plan.topics:
        offsets: dict[int, int] = {}
        records = []
        for partition, key, value in captured.read(topic):
            offsets[partition] = offset = offsets.get(partition, -1) + 1
            records.append(Logged(topic=topic, partition=partition, offset=offset, key=key, value=value))
        simulation.run_batch(records, now_ms=1)
    assert simulation.refused == []
    return simulation.live()


def selected(topology: Topology, merged: TableId) -> Rows:
    """Return the result of the query over the source's tables, as `verify` computes it."""
    source = topology.sources["shop"]
    found = answer(topology, topology.tables["wide"], read_snapshot(source, [merged, source.tables[0]]).tables)
    return {tuple(row[name] for name in topology.tables["wide"].row_key): row for row in found.rows}


def is_select(captured: Any, topology: Topology, merged: TableId) -> bool:
    found, expected = comparable(joined(captured, topology, merged), selected(topology, merged))
    return found == expected


def left_out(captured: Any) -> dict[str, str]:
    """Return the tables that `status` shows as left out, with the reasons."""
    position = captured.position()
    reported = quarantined({"shop": position_of(position, 0)}) if position else []
    return {one.of: one.reason for one in reported if one.stage == "left out"}


def test_tenants_come_and_go(capture: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of all tenants are one table, whose SELECT `verify` computes, too. A new tenant is captured without a
    restart, a dropped one's rows end, also while nothing runs. A tenant whose table has another type is left out with
    the reason until it is altered."""
    monkeypatch.setenv("TAILORBIRD_HOME", str(tmp_path))
    captured = capture("plans")
    a, b, c, d = (f"{captured.name}_{name}" for name in ("a", "b", "c", "d"))
    merged = merge(captured, f"{captured.name}_*", "database_name")
    topology = load_topology(str(captured.file))
    captured.sql("CREATE TABLE plans (tenant VARCHAR(64) PRIMARY KEY, name VARCHAR(20))")
    captured.sql(f"INSERT INTO plans VALUES ('{a}', 'small'), ('{c}', 'large')")
    try:
        for name in (a, b):
            captured.sql(
                f"CREATE DATABASE {name}", f"CREATE TABLE {name}.orders {TABLE}",
                f"INSERT INTO {name}.orders VALUES (1, 1.5, '{name}'), (2, 2.5, NULL)",
            )  # fmt: skip
        process = captured.start()
        captured.streaming(process)
        captured.sql(
            f"UPDATE {a}.orders SET total = 7 WHERE id = 1", f"DELETE FROM {b}.orders WHERE id = 1",
            f"CREATE DATABASE {c}", f"CREATE TABLE {c}.orders LIKE {a}.orders",
            f"INSERT INTO {c}.orders VALUES (1, 3, 'new'), (2, 4, 'new')",
            f"CREATE DATABASE {d}", f"CREATE TABLE {d}.orders (id INT PRIMARY KEY, total DATE, note VARCHAR(20))",
            f"INSERT INTO {d}.orders VALUES (1, '2026-01-01', 'odd')",
        )  # fmt: skip
        captured.caught_up()
        captured.wait_for(lambda: is_select(captured, topology, merged), "a new tenant's rows are missing")
        assert {row[0] for row in joined(captured, topology, merged)} == {a, b, c}
        ((name, why),) = left_out(captured).items()
        assert (name, "column total has type" in why) == (f"shop.{d}.orders", True)

        process.send_signal(signal.SIGKILL)
        process.wait()
        captured.sql(f"DROP DATABASE {b}", f"TRUNCATE {c}.orders", f"INSERT INTO {c}.orders VALUES (9, 9, '9')")
        process = captured.start()
        captured.sql(
            f"UPDATE {d}.orders SET total = NULL",
            f"ALTER TABLE {d}.orders MODIFY total DECIMAL(9,2)",
            f"UPDATE {d}.orders SET total = 1",
        )
        captured.wait_for(lambda: left_out(captured) == {}, "it is still left out")
        captured.caught_up()
        captured.wait_for(lambda: is_select(captured, topology, merged), "dropped rows stay, or rows are missing")
        assert {row[0] for row in joined(captured, topology, merged)} == {a, c, d}

        captured.sql(f"ALTER TABLE {a}.orders DROP COLUMN note", f"INSERT INTO {a}.orders VALUES (5, 5)")
        captured.wait_for(lambda: list(left_out(captured)) == [f"shop.{a}.orders"], "it is not left out")
        captured.wait_for(lambda: is_select(captured, topology, merged), "rows that do not fit stay")
        verdicts = {one.table: one.outcome for one in verify_log(topology)}
        equal = {str(TableId(source="shop", database=one, table="orders")) for one in (c, d)}
        assert equal <= {name for name, outcome in verdicts.items() if outcome == "equal"}, verdicts
        assert "different" not in verdicts.values()
        process.terminate()
        assert captured.end_of(process)[0] == 0
    finally:
        for name in (a, b, c, d):
            captured.sql_anywhere(f"DROP DATABASE IF EXISTS {name}")


def test_schemas_of_postgresql_come_and_go(capture_postgres: Callable[..., Any]) -> None:
    """The tables of schemas are one table, too. A new schema is captured without a restart, a dropped one's rows
    end."""
    captured = capture_postgres("plans")
    merged = merge(captured, "t_*", "schema_name")
    topology = load_topology(str(captured.file))
    captured.sql("CREATE TABLE plans (tenant VARCHAR(64) PRIMARY KEY, name VARCHAR(20))")
    captured.sql("GRANT SELECT ON plans TO cdc", "INSERT INTO plans VALUES ('t_a', 'small'), ('t_c', 'large')")

    def tenant(name: str, total: str = "DECIMAL(9,2)") -> None:
        captured.sql(
            f"CREATE SCHEMA {name}", f"GRANT USAGE ON SCHEMA {name} TO cdc",
            f"CREATE TABLE {name}.orders (id INT PRIMARY KEY, total {total}, note VARCHAR(20))",
            f"GRANT SELECT ON {name}.orders TO cdc",
            f"INSERT INTO {name}.orders VALUES (1, NULL, '{name}'), (2, NULL, 'x')",
        )  # fmt: skip

    tenant("t_a")
    tenant("t_b")
    process = captured.start()
    captured.streaming(process)
    tenant("t_c")
    tenant("t_d", "DATE")
    captured.sql("UPDATE t_a.orders SET total = 7 WHERE id = 1", "DROP SCHEMA t_b CASCADE")
    captured.wait_for(lambda: set(left_out(captured)) == {"shop.t_d.orders"}, "it is not left out")
    captured.wait_for(lambda: is_select(captured, topology, merged), "a new tenant's rows are missing")
    assert {row[0] for row in joined(captured, topology, merged)} == {"t_a", "t_c"}
