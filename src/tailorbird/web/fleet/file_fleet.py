"""Create a local fleet for a topology in a folder: an authority, a gateway, and an agent with a policy per source.

MySQL and MariaDB tables that are polled have none: agents read their log.
It serves the demo and first trials. All keys are in one folder, which a fleet of several machines must avoid."""

from __future__ import annotations

import os
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import orjson
import yaml

from cdc.model.errors import UsageError
from cdc.model.tls import SecuredAddress
from cdc.topology.topology import Source, Topology
from ingest.fleet.desired import LOCAL, TOPIC
from ingest.fleet.identity import FleetIdentity
from tailorbird.web.fleet.file_ca import init, issue

TENANT, GATEWAY = "local", "gateway"


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalFleet:
    """A local fleet in a folder. `listen` and `api` are the gateway's addresses (host:port) for agents and
    operators."""

    topology: Topology
    folder: Path
    listen: str
    api: str

    @property
    def ca(self) -> Path:
        """Return the path of the authority's certificate, by which clients verify the gateway."""
        return self.folder / "authority" / "ca.pem"

    @property
    def sources(self) -> dict[str, Source]:
        """Return the sources that agents capture, by name."""
        return {name: one for name, one in self.topology.sources.items() if _has_agent(one)}

    def make(self) -> None:
        """Create all files, replacing old ones."""
        shutil.rmtree(self.folder, ignore_errors=True)
        init(self.folder / "authority", TENANT)
        issue(self.folder / "authority", FleetIdentity(TENANT, "gateways", GATEWAY), self.folder / GATEWAY,
              hosts=["127.0.0.1"])  # fmt: skip
        for source in self.sources.values():
            into = self.folder / agent_of(source.name)
            issue(self.folder / "authority", FleetIdentity(TENANT, "agents", agent_of(source.name)), into)
            with os.fdopen(os.open(into / "policy.yml", os.O_WRONLY | os.O_CREAT, 0o600), "wb") as file:
                file.write(orjson.dumps(policy_of(source)))  # JSON is YAML

    def gateway(self) -> tuple[str, ...]:
        """Return the command that starts the gateway."""
        identity = str(self.folder / GATEWAY)
        return ("gateway", self.topology.file, "--listen", self.listen, "--identity", identity, "--api", self.api)

    def agent(self, source: str) -> tuple[str, ...]:
        """Return the command that starts the agent of a source."""
        own = self.folder / agent_of(source)
        return ("agent", "--gateway", self.listen, "--identity", str(own), "--policy", str(own / "policy.yml"))

    def specs(self) -> dict[str, dict[str, Any]]:
        """Return the configuration of each source that an agent captures, as in the topology's file."""
        declared = declared_sources(self.topology)
        return {
            name: {**declared[name], "agents": [agent_of(name)], "connection": name.replace("_", "-")}
            for name in self.sources
        }


def agent_of(source: str) -> str:
    """Return the name of the agent of a source."""
    return f"agent-{source.replace('_', '-')}"


def _has_agent(source: Source) -> bool:
    return source.type == "sql" or source.poll is None


def policy_of(source: Source) -> dict[str, Any]:
    """Return a policy that allows what the topology captures: all tables of the source's databases, with snapshots,
    its replication id and its interval.

    Raises UsageError for a source that agents cannot capture."""
    if not _has_agent(source):
        what = f"source {source.name} has no log that agents read"
        raise UsageError(what, "use `type: sql` with its URL: agents read the log of MySQL and MariaDB")
    connection: dict[str, Any] = {
        "type": source.type, **_address(source), "databases": dict.fromkeys(sorted(source.databases), "all"),
    }  # fmt: skip
    if source.mirror is not None:
        topics = {table: {"topic": topic} for table, topic in source.mirror.topics.items()}
        connection["databases"] = {
            database: {"tables": {table.table: one for table, one in topics.items() if table.database == database}}
            for database in sorted({table.database for table in topics})
        }
    locks = source.snapshot_locking_mode != "none"
    limits: dict[str, Any] = {"server_ids": f"{source.server_id}-{source.server_id}"} if source.server_id else {}
    if source.poll is not None:
        limits["poll_interval_ms"] = max(1, int(source.poll.interval * 1000))
        limits |= {"poll_lag_ms": max(1, int(source.poll.lag * 1000) + 1), "poll_rows": source.poll.limit}
    return {
        "dumps": True, "locks": locks, "limits": limits, "connections": {source.name.replace("_", "-"): connection},
    }  # fmt: skip


def _address(source: Source) -> dict[str, Any]:
    """Return the address of a source as keys of a policy's connection."""
    if source.url:
        return {"url": source.url}
    if source.listen is not None:
        udp, tcp = (f"{one[0]}:{one[1]}" if one else None for one in (source.listen.udp, source.listen.tcp))
        given = {"udp": udp, "tcp": tcp, "unix": source.listen.unix or None}
        return {"listen": {key: value for key, value in given.items() if value}}
    if source.mirror is not None:
        brokers = source.mirror.brokers
        security = asdict(brokers.security) if brokers.security is not None else {}
        given = {key: value for key, value in security.items() if value is not None}
        shown = {"bootstrap_servers": brokers.servers, "format": source.mirror.form}
        return {**shown, **({"security": given} if given else {})}
    return {
        "hostname": source.hostname, "port": source.port, "username": source.username, "password": source.password,
        **source.tls.settings(), **({"dbname": source.dbname} if source.dbname else {}), **_replica(source.snapshot),
    }  # fmt: skip


def _replica(replica: SecuredAddress | None) -> dict[str, Any]:
    if replica is None:
        return {}
    return {"snapshot": {"hostname": replica.hostname, "port": replica.port, **replica.tls.settings()}}


def declared_sources(topology: Topology) -> dict[str, dict[str, Any]]:
    """Return each source's configuration in the topology's file, without address, login, topics and agent."""
    reported = yaml.safe_load(Path(topology.file).read_text(encoding="utf-8"))["sources"]
    found = {
        name: {key: value for key, value in one.items() if key not in {*LOCAL, "agent"}}
        for name, one in reported.items()
    }
    for one in found.values():
        if one.get("type") == "kafka":
            one["tables"] = {
                table: {key: value for key, value in options.items() if key != TOPIC}
                for table, options in one["tables"].items()
            }
    return found
