"""Every kind of source behind one agent, with real gateways and Kafka: leased, mapped, policed, dumped, killed."""

from __future__ import annotations

import json
import signal
import socket
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from cdc.model.naming import change_topic, dead_letter_topic, history_topic, positions_topic, schemas_topic
from cdc.model.schema import TableId
from tailorbird.devtools.stack.proc_stack import Stack
from tests.integration.conftest import CapturedDatabase, servers
from tests.support.cdc_served import served
from tests.support.changes_made import MemoryChanges, SourceLog, schema_of
from tests.support.fleet_on_servers import FleetOnServers

pytestmark = [pytest.mark.integration, pytest.mark.kafka, pytest.mark.timeout(600), pytest.mark.matrix]
POLICY = """
dumps: true
limits: {{poll_interval_ms: 100}}
connections:
  logs:
    type: syslog
    listen: {{unix: {folder}/log}}
    databases: {{logs: {{tables: {{messages: {{ignored_columns: [host]}}}}}}}}
  erp:
    type: sql
    url: sqlite:///{folder}/erp.db
    databases: {{main: {{tables: {{users: {{mask: {{mail: redact}}, ignored_columns: [pin]}}}}}}}}
  old:
    type: maxscale
    hostname: 127.0.0.1
    port: {port}
    username: foobar
    password: foopasswd
    databases: {{d: {{tables: {{t: {{ignored_columns: [pin]}}}}}}}}
  events:
    type: kafka
    bootstrap_servers: {servers}
    format: debezium
    databases: {{crm: {{tables: {{users: {{topic: {topic}, ignored_columns: [pin]}}}}}}}}
"""
TABLES = {"logs": ("logs", "messages"), "erp": ("main", "users"), "old": ("d", "t"), "events": ("crm", "users")}
KINDS = {"logs": "syslog", "erp": "sql", "old": "maxscale", "events": "kafka"}
FILLED = ("erp", "old")  # sources with a row before their capture
OPTIONS: dict[str, Any] = {
    "old": {"message_key_columns": ["id"]},
    "events": {"columns": {"id": "bigint", "name": "varchar(20)", "pin": "text"}, "message_key_columns": ["id"]},
}


class OtherSources(CapturedDatabase):
    """The topology of a gateway, and the topics of the sources that its agents capture."""

    def topic(self, table: str) -> str:
        database, name = TABLES[table]
        return change_topic(self.name, TableId(source=table, database=database, table=name))

    def close(self) -> None:
        for consumer in self._consumers.values():
            consumer.close()


@pytest.fixture
def fleet(stack: Stack, unique: Callable[[str], str], tmp_path: Path) -> Iterator[FleetOnServers]:
    name = unique("kinds")
    file = tmp_path / f"{name}.yml"
    file.write_text(
        f"name: {name}\nsources:\n  own: {{type: syslog, database: logs, listen: {{unix: {tmp_path}/own}}}}\n"
        f"log: {{bootstrap_servers: '{servers()}'}}\n"
    )
    admin = AdminClient({"bootstrap.servers": servers()})  # a name keeps it until the topic is created
    for future in admin.create_topics([NewTopic(f"{name}_in", 1, 1)]).values():
        future.result()
    captured = OtherSources(name, file, ())
    made = FleetOnServers(captured, tmp_path)
    yield made
    made.close()
    captured.close()


def send(path: Path, app: str) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as one:
        one.connect(str(path))
        one.send(f"<13>1 2026-01-01T00:00:00Z hostSECRET {app} 1 - - text".encode())


def insert(file: Path, number: int) -> None:
    with sqlite3.connect(file) as made:
        made.execute(
            "CREATE TABLE IF NOT EXISTS users (id INTEGER PRIMARY KEY, name TEXT, mail TEXT, pin TEXT,"
            " updated_at DATETIME NOT NULL)"
        )
        made.execute(
            f"INSERT INTO users VALUES ({number}, 'n{number}', 'mailSECRET', 'pinSECRET',"
            " strftime('%Y-%m-%d %H:%M:%f000', 'now'))"
        )
    made.close()


def produce(topic: str, number: int) -> None:
    row = {"id": number, "name": f"n{number}", "pin": "pinSECRET"}
    envelope = {"op": "c", "before": None, "after": row, "source": {}}
    producer = Producer({"bootstrap.servers": servers()})
    producer.produce(topic, key=json.dumps({"id": number}), value=json.dumps(envelope))
    producer.produce(topic, key=b"{", value=b"pinSECRET")
    assert producer.flush(30) == 0


def test_every_kind_of_source_through_an_agent(fleet: FleetOnServers, tmp_path: Path) -> None:
    """From the map to rows in Kafka; gateway and agent are killed. Each change is published once, without secrets."""
    captured, log = fleet.captured, MemoryChanges()
    source = SourceLog(log)
    source.columns(schema_of(name="varchar(20)", pin="varchar(20)"))

    def change(number: int) -> None:
        """Make a change in every source."""
        source.transaction(("c", None, {"id": number, "name": f"n{number}", "pin": "pinSECRET"}))
        source.commit()
        server.notify()
        insert(tmp_path / "erp.db", number)
        produce(f"{captured.name}_in", number)
        fleet.until((tmp_path / "log").exists, "syslog is not received")
        send(tmp_path / "log", f"n{number}")

    def names(kind: str) -> list[str]:
        rows = [event["after"] for event in captured.events(kind)]
        return sorted(row["app"] if kind == "logs" else row["name"] for row in rows)

    source.transaction(("c", None, {"id": 0, "name": "n0", "pin": "pinSECRET"}))  # a MaxScale has no table without rows
    source.commit()
    with served(log) as server:
        insert(tmp_path / "erp.db", 0)
        policy = POLICY.format(folder=tmp_path, port=server.address[1], servers=servers(), topic=f"{captured.name}_in")
        fleet.token = fleet.ask("token", "issue", "anna", "--role", "admin", "--topology", str(captured.file)).split()[
            0
        ]
        fleet.gateway("g1")
        fleet.gateway("g2")
        fleet.agent("paris", policy)
        fleet.until(lambda: all(fleet.api("agents", one) is not None for one in fleet.apis), "gateways do not serve")
        fleet.until(lambda: len(fleet.api("map") or ()) == 4, "not all is mapped")
        seen = {one["connection"]: one for one in fleet.api("map")}
        assert {name: one["type"] for name, one in seen.items()} == KINDS
        assert [column for column, _ in seen["erp"]["columns"]] == ["id", "name", "mail", "updated_at"]
        for name, kind in KINDS.items():
            database, table = TABLES[name]
            spec = {
                "agents": ["paris"], "connection": name, "type": kind, "database": database,
                "tables": {table: OPTIONS.get(name, {})},
            }  # fmt: skip
            (tmp_path / f"{name}.json").write_text(json.dumps(spec))
            fleet.ask("source", "add", name, "--file", str(tmp_path / f"{name}.json"), "--wait", "60")
        change(1)
        for name in KINDS:
            first = ["n0", "n1"] if name in FILLED else ["n1"]
            fleet.until(lambda: len(names(name)) >= len(first), f"{name} is not captured")  # noqa: B023
            assert names(name) == first
        held = fleet.json("agents")[0]["gateway"].partition("#")[0]
        other = "g2" if held == "g1" else "g1"
        fleet.kill(held)
        fleet.until(
            lambda: any((one["gateway"] or "").startswith(other) for one in fleet.api("agents", other) or ()),
            "no gateway took over",
        )
        fleet.until(
            lambda: {(one["reported"] or {}).get("status") for one in fleet.api("sources", other) or ()} == {"applied"},
            "it does not resume",
        )
        change(2)
        for name in KINDS:
            fleet.until(lambda: "n2" in names(name), f"{name} does not continue")  # noqa: B023
        fleet.kill("paris")
        (tmp_path / "log").unlink()
        fleet.agent("paris", policy)
        change(3)
        for name in KINDS:
            fleet.until(lambda: "n3" in names(name), f"{name} does not resume")  # noqa: B023
            wanted = [f"n{number}" for number in range(0 if name in FILLED else 1, 4)]
            assert names(name) == wanted, f"{name}: lost, or published twice"
        fleet.ask("dump", "erp", "users", "--where", "id = 2", gateway=other)
        fleet.until(lambda: names("erp").count("n2") == 2, "the row is not read again")
        said = fleet.ask("dump", "events", "users", gateway=other, code=2)
        assert "it has no tables to read" in said
        for name in KINDS:
            assert fleet.json("positions", "show", name, gateway=other) == []
            fleet.ask("positions", "set", name, "--to-sequence", "1", gateway=other, code=2)
        assert all(row["mail"] == "***" for row in (event["after"] for event in captured.events("erp")))
    topics = {captured.topic(name): 2 for name in KINDS}
    topics |= {make(captured.name): 1 for make in (history_topic, positions_topic, schemas_topic, dead_letter_topic)}
    stored = [record for topic, partitions in topics.items() for record in captured.read(topic, partitions)]
    assert len(stored) > 30
    assert not [record for record in stored if b"SECRET" in record[1] + (record[2] or b"")]
    assert fleet.kill("paris", signal.SIGTERM) == 0
