"""What a topology's file wants of its fleet: sources with `agent:`, as `tailorbird apply` writes them; pure."""

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
    """A source's configuration as the file has it, and whether the fleet has none yet, another one, or this one."""

    source: str
    reported: Mapping[str, Any]
    done: Literal["made", "changed", "kept"]
    note: str


def wanted(topology: Topology, said: Mapping[str, Mapping[str, Any]], state: FleetState) -> Iterator[WantedSource]:
    """Each source that agents capture; `said` is what the file says of it, without address and login.

    What operators command beside the file holds until the next apply, but for whether a source runs. UsageError where
    a label is nobody's, or a configuration is none.
    """
    for name, source in topology.sources.items():
        if source.agent is None:
            continue
        held = state.spec(name)
        running = {} if held is None else {"running": held.running}
        reported = {
            **said[name], **running, "agents": agents_of(name, source.agent, state),
            "connection": source.agent.connection,
        }  # fmt: skip
        now = orjson.dumps(spec_of(reported, topology.name, name).to_json())
        same = held is not None and orjson.loads(now) == orjson.loads(orjson.dumps(held.to_json()))
        done: Literal["made", "changed", "kept"] = "made" if held is None else "kept" if same else "changed"
        yield WantedSource(source=name, reported=reported, done=done, note=f"by {' or '.join(reported['agents'])}")


def agents_of(source: str, choice: AgentChoice, state: FleetState) -> list[str]:
    """The agents that are chosen: by name, or those that have told all the labels when they dialled last."""
    if choice.names:
        return list(choice.names)
    found = [
        name for name, one in sorted(state.presences.items())
        if choice.labels.items() <= dict(one.labels or {}).items()
    ]  # fmt: skip
    if not found:
        labels = ", ".join(f"{name}={said}" for name, said in choice.labels.items())
        raise UsageError(
            f"source {source}: no agent with {labels} has dialled", "start it, and apply again: its policy has labels"
        )
    return found
