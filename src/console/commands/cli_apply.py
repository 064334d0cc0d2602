"""`tailorbird apply`: make in HBase and Solr what a topology needs."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from cdc.process.file_topology import load_topology
from cdc.topology.topology import Topology

if TYPE_CHECKING:
    from console.provision.apply import Outcome
    from console.provision.stores import Stores

_WOULD = {"made": "make", "kept": "keep", "changed": "change"}


def apply(
    file: Annotated[str, typer.Argument(metavar="TOPOLOGY", help="The topology's YAML file.")],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per thing, for programs.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be made, and do nothing.")] = False,
) -> None:
    """Make the tables, collections and replication peers that a topology needs; what exists is kept.

    Sources with `agent:` are written into the fleet's topic, where their gateways find them (docs/fleet.md).

    Run it before the processes of the topology, and again after every change of the file. Exit code 1 where a table's
    query was changed: its join does not go on before its state is made anew, and the line says by which command.

    Example: tailorbird apply topologies/shop.yml --dry-run
    """
    topology = load_topology(file)
    for outcome in planned(topology) if dry_run else provision(topology):
        if as_json:
            told = {**dataclasses.asdict(outcome), **({"dry_run": True} if dry_run else {})}
            typer.echo(json.dumps(told))
        else:
            done = _WOULD[outcome.done] if dry_run else outcome.done
            typer.echo(f"{done:<8}{outcome.kind:<11}{outcome.name}  ({outcome.note})")
    for name, done, note in sources(topology, dry_run=dry_run):
        if as_json:
            told = {"kind": "source", "name": name, "done": done, "note": note}
            typer.echo(json.dumps({**told, **({"dry_run": True} if dry_run else {})}))
        else:
            typer.echo(f"{_WOULD[done] if dry_run else done:<8}source     {name}  ({note})")
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

    with _stores(topology) as stores:
        yield from run(topology, plan(topology, stores), stores)


def planned(topology: Topology) -> Iterator[Outcome]:
    """What `provision` would yield."""
    from console.provision.apply import outcome_of
    from console.provision.plan import plan

    with _stores(topology) as stores:
        yield from (outcome for step in plan(topology, stores) if (outcome := outcome_of(step)) is not None)


def sources(topology: Topology, *, dry_run: bool) -> Iterator[tuple[str, Literal["made", "changed", "kept"], str]]:
    """Write the configurations of sources that agents capture; name, what was done, by whom it is captured."""
    if all(source.agent is None for source in topology.sources.values()):
        return
    # imported here: a fleet needs gRPC, which other topologies do not
    from console.fleet.kafka_fleet import written

    for one in written(topology, dry_run=dry_run):
        yield one.source, one.done, one.note


@contextmanager
def _stores(topology: Topology) -> Iterator[Stores]:
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
