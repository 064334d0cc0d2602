"""The sources that a fleet should have by the topology's file (those with `agent:`), as `tailorbird apply` writes
them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import orjson

from cdc.model.errors import UsageError
from cdc.topology.topology import AgentChoice, Topology
from ingest.fleet.desired import spec_of
from ingest.fleet.state import FleetState


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedSource:
    """A source's configuration in the file. `done` says whether the fleet had none, another one, or the same one.

    `reported` is the configuration, `note` is shown to the user."""

    source: str
    reported: Mapping[str, Any]
    done: Literal["made", "changed", "kept"]
    note: str


def wanted(topology: Topology, declared: Mapping[str, Mapping[str, Any]], state: FleetState) -> Iterator[WantedSource]:
    """Yield each source that agents capture. `declared` are the configurations in the file, without address and
    login.

    An apply overrides earlier commands of operators, but never starts or stops a source. Raises UsageError if no
    agent has a label, or a configuration is invalid."""
    for name, source in topology.sources.items():
        if source.agent is None:
            continue
        held = state.spec(name)
        running = {} if held is None else {"running": held.running}
        reported = {
            **declared[name], **running, "agents": agents_of(name, source.agent, state),
            "connection": source.agent.connection,
        }  # fmt: skip
        now = orjson.dumps(spec_of(reported, topology.name, name).to_json())
        same = held is not None and orjson.loads(now) == orjson.loads(orjson.dumps(held.to_json()))
        done: Literal["made", "changed", "kept"] = "made" if held is None else "kept" if same else "changed"
        yield WantedSource(source=name, reported=reported, done=done, note=f"by {' or '.join(reported['agents'])}")


def agents_of(source: str, choice: AgentChoice, state: FleetState) -> list[str]:
    """Return the agents that a source's `agent:` selects: by name, or by the labels of their last connection.

    Raises UsageError if no agent has connected with these labels."""
    if choice.names:
        return list(choice.names)
    found = [
        name for name, one in sorted(state.presences.items())
        if choice.labels.items() <= dict(one.labels or {}).items()
    ]  # fmt: skip
    if not found:
        labels = ", ".join(f"{name}={value}" for name, value in choice.labels.items())
        raise UsageError(
            f"source {source}: no agent with {labels} has connected",
            "start it, and apply again: its policy contains its labels",
        )
    return found
