"""Capture a real server under a policy of its host, into a log in memory, without an agent or a gateway."""

from __future__ import annotations

import base64
import threading
from dataclasses import dataclass
from typing import Any

import orjson

from cdc.topology.topology import Source
from ingest.agent.policy import narrowed
from ingest.agent.policy_reader import read_policy
from ingest.fleet.desired import source_of, spec_of
from ingest.records.conditions import condition
from tests.support.live_capture import LiveCapture


def policy_text(server: Any, tables: str, database: str = "kept", options: str = "") -> str:
    """Return a policy of one connection, `db`, for a database: its `tables` (YAML), and its other keys, `options`."""
    return (
        f"dumps: true\nconnections:\n  db:\n    type: {'mariadb' if server.maria else 'mysql'}\n"
        f"    hostname: 127.0.0.1\n    port: {server.port}\n    username: cdc\n    password: cdc\n"
        f"    databases:\n      {database}:\n        tables: {tables}\n"
        + "".join(f"        {option}\n" for option in options.splitlines())
    )


@dataclass
class PolicedCapture(LiveCapture):
    """A capture whose source a policy restricts. `policy` are the policy's tables, in YAML, `options` its other keys.

    Without `tables`, the configuration asks for every table.
    """

    policy: str = "{}"
    options: str = ""
    unrepresentable: str = "null"

    @property
    def source(self) -> Source:
        """Return the source as the policy restricts it; the configuration asks for whole tables."""
        text = policy_text(self.server, self.policy, self.database, self.options)
        policy = read_policy(text, file="policy.yml", environ={}, content=str)
        number = 7000 + threading.get_native_id() % 50_000
        value = {"agents": ["a1"], "connection": "db", "database": self.database, "server_id": number}
        value["unrepresentable"] = self.unrepresentable
        asked: dict[str, Any] = (
            {"tables": {name: {} for name in self.tables}} if self.tables else {"filter_policy": "accept"}
        )
        spec = spec_of({**value, **asked}, "live", "s")
        return narrowed(policy, spec, source_of(spec, "live", "s"), condition).source

    def sent(self) -> bytes:
        """Return all bytes that would leave the host: committed records, and checkpoints."""
        records = [part for record in self.broker.records for part in (record.key, record.value or b"")]
        states = [orjson.dumps(one.state, default=str) for one in self.broker.checkpoints]
        return b"\n".join([*records, *states])


def policed(server: Any, database: str, policy: str, *tables: str, options: str = "") -> PolicedCapture:
    """Return a capture of tables of a new, empty database under a policy. Without tables it asks for every table."""
    with server.session() as connection, connection.cursor() as cursor:
        cursor.execute(f"DROP DATABASE IF EXISTS {database}")
        cursor.execute(f"CREATE DATABASE {database} DEFAULT CHARSET utf8mb4")
    return PolicedCapture(server, database, tables, policy=policy, options=options)


def forms(secret: str) -> list[bytes]:
    """Return the forms in which a secret may appear among bytes: as text, in hexadecimal, in base64 at any place."""
    raw = secret.encode()
    shifted = [base64.b64encode(b"\0" * shift + raw)[4 if shift else 0 : -4] for shift in range(3)]
    return [raw, raw[::-1], raw.hex().encode(), raw.hex().upper().encode(), raw.swapcase(), *shifted]


def leaked(sent: bytes, secrets: list[str]) -> list[str]:
    """Return the secrets that appear among bytes in any form."""
    return [secret for secret in secrets if any(form in sent for form in forms(secret))]
