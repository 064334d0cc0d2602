"""Two tenants of one gateway: each has only its own sources, commands, revocations and audit log."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
import structlog

from cdc.model.errors import Retriable
from ingest.fleet.certificate import RevokedCertificate
from ingest.fleet.fleet_pb2 import Ready, StreamRequest
from ingest.fleet.identity import FleetIdentity
from ingest.fleet.state import revoked_record, token_record
from ingest.fleet.tokens import Token, hashed, written
from ingest.gateway.commands import FleetCommands
from ingest.gateway.grpc_session import ServedSource
from ingest.gateway.http_api import TenantApis
from ingest.gateway.run_gateway import GatewayRuntime, coordinator_of
from ingest.gateway.tenants import Tenants
from ingest.gateway_client.gateway_log import GatewayLog
from ingest.gateway_client.grpc_stream import Credentials, GrpcStream
from tailorbird.web.fleet.file_ca import issue
from tests.ingest.fleet.test_commands import SPEC, Positions
from tests.ingest.fleet.test_session_handler import AT, Source, records
from tests.support.gateways import certificates, server_open
from tests.support.nearby_fleet import NearbyAudit, NearbyTopic
from tests.support.waiting import wait_for

pytestmark = pytest.mark.timeout(60)
NAMES = ("acme", "beta")


class OfTenant:
    """The parts of a gateway for one tenant, in memory, and an operator's token."""

    def __init__(self, name: str, number: int, exit: ExitStack) -> None:
        self.name, self.topic, self.audit, self.source = name, NearbyTopic(), NearbyAudit(), Source()
        numbers = itertools.count(1)
        coordinator = coordinator_of("g1#1", name, name, self.topic, self.audit)
        self.runtime = GatewayRuntime(coordinator, self.served, self.audit, self.topic)
        exit.callback(self.runtime.close)
        self.commands = FleetCommands(
            self.topic, self.audit, name, Positions(), now_ms=lambda: 1000, number=lambda: f"{next(numbers):016x}",
            secret=lambda: "s" * 43,
        )  # fmt: skip
        token = Token(
            id=f"{number:016x}", name=name, role="admin", sha256=hashed("s" * 43), issued_ms=0, expires_ms=2**53
        )
        self.topic.write(token_record(token))
        self.token = written(token.id, "s" * 43)

    def served(self, agent: FleetIdentity, name: str, epoch: int) -> ServedSource | None:
        return self.source if (agent.tenant, name) == (self.name, "s") else None


@pytest.fixture
def both(tmp_path: Path) -> Iterator[tuple[list[OfTenant], str, Path]]:
    structlog.reset_defaults()
    folder = certificates(tmp_path)
    with ExitStack() as exit:
        made = [OfTenant(name, number, exit) for number, name in enumerate(NAMES, 1)]
        fleet = Tenants("acme", {one.name: one.runtime for one in made})
        yield made, exit.enter_context(server_open(fleet, folder)), folder


def dialled(address: str, folder: Path, tenant: str, name: str = "rome") -> tuple[GrpcStream, str]:
    into = folder / f"{tenant}-{name}"
    serial = issue(folder / "authority", FleetIdentity(tenant, "agents", name), into)
    return GrpcStream(address, Credentials.of(into)), serial


def test_each_agent_has_access_to_its_own_fleet(both: tuple[list[OfTenant], str, Path]) -> None:
    """Names of agents and sources may be equal. Agents of other tenants are refused, and audited by the own tenant."""
    (acme, beta), address, folder = both
    streams = [dialled(address, folder, name)[0] for name in NAMES]
    for count, stream in enumerate(streams, 1):
        log = GatewayLog(stream, "s")
        log.recover()
        log.extend(records(count))
        log.commit(AT)
        stream.report(StreamRequest(ready=Ready()))
    assert [len(one.source.broker.records) for one in (acme, beta)] == [1, 2]
    wait_for(lambda: acme.topic.state.presences.keys() == beta.topic.state.presences.keys() == {"rome"}, "no seat", 20)
    with pytest.raises(Retriable, match="this gateway does not serve tenant gamma"):
        dialled(address, folder, "gamma")
    assert [line["who"] for line in acme.audit.lines if line["outcome"] == "turned away"] == [
        "tailorbird://gamma/agents/rome"
    ]
    assert not [line for line in beta.audit.lines if line["outcome"] == "turned away"]
    with pytest.raises(Retriable):
        GatewayLog(streams[1], "crm").recover()
    assert beta.audit.lines[-1]["why"] == "this agent may not capture source 'crm'"
    streams[0].close()


def test_a_tenant_revokes_only_its_own_certificates(both: tuple[list[OfTenant], str, Path]) -> None:
    """A number that another tenant has revoked has no effect."""
    (acme, beta), address, folder = both
    stream, serial = dialled(address, folder, "beta")
    acme.topic.write(revoked_record(RevokedCertificate(serial=serial)))
    log = GatewayLog(stream, "s")
    log.recover()
    beta.topic.write(revoked_record(RevokedCertificate(serial=serial)))
    wait_for(lambda: not stream.open, "it is still open", seconds=10)


def test_a_token_commands_its_own_tenant(both: tuple[list[OfTenant], str, Path]) -> None:
    """One tenant does not see another's sources. The gateway's own tenant refuses unknown tokens."""
    acme, beta = both[0]
    app: Any = TenantApis([acme.commands, beta.commands])

    def ask(method: str, path: str, token: str, body: Any = None) -> httpx.Response:
        async def asked() -> httpx.Response:
            async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="https://gateway") as client:
                return await client.request(method, path, json=body, headers={"Authorization": f"Bearer {token}"})

        return asyncio.run(asked())

    assert ask("POST", "/v1/sources/s", beta.token, SPEC).status_code == 201
    assert ask("GET", "/v1/sources", acme.token).json() == []
    assert [one["source"] for one in ask("GET", "/v1/sources", beta.token).json()] == ["s"]
    assert ask("GET", "/v1/audit", acme.token).json() == []
    assert ask("GET", "/v1/sources", written("f" * 16, "x" * 43)).status_code == 401
    assert (len(acme.audit.lines), acme.audit.lines[-1]["outcome"]) == (1, "refused")
