"""`tailorbird apply`: make in HBase and Solr what a topology needs."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from cdc.process.file_topology import load_topology
from cdc.topology.topology import Topology

if TYPE_CHECKING:
    from console.provision.apply import Outcome
    from console.provision.stores import Stores


def apply(
    file: Annotated[str, typer.Argument(metavar="TOPOLOGY", help="The topology's YAML file.")],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per thing, for programs.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="As `tailorbird plan`: do nothing.")] = False,
) -> None:
    """Make the tables, collections and replication peers that a topology needs; what exists is kept.

    Run it before the processes of the topology, and again after every change of the file. Exit code 1 where a table's
    query was changed: its join does not go on before its state is made anew, and the line says by which command.
    `tailorbird plan` says beforehand what there is to do, and what it costs.

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


def provision(topology: Topology) -> Iterator[Outcome]:
    """Make what a topology lacks, yielding each outcome as it is reached; errors as in `console.provision`."""
    # imported here: HBase's and Solr's clients cost half a second, which `--help` should not
    from console.provision.apply import apply as run
    from console.provision.plan import plan

    with stores_of(topology) as stores:
        yield from run(topology, plan(topology, stores), stores)


@contextmanager
def stores_of(topology: Topology) -> Iterator[Stores]:
    """The servers of a topology, connected while the block runs."""
    from console.commands.index.cli_index_rebuild import StoredBackfills
    from console.provision.hbase_admin import HBaseAdmin
    from console.provision.solr_cloud import admin_of
    from console.provision.stores import Stores
    from indexer.peer.zk_registration import cluster_key, session
    from indexer.rebuild.zk_state import Generations

    zookeeper = topology.hbase.zookeeper
    with (
        HBaseAdmin(zookeeper=zookeeper, thrift=topology.hbase.thrift) as hbase,
        session(zookeeper) as client,
    ):
        yield Stores(
            tables=hbase,
            peers=hbase,
            collections=lambda: admin_of(topology.solr),
            names=Generations(client),
            backfills=StoredBackfills(topology, client),
            cluster_key=lambda peer: cluster_key(zookeeper, peer),
        )
