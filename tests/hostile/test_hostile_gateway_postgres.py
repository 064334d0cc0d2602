"""With a compromised gateway, nothing outside the agent's policy leaves a PostgreSQL server.

The generators are those for MySQL. Each session resumes from a copy of the honest capture's slot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import orjson
import psycopg
import pytest

from cdc.model.errors import UsageError
from ingest.agent.catalogs import seen
from ingest.agent.grpc_agent import FleetAgent
from ingest.agent.policy import narrowed
from ingest.agent.policy_reader import read_policy
from ingest.agent.run_agent import captured
from ingest.fleet.desired import source_of, spec_of
from ingest.fleet.fleet_pb2 import Control_PgSQLLogDec
from ingest.records.conditions import condition
from tests.hostile.guarded_database import stored_of
from tests.hostile.histories import doctored
from tests.hostile.hostile_gateway import HostileGateway, Lies, attending, wait_until
from tests.hostile.lies import HIDDEN, comparing_condition
from tests.hostile.policed import forms
from tests.hostile.test_hostile_gateway import quiet
from tests.support.pg_policies import postgres_policy
from tests.support.pg_servers import PgServer

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]
MARK = "Vx9SECRETq"
ALLOWED = """
      kept:
        tables:
          customers: {mask: {email: redact}, ignored_columns: [pin, level]}
          accounts: {ignored_columns: [ssn]}
          orders: {}
"""
BASE: dict[str, Any] = {
    "agents": ["a1"], "connection": "db", "type": "postgresql", "database": "kept",
    "tables": {"customers": {}, "accounts": {"message_key_columns": ["public_id"]}, "orders": {}},
}  # fmt: skip
TABLES = (
    "CREATE SCHEMA kept",
    "CREATE TABLE kept.customers (id INT PRIMARY KEY, name TEXT, email TEXT, pin TEXT, level TEXT)",
    "CREATE TABLE kept.accounts (ssn TEXT PRIMARY KEY, public_id INT NOT NULL UNIQUE, name TEXT)",
    "ALTER TABLE kept.accounts REPLICA IDENTITY USING INDEX accounts_public_id_key",
    "CREATE TABLE kept.orders (id INT PRIMARY KEY, total NUMERIC(10, 2))",
    "CREATE TABLE kept.foreign_table (id INT PRIMARY KEY, pin TEXT)",
    *(f"INSERT INTO kept.customers VALUES ({n}, 'n{n}', '{MARK}m{n}', '{MARK}p{n}', '{MARK}l')" for n in range(5)),
    *(f"INSERT INTO kept.accounts VALUES ('{MARK}s{n}', {n}, 'n{n}')" for n in range(5)),
    f"INSERT INTO kept.foreign_table VALUES (1, '{MARK}f')",
    "INSERT INTO kept.orders VALUES (1, 1.5)",
)


@dataclass
class GuardedPg:
    """The database, and what its sessions sent."""

    server: PgServer
    name: str
    honest: dict[str, Any] = field(default_factory=dict)
    commits: int = 0

    def sql(self, *statements: str) -> list[tuple[Any, ...]]:
        rows: list[tuple[Any, ...]] = []
        with self.server.session(self.name) as connection:
            for statement in statements:
                cursor = connection.execute(statement)
                rows = cursor.fetchall() if cursor.description else []
        return rows

    def capture(self, gateway: HostileGateway, source: str, lies: Lies, turn: int) -> None:
        """Run the sessions of a source until they end, or have captured changes, and search what they sent."""
        gateway.assign(source, BASE, lies, key=Control_PgSQLLogDec)
        wait_until(lambda: lies.ended or b'"snapshot":"done"' in lies.last, 15.0)
        self.sql(
            f"UPDATE kept.customers SET name = 'PUBLIC{turn}', pin = '{MARK}{turn}', email = '{MARK}{turn}'",
            f"UPDATE kept.accounts SET name = 'PUBLIC{turn}', ssn = '{MARK}s{turn}x' || public_id",
            f"UPDATE kept.foreign_table SET pin = '{MARK}{turn}'",
        )  # fmt: skip
        wait_until(lambda: lies.ended or f"PUBLIC{turn}".encode() in lies.frames, 15.0)
        self.commits += lies.commits
        gateway.withdraw(source)
        with gateway.lock:
            sent = b"".join((bytes(lies.heard), bytes(lies.frames), bytes(gateway.heard)))
        for form in forms(MARK):
            at = sent.find(form)
            assert at < 0, f"{sent[max(0, at - 200) : at + 60]!r} after {lies.recovered!r:.600}"

    def copy_slot(self, source: str) -> None:
        """Let a source resume where the honest one began."""
        self.sql(f"SELECT pg_copy_logical_replication_slot('base', 'tailorbird_t_{source}')")

    def drop_slot(self, source: str) -> None:
        """Drop the slot of a source that was withdrawn, once its session has ended."""

        def dropped() -> bool:
            with suppress(psycopg.errors.ObjectInUse, psycopg.errors.UndefinedObject):
                self.sql(f"SELECT pg_drop_replication_slot('tailorbird_t_{source}')")
            return not self.sql(f"SELECT 1 FROM pg_replication_slots WHERE slot_name = 'tailorbird_t_{source}'")

        assert wait_until(dropped, 30.0, 0.2)


@pytest.fixture
def database(postgres_server: PgServer, unique: Callable[[str], str]) -> Iterator[GuardedPg]:
    quiet()
    name = unique("guarded")
    with postgres_server.session() as connection:
        connection.execute(f"CREATE DATABASE {name} OWNER app")
    made = GuardedPg(postgres_server, name)
    made.sql(*TABLES)
    yield made
    with postgres_server.session() as connection:
        of_it = "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = %s"
        connection.execute(of_it, (name,))
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.mark.parametrize("turns", [5, pytest.param(100, marks=pytest.mark.matrix)])
def test_no_history_reveals_what_is_hidden(
    database: GuardedPg, gateway: HostileGateway, folder: Path, turns: int
) -> None:
    """Sessions resume from false schemas, checkpoints, snapshots with conditions, and tables outside the policy."""
    policy = read_policy(
        postgres_policy(database.server.port, database.name, ALLOWED), file="p.yml", environ={}, content=str
    )
    with attending(FleetAgent("a1", policy, captured, seen), gateway, folder):
        lies = Lies()
        database.capture(gateway, "honest", lies, 0)
        assert b'"snapshot":"done"' in lies.last, [str(one) for one in lies.reports]
        assert b"PUBLIC0" in lies.frames, "public values must arrive, or the test proves nothing"
        answer = {"checkpoint": lies.last.decode(), **stored_of(bytes(lies.frames)), "behind": []}
        assert len(answer["history"]) >= 3
        database.drop_slot("honest")
        database.sql("SELECT pg_create_logical_replication_slot('base', 'pgoutput')")
        ((start,),) = database.sql(
            "SELECT (confirmed_flush_lsn - '0/0'::pg_lsn)::bigint FROM pg_replication_slots WHERE slot_name = 'base'"
        )
        before = database.commits
        for turn in range(1, turns + 1):
            source = f"s{turn}"
            value = orjson.loads(orjson.dumps(answer).replace(b"honest", source.encode()))
            checkpoint = orjson.loads(value["checkpoint"])
            checkpoint["position"]["pos"] = max(checkpoint["position"]["pos"], start)
            value["checkpoint"] = orjson.dumps(checkpoint).decode()
            found = doctored(Random(turn), value)
            database.copy_slot(source)
            history = found.get("history") or []
            database.capture(gateway, source, Lies(recovered=found, history=history), turn)
            database.drop_slot(source)
        assert database.commits - before > turns / 3, "most sessions end before they read anything"


def test_no_condition_compares_what_is_hidden(database: GuardedPg) -> None:
    """Each condition that the policy lets pass is run by the server, and must find no row."""
    policy = read_policy(
        postgres_policy(database.server.port, database.name, ALLOWED), file="p.yml", environ={}, content=str
    )
    spec = spec_of(BASE, "t", "s")
    source = narrowed(policy, spec, source_of(spec, "t", "s"), condition).source
    tables, random, passed = {table.table: table for table in source.tables}, Random(35), 0
    assert source.conditions is not None
    assert set(HIDDEN) < set(tables)
    with database.server.session(database.name) as connection:
        for _ in range(1500):
            name = random.choice(("customers", "accounts"))
            text = comparing_condition(random, name)
            for tried in (text, text.replace("`", '"'), f'"{name}" IS NOT NULL AND {text}'):
                with suppress(UsageError, psycopg.errors.Error):
                    safe = source.conditions(tables[name], tried)
                    passed += 1
                    found = connection.execute(f"SELECT count(*) FROM kept.{name} WHERE ({safe})".encode()).fetchone()
                    assert found == (0,), f"{tried!r} found rows as {safe!r}"
    assert passed > 20, "the policy refuses all, so nothing was tried"
