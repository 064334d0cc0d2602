"""`tailorbird versions`: which versions of tables run."""

from __future__ import annotations

import json
from typing import Annotated

import typer


def versions(
    file: Annotated[str, typer.Argument(metavar="TOPOLOGY", help="The topology's YAML file.")],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object, for programs.")] = False,
) -> None:
    """Show the versions of all tables, and store them on this machine.

    Processes read the versions from TAILORBIRD_HOME. `tailorbird apply` stores them in Kafka and on its own machine.
    Run this command on another machine, or in another container, before its processes start. An unapplied topology has
    no versions.

    Example: tailorbird versions topologies/shop.yml
    """
    from cdc.process.file_topology import read_file
    from cdc.process.kafka_grants import granted
    from tailorbird.deploy.plan.kafka_versions import newest_versions

    topology = read_file(file, "console")
    granted(topology, "console")
    found = newest_versions(topology).tables
    if as_json:
        shown = {name: {"serving": one.serving, "running": list(one.live)} for name, one in found.items()}
        typer.echo(json.dumps(shown))
        return
    for name, one in found.items():
        typer.echo(f"{name}: version {one.serving} serves, {', '.join(map(str, one.live))} running")
