"""`tailorbird plan`: show the steps of an apply and their cost, like `tailorbird apply --dry-run`."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from cdc.process.file_topology import read_file
from cdc.topology.topology import Topology
from tailorbird.operate.status.selection import MOST, ListChoice


def plan(
    file: Annotated[str, typer.Argument(metavar="TOPOLOGY", help="The topology's YAML file.")],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per step, for programs.")] = False,
    search: Annotated[str, typer.Option("--search", help="Print only steps that contain all of these words.")] = "",
    limit: Annotated[int, typer.Option("--limit", min=1, help="Print at most this many steps, changes first.")] = MOST,
) -> None:
    """Show what `tailorbird apply` would do, step by step, with rows and time.

    Compares HBase's tables and peers, the stored layouts, Solr's collections and fields, Kafka's topics, and the joins'
    state on this machine. Changes nothing. Exit code 1: a step is left to do by hand, such as a join to rebuild or an
    index to reindex, or something contradicts the file and is refused.

    Example: tailorbird plan topologies/shop.yml

    Example: tailorbird plan topologies/shop.yml --json
    """
    show_plan(read_file(file, "operator"), ListChoice(search=search, limit=limit), as_json=as_json)


def show_plan(topology: Topology, selection: ListChoice, *, as_json: bool) -> None:
    """Print the plan. Raises `typer.Exit` with code 1 if steps must be done by hand."""
    # imported here: the servers' clients and the query compiler would slow down `--help`
    from tailorbird.cli.change.cli_connected import NOTHING_TO_MAKE, stores_of
    from tailorbird.deploy.plan.kafka_versions import newest_versions
    from tailorbird.deploy.plan.plan_text import lines_of, reported
    from tailorbird.deploy.plan.run_plan import planned
    from tailorbird.deploy.plan.side_by_side import choose
    from tailorbird.operate.doctor.validate import validate

    validate(topology)
    if topology.only_captures:
        typer.echo(NOTHING_TO_MAKE, err=True)
        return
    with stores_of(topology) as stores:
        found = choose(topology, newest_versions(topology), lambda one: planned(one, stores)).changes
    for line in (json.dumps(reported(one)) for one in found) if as_json else lines_of(found, selection):
        typer.echo(line)
    if any(one.by_hand for one in found):
        raise typer.Exit(1)
