"""A fleet on one machine: the policy and the sources of the demo's agents."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from cdc.model.errors import UsageError
from cdc.process.file_topology import load_topology
from ingest.agent.file_policy import load_policy
from ingest.agent.policy import narrowed
from ingest.fleet.desired import source_of, spec_of
from ingest.records.conditions import condition
from tailorbird.cli.cli_demo_fleet import DemoFleet
from tailorbird.web.fleet.file_fleet import LocalFleet, policy_of
from tests.support.ports import free_port

TOPOLOGIES = Path(__file__).parents[2] / "topologies"
SHOP = TOPOLOGIES / "shop.yml"


@pytest.mark.parametrize(("file", "agents"), [("shop", {"shop", "crm"}), ("two-engines", {"shop", "catalog"})])
def test_agents_capture_what_the_topology_says(tmp_path: Path, file: str, agents: set[str]) -> None:
    """An agent captures exactly the topology's source, under the policy that is written for it.

    A topic that another system writes has no agent.
    """
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


def test_the_demo_starts_a_capture_where_there_is_no_agent(tmp_path: Path) -> None:
    """Each source is captured by one process."""
    made = DemoFleet(load_topology(str(TOPOLOGIES / "two-engines.yml")), tmp_path).parts()
    assert [part.name for part in made] == ["gateway", "agent shop", "agent catalog", "capture crm"]


def test_what_is_polled_has_no_agent() -> None:
    """Agents read logs."""
    source = load_topology(str(SHOP)).sources["shop"]
    with pytest.raises(UsageError, match="source shop has no log that agents read"):
        policy_of(replace(source, type="sql"))
