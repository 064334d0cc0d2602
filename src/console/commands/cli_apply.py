"""`tailorbird apply`: make in HBase and Solr what a topology needs."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Generator
from typing import TYPE_CHECKING, Annotated

import typer

from cdc.process.file_topology import load_topology
from cdc.topology.topology import Topology
from console.commands.cli_connected import connected_to, journal_of

if TYPE_CHECKING:
    from console.provision.apply import Outcome


def apply(
    file: Annotated[str, typer.Argument(metavar="TOPOLOGY", help="The topology's YAML file.")],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per thing, for programs.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="As `tailorbird plan`: do nothing.")] = False,
) -> None:
    """Make the tables, collections and replication peers that a topology needs; what exists is kept.

    Run it before the processes of the topology, and again after every change of the file; `tailorbird plan` says
    beforehand what there is to do, and what it costs. Cut off at any step, the next apply does what is left; a second
    one beside it is refused. Exit code 1 where a table's query was changed: its join does not go on before its state is
    made anew, and the line says by which command.

    Example: tailorbird apply topologies/shop.yml --dry-run
    """
    topology = load_topology(file)
    if dry_run:
        from console.commands.cli_plan import show_plan

        show_plan(topology, as_json=as_json)
        return
    for outcome in provision(topology):
        if as_json:
            typer.echo(json.dumps(dataclasses.asdict(outcome)))
        else:
            typer.echo(f"{outcome.done:<8}{outcome.kind:<11}{outcome.name}  ({outcome.note})")
    # imported here: `--help` should not wait for the compiler of queries
    from joins.process.kafka_changed import changed_queries

    left = changed_queries(topology)
    for name in left:
        remedy = f"tailorbird run {topology.file} --rebuild {name}"
        if as_json:
            typer.echo(json.dumps({"kind": "query", "name": name, "done": "changed", "note": remedy}))
        else:
            typer.echo(f"stale   query      {name}  (its rows are of the query it had; {remedy})")
    if left:
        raise typer.Exit(1)


def provision(topology: Topology, *, patience: float = 0.0) -> Generator[Outcome]:
    """Make what a topology lacks, yielding each outcome as it is reached; errors as in `console.provision`.

    UsageError where another apply of the topology is at work for longer than `patience` (seconds).
    """
    # imported here: HBase's and Solr's clients cost half a second, which `--help` should not
    from console.provision.apply import apply as run
    from console.provision.plan import plan

    with connected_to(topology) as (stores, client), journal_of(client, topology, patience) as journal:
        yield from run(topology, plan(topology, stores), stores, journal.at)
        journal.end()
