"""Serve several tenants with one gateway: each agent has access only to the fleet of its tenant."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ingest.fleet.fleet_pb2 import StreamRequest
from ingest.fleet.identity import FleetIdentity
from ingest.gateway.gateway_interfaces import AgentConnection
from ingest.gateway.grpc_session import ServedSource
from ingest.gateway.grpc_streams import Fleet


@dataclass(frozen=True, slots=True)
class Tenants:
    """The fleets of all tenants; implements `grpc_streams.Fleet`. The fleet of the tenant `own` audits unknown
    peers."""

    own: str
    fleets: Mapping[str, Fleet]

    def serves(self, agent: FleetIdentity) -> bool:
        """Return whether the gateway serves the agent's tenant. Implements `Fleet`."""
        return agent.tenant in self.fleets

    def source(self, agent: FleetIdentity, name: str, epoch: int) -> ServedSource | None:
        """Implements `Fleet.source`."""
        return self.fleets[agent.tenant].source(agent, name, epoch) if self.serves(agent) else None

    def revoked(self, agent: FleetIdentity, serial: str) -> bool:
        """Implements `Fleet.revoked`. A tenant can revoke only certificates of its own agents."""
        return self.serves(agent) and self.fleets[agent.tenant].revoked(agent, serial)

    def bearer(self, token: str) -> FleetIdentity | str:
        """Return the agent to which a token belongs, or why the token is refused. Implements `Fleet`."""
        answers = [fleet.bearer(token) for fleet in self.fleets.values()]
        agents = [one for one in answers if not isinstance(one, str)]
        # prefer the answer of the fleet that knows the token
        return agents[0] if agents else max((str(one) for one in answers), key=len)

    def joined(self, agent_connection: AgentConnection, request: StreamRequest, version: str) -> None:
        """Register an agent that accepts assignments; `request` is its first message, with the field `ready`."""
        self.fleets[agent_connection.agent.tenant].joined(agent_connection, request, version)

    def heard(self, agent_connection: AgentConnection, request: StreamRequest) -> None:
        """Process a status report, or a part of the catalog, from a registered agent. Implements `Fleet`."""
        self.fleets[agent_connection.agent.tenant].heard(agent_connection, request)

    def left(self, agent_connection: AgentConnection) -> None:
        """Remove an agent whose stream has ended. Implements `Fleet`."""
        self.fleets[agent_connection.agent.tenant].left(agent_connection)

    def refused(self, entry: Mapping[str, Any], agent: FleetIdentity | None) -> None:
        """Write a refusal to the audit log; `agent` is None if the peer is unknown. Implements `Fleet`."""
        tenant = agent.tenant if agent is not None and self.serves(agent) else self.own
        self.fleets[tenant].refused(entry, agent)
