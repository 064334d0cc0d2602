"""`tailorbird apply`: make in HBase and Solr what a topology needs."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from cdc.process.file_topology import load_topology
from cdc.topology.topology import Topology

if TYPE_CHECKING:
    from console.provision.apply import Outcome


def apply(
    file: Annotated[str, typer.Argument(metavar="TOPOLOGY", help="The topology's YAML file.")],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per thing, for programs.")] = False,
) -> None:
    """Make the tables, collections and replication peers that a topology needs; what exists is kept.

    Run it before the processes of the topology, and again after every change of the file.

    Example: tailorbird apply topologies/shop.yml
    """
    for outcome in provision(load_topology(file)):
        if as_json:
            typer.echo(json.dumps(dataclasses.asdict(outcome)))
        else:
            typer.echo(f"{outcome.done:<8}{outcome.kind:<11}{outcome.name}  ({outcome.note})")


def provision(topology: Topology) -> Iterator[Outcome]:
    """Make what a topology lacks, yielding each outcome as it is reached; errors as in
    `console.provision.apply.apply`.
    """
    # imported here: HBase's and Solr's clients cost half a second, which `--help` should not
    from console.commands.index.cli_index_rebuild import StoredBackfills
    from console.provision.apply import apply as apply_topology
    from console.provision.hbase_admin import HBaseAdmin
    from console.provision.solr_cloud import admin_of
    from indexer.peer.zk_registration import cluster_key, session
    from indexer.rebuild.zk_state import Generations

    zookeeper = topology.hbase.zookeeper
    with (
        HBaseAdmin(zookeeper=zookeeper, thrift=topology.hbase.thrift) as hbase,
        session(zookeeper) as client,
    ):
        yield from apply_topology(
            topology,
            tables=hbase,
            peers=hbase,
            collections=lambda: admin_of(topology.solr),
            names=Generations(client),
            backfills=StoredBackfills(topology, client),
            cluster_key=lambda peer: cluster_key(zookeeper, peer),
        )
