"""A fleet over a topology on one machine, in a folder: authority, gateway, an agent for each source with its policy.

For the demo and for trying it out: everybody's keys lie side by side, which a fleet of several machines must not do.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import yaml

from cdc.model.errors import UsageError
from cdc.topology.topology import Source, Topology
from ingest.fleet.desired import LOCAL
from ingest.fleet.identity import FleetIdentity
from tailorbird.web.fleet.file_ca import init, issue

TENANT, GATEWAY = "local", "gateway"


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalFleet:
    """What is in the folder, and at which addresses (host:port) the gateway serves agents and operators."""

    topology: Topology
    folder: Path
    listen: str
    api: str

    @property
    def ca(self) -> Path:
        """What the gateway is known by."""
        return self.folder / "authority" / "ca.pem"

    def make(self) -> None:
        """Everything anew; UsageError for a source that an agent can not capture."""
        shutil.rmtree(self.folder, ignore_errors=True)
        init(self.folder / "authority", TENANT)
        issue(self.folder / "authority", FleetIdentity(TENANT, "gateways", GATEWAY), self.folder / GATEWAY,
              hosts=["127.0.0.1"])  # fmt: skip
        for source in self.topology.sources.values():
            into = self.folder / agent_of(source.name)
            issue(self.folder / "authority", FleetIdentity(TENANT, "agents", agent_of(source.name)), into)
            with os.fdopen(os.open(into / "policy.yml", os.O_WRONLY | os.O_CREAT, 0o600), "wb") as file:
                file.write(orjson.dumps(policy_of(source)))  # JSON is YAML

    def gateway(self) -> tuple[str, ...]:
        """What starts the gateway."""
        identity = str(self.folder / GATEWAY)
        return ("gateway", self.topology.file, "--listen", self.listen, "--identity", identity, "--api", self.api)

    def agent(self, source: str) -> tuple[str, ...]:
        """What starts the agent of a source."""
        own = self.folder / agent_of(source)
        return ("agent", "--gateway", self.listen, "--identity", str(own), "--policy", str(own / "policy.yml"))

    def specs(self) -> dict[str, dict[str, Any]]:
        """The configuration of each source, as the topology's file has it."""
        return {
            name: {**said, "agents": [agent_of(name)], "connection": name.replace("_", "-")}
            for name, said in said_of(self.topology).items()
        }


def agent_of(source: str) -> str:
    """The agent of a source."""
    return f"agent-{source.replace('_', '-')}"


def policy_of(source: Source) -> dict[str, Any]:
    """A policy that lets out what the topology captures: its databases, whole; tables may be read."""
    if source.type == "sql" or source.poll is not None:
        raise UsageError(f"source {source.name} is polled", "agents read the logs of MySQL and MariaDB")
    connection = {
        "type": source.type, "hostname": source.hostname, "port": source.port, "username": source.username,
        "password": source.password, "ssl_mode": source.ssl_mode,
        "databases": dict.fromkeys(sorted(source.databases), "all"),
    }  # fmt: skip
    locks = source.snapshot_locking_mode != "none"
    return {"dumps": True, "locks": locks, "connections": {source.name.replace("_", "-"): connection}}


def said_of(topology: Topology) -> dict[str, dict[str, Any]]:
    """What the topology's file says of each source, but where it is, who reads it, and which agent."""
    reported = yaml.safe_load(Path(topology.file).read_text(encoding="utf-8"))["sources"]
    return {
        name: {key: value for key, value in one.items() if key not in {*LOCAL, "agent"}}
        for name, one in reported.items()
    }
