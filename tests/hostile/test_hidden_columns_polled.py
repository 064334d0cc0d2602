"""A polled database behind an agent whose gateway is hostile: hidden columns leave in no record, key, hash or error.

The database is SQLite, which SQLAlchemy reads like any other: SQL Server, for which the request type is named, is not
available to the tests.
"""

from __future__ import annotations

import base64
import datetime as dt
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import Any

import orjson
import pytest

from ingest.agent.catalogs import seen
from ingest.agent.grpc_agent import FleetAgent
from ingest.agent.policy_reader import read_policy
from ingest.agent.run_agent import captured
from ingest.capture.signals import signal_value
from ingest.fleet.fleet_pb2 import APPLIED, Control_MSSQLClient
from tests.hostile.guarded_database import stored_of
from tests.hostile.hostile_gateway import HostileGateway, Lies, attending, wait_until
from tests.hostile.policed import leaked
from tests.hostile.test_hostile_gateway import quiet

pytestmark = pytest.mark.timeout(60)
POLICY = """
dumps: true
limits: {{poll_interval_ms: 20, poll_lag_ms: 3600000}}
connections:
  erp:
    type: sql
    url: sqlite:///{file}
    databases:
      main: {{tables: {{users: {{mask: {{pin: redact, born: sha256(salt)}}, ignored_columns: [mail]}}, orders: {{}}}}}}
"""
SPEC: dict[str, Any] = {
    "agents": ["a1"], "connection": "erp", "type": "sql", "database": "main", "interval": "20ms", "lag": "1h",
    "tables": {"users": {}},
}  # fmt: skip
SECRETS = [f"{kind}SECRET{number}" for kind in ("mail", "pin", "other", "born") for number in range(9)]
CHANGED = "2026-01-01 00:00:0{}.000000"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    quiet()
    file = tmp_path / "erp.db"
    sql(
        file,
        "CREATE TABLE users (id INTEGER PRIMARY KEY, name TEXT, mail TEXT, pin TEXT, born DATE, updated_at DATETIME NOT"
        " NULL)",
        "CREATE TABLE salaries (id INTEGER PRIMARY KEY, other TEXT, updated_at DATETIME NOT NULL)",
        f"INSERT INTO salaries VALUES (1, 'otherSECRET1', '{CHANGED.format(1)}')",
        *(insert(number) for number in (1, 2)),
    )
    return file


def sql(file: Path, *statements: str) -> None:
    connection = sqlite3.connect(file)
    with connection:
        for statement in statements:
            connection.execute(statement)
    connection.close()


def insert(number: int, born: str = "2001-02-03") -> str:
    row = f"{number}, 'n{number}', 'mailSECRET{number}', 'pinSECRET{number}', '{born}', '{CHANGED.format(number)}'"
    return f"INSERT INTO users VALUES ({row})"


@contextmanager
def attended(file: Path, gateway: HostileGateway, folder: Path) -> Iterator[None]:
    policy = read_policy(POLICY.format(file=file), file="policy.yml", environ={}, content=str)
    with attending(FleetAgent("a1", policy, captured, seen), gateway, folder):
        yield


def assign(gateway: HostileGateway, source: str, lies: Lies | None = None, **changed: Any) -> Lies:
    return gateway.assign(source, {**SPEC, **changed}, lies, key=Control_MSSQLClient)


def sent(gateway: HostileGateway, *lies: Lies) -> bytes:
    with gateway.lock:
        return b"".join((bytes(gateway.heard), *(bytes(part) for one in lies for part in (one.heard, one.frames))))


def hashes(checkpoint: bytes) -> set[bytes]:
    """Return the hashes of rows in a checkpoint."""
    tables = orjson.loads(checkpoint)["state"]["tables"].values()
    joined = b"".join(base64.b64decode(text) for one in tables for _, text in one["seen"])
    return {joined[at : at + 16] for at in range(0, len(joined), 16)}


def test_hidden_columns_are_masked_before_they_leave(file: Path, gateway: HostileGateway, folder: Path) -> None:
    """From the catalog to the checkpoint, whose hashes of rows would reveal short values."""
    with attended(file, gateway, folder):
        lies = assign(gateway, "erp")
        assert wait_until(lambda: b"n2" in lies.frames and lies.commits > 0, 30), [str(one) for one in lies.reports]
        assert any(report.progress == APPLIED and "leave masked" in report.reason for report in lies.reports)
        sql(file, insert(3))
        assert wait_until(lambda: b"n3" in lies.frames and lies.commits > 1, 30)
        assert wait_until(lambda: b"updated_at" in bytes(gateway.heard), 30), "nothing is mapped"
    assert not leaked(sent(gateway, lies), SECRETS)
    assert b"salaries" not in sent(gateway, lies)
    assert b"2001-02-03" not in sent(gateway, lies)
    found = hashes(lies.last)
    assert len(found) == 3, "the rows are remembered, or the test proves nothing"
    plain = (1, "n1", "pinSECRET1", dt.date(2001, 2, 3), dt.datetime(2026, 1, 1, 0, 0, 1))  # as the driver returns it
    assert blake2b(repr(plain).encode(), digest_size=16).digest() not in found


def test_no_session_of_a_false_checkpoint_reads_more(file: Path, gateway: HostileGateway, folder: Path) -> None:
    """A dump with a forbidden condition ends, in a signal as in a checkpoint; the capture continues."""
    with attended(file, gateway, folder):
        honest = assign(gateway, "erp")
        assert wait_until(lambda: b"n2" in honest.frames and honest.commits > 0, 30)
        gateway.withdraw("erp")
        answer = {"checkpoint": honest.last.decode(), **stored_of(bytes(honest.frames)), "behind": []}
        found = []
        for number, where in enumerate(
            ("pin LIKE 'pinSECRET1%'", "\"PIN\" > ''", "1 = 1 OR mail > ''", "id IN (SELECT id FROM salaries)")
        ):
            value = orjson.loads(orjson.dumps(answer).replace(b"erp", f"e{number}".encode()))
            checkpoint = orjson.loads(value["checkpoint"])
            checkpoint["state"]["snapshots"] = {"main.users": {"rows": 0, "began_ms": 0, "where": where}}
            value["checkpoint"] = orjson.dumps(checkpoint).decode()
            signal = signal_value("execute-snapshot", ("main.users",), where)
            lies = assign(gateway, f"e{number}", Lies(recovered=value, signals=[[], [signal]]))
            assert wait_until(lambda: lies.commits > 0, 30), [str(one) for one in lies.reports]  # noqa: B023
            assert wait_until(lambda: lies.asked > 2, 30)  # noqa: B023
            assert b'"name":"n' not in lies.frames, where
            assert b"snapshots" not in lies.last, where
            found.append(lies)
            gateway.withdraw(f"e{number}")
        signal = signal_value("execute-snapshot", ("main.users",), "name = 'n1'")
        allowed = assign(gateway, "plain", Lies(signals=[[], [signal]]))
        assert wait_until(lambda: bytes(allowed.frames).count(b'"name":"n1"') == 2, 30), "an allowed dump is not read"
    assert not leaked(sent(gateway, honest, allowed, *found), SECRETS)


def test_what_must_not_leave_is_refused(file: Path, gateway: HostileGateway, folder: Path) -> None:
    """The reason of a refusal names no value. A driver's error quotes the value that it cannot read: the agent logs it,
    and reports only its kind."""
    refused: list[tuple[dict[str, Any], str]] = [
        ({"cursor": "pin"}, "cannot be polled by pin"),
        ({"tables": {"salaries": {}}}, "salaries may not leave erp"),
        ({"database": "other"}, "database other may not leave"),
        ({"url": "sqlite:///stolen.db"}, "url cannot be set by the gateway"),
        ({"tables": {"users": {"where": "pin > 1"}}}, "a polled table"),
        ({}, "ValueError: see the log of the agent"),
    ]
    sql(file, insert(3, born="bornSECRET3"))
    with attended(file, gateway, folder):
        tried = [assign(gateway, f"s{number}", **change) for number, (change, _) in enumerate(refused)]
        assert wait_until(lambda: all(lies.failed for lies in tried), 30)
    for lies, (_, why) in zip(tried, refused, strict=True):
        assert why in lies.reports[-1].reason
    assert not leaked(sent(gateway, *tried), SECRETS)
