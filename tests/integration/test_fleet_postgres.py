"""A PostgreSQL server behind an agent, with real gateways and Kafka: hidden columns stay there, whatever dies."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cdc.model.naming import history_topic, positions_topic, schemas_topic
from tests.support.fleet_on_servers import FleetOnServers, rows
from tests.support.pg_policies import postgres_policy
from tests.support.pg_servers import PgServer

pytestmark = [pytest.mark.integration, pytest.mark.kafka, pytest.mark.timeout(600)]
ALLOWED = """
      public:
        tables: {t: {mask: {mail: redact}, ignored_columns: [pin]}, u: {}}
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[PgServer]:
    """Start a server that the test kills."""
    made = PgServer(tmp_path / "postgres")
    made.start()
    yield made
    made.kill()


@pytest.fixture
def postgres_server(server: PgServer) -> PgServer:
    """Return the server that `capture_postgres` uses."""
    return server


@pytest.fixture
def fleet(capture_postgres: Callable[..., Any], tmp_path: Path) -> Iterator[FleetOnServers]:
    captured = capture_postgres("t", "u", "salaries")
    captured.sql(
        "CREATE TABLE t (id BIGINT PRIMARY KEY, v BIGINT, mail TEXT, pin TEXT)",
        "CREATE TABLE u (id BIGINT PRIMARY KEY, v BIGINT)",
        "CREATE TABLE salaries (id BIGINT PRIMARY KEY, v BIGINT)",
        "INSERT INTO t SELECT n, n, 'mailSECRET' || n, 'pinSECRET' || n FROM generate_series(0, 499) n",
        "INSERT INTO u VALUES (1, 1), (2, 2)",
    )
    made = FleetOnServers(captured, tmp_path)
    yield made
    made.close()


def test_postgres_through_an_agent(fleet: FleetOnServers, server: PgServer) -> None:
    """From the map to a table in sync; then gateway, agent and server are killed. Each change is published once."""
    captured = fleet.captured
    policy = postgres_policy(server.port, captured.name, ALLOWED)

    def insert(number: int) -> None:
        captured.sql(f"INSERT INTO t (id, v, mail, pin) VALUES ({number}, 1, 'mailSECRET', 'pinSECRET')")

    fleet.token = fleet.ask("token", "issue", "anna", "--role", "admin", "--topology", str(captured.file)).split()[0]
    fleet.gateway("g1")
    fleet.gateway("g2")
    fleet.agent("paris", policy)
    fleet.until(lambda: all(fleet.api("agents", one) is not None for one in fleet.apis), "gateways do not serve")
    fleet.until(lambda: fleet.api("map"), "nothing is mapped")
    seen = {one["table"]: one for one in fleet.json("map", "--agent", "paris")}
    assert {name: [column for column, _ in one["columns"]] for name, one in seen.items()} == {
        "t": ["id", "v", "mail"], "u": ["id", "v"],
    }  # fmt: skip
    place = ("--agent", "paris", "--connection", "db")
    said = fleet.ask("source", "add", "wrong", *place, "--database", "public", "--table", "t", "--wait", "60", code=1)
    assert "connection db is of type postgresql, but the configuration is for mysql" in said
    fleet.ask("source", "rm", "wrong")
    fleet.ask("source", "add", "shop", "--type", "postgresql", *place)
    said = fleet.ask("sync", "start", "shop", "t", "--wait", "60")
    assert "mail leave masked" in said
    fleet.until(lambda: len(rows(captured, "t")) == 500, "the table did not arrive")
    refused = fleet.ask("sync", "start", "shop", "salaries", "--wait", "60", code=1)
    assert "salaries may not leave db" in refused
    fleet.ask("config", "rollback", "shop", "2", "--wait", "60")

    held = fleet.json("agents")[0]["gateway"].partition("#")[0]
    other = "g2" if held == "g1" else "g1"
    fleet.kill(held)
    insert(1000)
    fleet.until(lambda: 1000 in rows(captured, "t"), "the other gateway did not take over")
    fleet.kill("paris")
    insert(1001)
    captured.sql("UPDATE t SET mail = 'mailSECRET1', v = 2 WHERE id = 1000")
    fleet.agent("paris", policy)
    fleet.until(lambda: rows(captured, "t").get(1000, {}).get("v") == 2, "the agent did not resume")
    server.kill()
    time.sleep(1.0)
    server.start()
    captured.sql("ALTER TABLE t ADD note TEXT DEFAULT 'new'")
    insert(1002)
    fleet.until(lambda: rows(captured, "t").get(1002, {}).get("note") == "new", "it does not follow the server")
    fleet.ask("sync", "start", "shop", "u", "--wait", "60", gateway=other)
    fleet.until(lambda: len(rows(captured, "u")) == 2, "the second table did not come")
    fleet.ask("dump", "shop", "t", "--where", "id >= 1000", gateway=other)
    fleet.until(lambda: len(_read_again(captured)) == 3, "the rows are not read again")

    live = [event for event in captured.events("t") if event["op"] in "cud"]
    reported = sorted((event["op"], event["after"]["id"]) for event in live)
    assert reported == [("c", 1000), ("c", 1001), ("c", 1002), ("u", 1000)], "lost, or published twice"
    assert {row["mail"] for row in rows(captured, "t").values()} == {"***"}
    assert all("pin" not in row for row in rows(captured, "t").values())
    assert fleet.json("positions", "show", "shop", gateway=other) == []
    refused = fleet.ask("positions", "set", "shop", "--to-sequence", "1", gateway=other, code=2)
    assert "its slot has released the log" in refused
    [source] = fleet.json("source", "list", gateway=other)
    assert source["reported"]["position"]["pos"] > 0
    topics = {captured.topic("t"): 2, captured.topic("u"): 2}
    topics |= {topic(captured.name): 1 for topic in (history_topic, positions_topic, schemas_topic)}
    stored = [record for topic, partitions in topics.items() for record in captured.read(topic, partitions)]
    assert len(stored) > 500
    assert not [record for record in stored if b"SECRET" in record[1] + (record[2] or b"")]
    assert fleet.kill("paris", signal.SIGTERM) == 0
    assert fleet.kill(other, signal.SIGTERM) == 0


@pytest.mark.matrix
def test_a_second_agent_takes_over_the_slot(fleet: FleetOnServers, server: PgServer) -> None:
    """The first agent is suspended past its lease while it reads the slot, then resumed. It writes nothing more."""
    captured, first = fleet.captured, "paris"
    fleet.token = fleet.ask("token", "issue", "anna", "--role", "admin", "--topology", str(captured.file)).split()[0]
    fleet.gateway("g1")
    for name in (first, "lyon"):
        fleet.agent(name, postgres_policy(server.port, captured.name, ALLOWED))
    fleet.until(lambda: len(fleet.api("agents") or ()) == 2, "an agent does not dial")
    place = ("--agent", first, "--agent", "lyon", "--connection", "db", "--table", "u", "--wait", "60")
    fleet.ask("source", "add", "shop", "--type", "postgresql", *place)
    fleet.until(lambda: len(rows(captured, "u")) == 2, "the table did not arrive")
    assert fleet.api("sources")[0]["agent"] == first
    fleet.processes[first].send_signal(signal.SIGSTOP)
    captured.sql("INSERT INTO u VALUES (10, 10)")
    fleet.until(lambda: 10 in rows(captured, "u"), "no agent took over", 120)
    assert fleet.api("sources")[0]["agent"] == "lyon"
    fleet.processes[first].send_signal(signal.SIGCONT)
    captured.sql("INSERT INTO u VALUES (11, 11)")
    fleet.until(lambda: 11 in rows(captured, "u"), "after it resumed, the first agent stopped the second")
    fleet.until(
        lambda: {one["agent"]: len(one["sources"]) for one in fleet.api("agents")} == {first: 0, "lyon": 1},
        "two agents have the source",
    )
    reported = [event["after"]["id"] for event in captured.events("u") if event["op"] == "c"]
    assert reported == [10, 11], "lost, or published twice"


def _read_again(captured: Any) -> set[int]:
    """Return the ids of rows from 1000 on that a snapshot has read."""
    return {
        event["after"]["id"] for event in captured.events("t") if event["op"] == "r" and event["after"]["id"] >= 1000
    }
