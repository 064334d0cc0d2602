"""Publish the configurations of sources that agents capture to the fleet's gateways, through Kafka."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Literal

import typer

from cdc.topology.topology import Topology


def sources(topology: Topology, *, dry_run: bool) -> Iterator[tuple[str, Literal["made", "changed", "kept"], str]]:
    """Publish the configurations, or with `dry_run` only compare them. Yield (source, action, names of its agents)."""
    if all(source.agent is None for source in topology.sources.values()):
        return
    # imported here: only a fleet needs gRPC
    from tailorbird.web.fleet.kafka_fleet import written

    for one in written(topology, dry_run=dry_run):
        yield one.source, one.done, one.note


def write_sources(topology: Topology, *, as_json: bool) -> None:
    """Publish the configurations and print a line for each. Raises Retriable while Kafka is unavailable."""
    for name, done, note in sources(topology, dry_run=False):
        if as_json:
            typer.echo(json.dumps({"kind": "source", "name": name, "done": done, "note": note}))
        else:
            typer.echo(f"{done:<8}source     {name}  ({note})")
