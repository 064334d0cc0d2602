"""`tailorbird status`: a topology's indexes, and the peers that make HBase keep logs."""

from __future__ import annotations

import dataclasses
import json
import time
from typing import Annotated

import typer

from cdc.process.file_topology import load_topology
from cdc.words.errors import Retriable


def status(
    file: Annotated[str, typer.Argument(metavar="TOPOLOGY", help="The topology's YAML file.")],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per index, for programs.")] = False,
) -> None:
    """Say of each index who serves it and how far behind it is, and which replication peers lie idle.

    Exit code 1 when an index is not served, or a peer belongs to none.

    Example: tailorbird status topologies/shop.yml
    """
    from console.provision.hbase_admin import HBaseAdmin
    from console.status.index_status import index_statuses
    from indexer.peer.zk_registration import session
    from indexer.rebuild.zk_state import Generations, StoredTargets
    from indexer.solr.solr_collection import visible_stamp

    def visible_ms(collection: str) -> int | None:
        try:
            return visible_stamp(topology.solr, collection)
        except Retriable as error:
            # peers lie idle all the more while Solr is away
            typer.echo(str(error), err=True)
            return None

    topology = load_topology(file)
    hbase = topology.hbase
    with session(hbase.zookeeper) as client, HBaseAdmin(zookeeper=hbase.zookeeper, thrift=hbase.thrift) as admin:
        generations = Generations(client)
        found = index_statuses(
            topology,
            admin.peers(),
            generation=lambda index: generations.current(topology.name, index),
            announced=generations.announced,
            collections=lambda peer, live: StoredTargets(client, peer, collection=live).read().collections,
            visible_ms=visible_ms,
            now_ms=time.time_ns() // 1_000_000,
        )
    for each in found:
        if as_json:
            typer.echo(json.dumps(dataclasses.asdict(each)))
            continue
        behind = "" if each.behind is None else f", last full cut {each.behind:.1f} s ago"
        name = f"index {each.index}" if each.index else "peer"
        typer.echo(f"{each.state:<9}{name}  (peer {each.peer}, {len(each.processes)} processes{behind})")
        if each.remedy:
            typer.echo(f"         {each.remedy}")
    if any(each.state != "serving" for each in found):
        raise typer.Exit(1)
