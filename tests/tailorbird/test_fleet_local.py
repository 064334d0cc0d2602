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
from tailorbird.web.fleet.file_fleet import LocalFleet, policy_of
from tests.support.ports import free_port

SHOP = Path(__file__).parents[2] / "topologies" / "shop.yml"


def test_agents_capture_what_the_topology_says(tmp_path: Path) -> None:
    """An agent captures exactly the topology's source, under the policy that is written for it."""
    topology = load_topology(str(SHOP))
    fleet = LocalFleet(
        topology=topology, folder=tmp_path / "fleet", listen=f"127.0.0.1:{free_port()}", api="127.0.0.1:1"
    )
    fleet.make()
    fleet.make()  # again: everything is recreated
    for name, reported in fleet.specs().items():
        spec = spec_of(reported, topology.name, name)
        arguments = fleet.agent(name)
        policy = load_policy(arguments[arguments.index("--policy") + 1])
        found = narrowed(policy, spec, source_of(spec, topology.name, name), condition)
        assert replace(found.source, conditions=None) == replace(topology.sources[name], conditions=None)
        assert not found.restrictions
        assert (tmp_path / "fleet" / f"agent-{name}" / "policy.yml").stat().st_mode & 0o777 == 0o600
    assert str(fleet.ca) in {str(file) for file in (tmp_path / "fleet").rglob("ca.pem")}


def test_what_is_polled_has_no_agent() -> None:
    """Agents read logs."""
    source = load_topology(str(SHOP)).sources["shop"]
    with pytest.raises(UsageError, match="source shop is polled"):
        policy_of(replace(source, type="sql"))
