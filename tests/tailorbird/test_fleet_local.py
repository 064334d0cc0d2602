"""A fleet on one machine: the policy and the sources of the demo's agents."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from cdc.model.errors import UsageError
from cdc.model.polling import Poll
from cdc.process.file_topology import load_topology
from ingest.agent.file_policy import load_policy
from ingest.agent.policy import narrowed
from ingest.agent.policy_reader import read_policy
from ingest.fleet.desired import source_of, spec_of
from ingest.records.conditions import condition
from tailorbird.cli.cli_demo_fleet import DemoFleet
from tailorbird.web.fleet.file_fleet import LocalFleet, policy_of
from tests.support.ports import free_port

TOPOLOGIES = Path(__file__).parents[2] / "topologies"
SHOP = TOPOLOGIES / "shop.yml"


@pytest.mark.parametrize(("file", "agents"), [("shop", {"shop", "crm"}), ("two-engines", {"shop", "catalog", "crm"})])
def test_agents_capture_what_the_topology_says(tmp_path: Path, file: str, agents: set[str]) -> None:
    """An agent captures exactly the topology's source, under the policy that is written for it."""
    topology = load_topology(str(TOPOLOGIES / f"{file}.yml"))
    fleet = LocalFleet(
        topology=topology, folder=tmp_path / "fleet", listen=f"127.0.0.1:{free_port()}", api="127.0.0.1:1"
    )
    fleet.make()
    fleet.make()  # again: everything is recreated
    assert set(fleet.specs()) == set(fleet.sources) == agents
    for name, reported in fleet.specs().items():
        spec = spec_of(reported, topology.name, name)
        arguments = fleet.agent(name)
        policy = load_policy(arguments[arguments.index("--policy") + 1])
        found = narrowed(policy, spec, source_of(spec, topology.name, name), condition)
        assert replace(found.source, conditions=None) == replace(topology.sources[name], conditions=None)
        assert not found.restrictions
        assert (tmp_path / "fleet" / f"agent-{name}" / "policy.yml").stat().st_mode & 0o777 == 0o600
    assert str(fleet.ca) in {str(file) for file in (tmp_path / "fleet").rglob("ca.pem")}


@pytest.mark.parametrize(
    "text",
    [
        "{type: sql, url: 'sqlite:///a.db', capture: poll, database: main, interval: 100ms, tables: [t, u]}",
        "{type: syslog, database: logs, listen: {udp: '127.0.0.1:514', unix: /run/log}, tables: {messages: {}}}",
        "{type: maxscale, hostname: 127.0.0.1, username: a, password: b, database: d,"
        " tables: {t: {message_key_columns: [id]}}}",
        "{type: kafka, bootstrap_servers: 'k:9092', format: maxwell, database: d, tables: {t: {topic: x}, e.u: {topic:"
        " y, columns: {id: int}}}, security: {protocol: SASL_SSL, mechanism: PLAIN, username: a, password: b}}",
    ],
)  # fmt: skip
def test_agents_capture_every_kind_of_source(tmp_path: Path, text: str) -> None:
    """The policy contains the address, and the topics; the configuration the rest."""
    file = tmp_path / "t.yml"
    file.write_text(f"name: t\nsources: {{one: {text}}}\n")
    topology = load_topology(str(file))
    fleet = LocalFleet(topology=topology, folder=tmp_path / "fleet", listen="127.0.0.1:1", api="127.0.0.1:2")
    policy = read_policy(json.dumps(policy_of(topology.sources["one"])), file="p", environ={}, content=str)
    spec = spec_of(fleet.specs()["one"], "t", "one")
    found = narrowed(policy, spec, source_of(spec, "t", "one"), condition)
    assert found.source == topology.sources["one"]
    assert not found.restrictions


def test_the_demo_starts_a_capture_where_there_is_no_agent(tmp_path: Path) -> None:
    """Each source is captured by one process."""
    text = (TOPOLOGIES / "two-engines.yml").read_text()
    polled = text.replace("    server_id:", "    capture: poll\n    # ", 1)
    (tmp_path / "two.yml").write_text(polled)
    made = DemoFleet(load_topology(str(tmp_path / "two.yml")), tmp_path).parts()
    assert [part.name for part in made] == ["gateway", "agent catalog", "agent crm", "capture shop"]


def test_what_is_polled_has_no_agent() -> None:
    """Agents poll only what they know by a URL."""
    source = load_topology(str(SHOP)).sources["shop"]
    poll = Poll(cursor="updated_at", mode="updated_at", limit=1, interval=1.0, lag=1.0)
    with pytest.raises(UsageError, match="source shop has no log that agents read"):
        policy_of(replace(source, poll=poll))
