"""`tailorbird index rm` and `tailorbird index replay-dead-letters`."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from cdc.model.errors import UsageError
from cdc.model.naming import peer
from cdc.process.file_topology import load_topology
from cdc.topology.topology import engine_name

File = Annotated[str, typer.Argument(metavar="TOPOLOGY", help="The topology's YAML file.")]
Name = Annotated[str | None, typer.Option("--index", help="The index. Optional if there is only one.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


def remove(
    file: File,
    name: Name = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: AsJson = False,
) -> None:
    """Remove an index: its replication peer and its collections. The table remains.

    `tailorbird apply` creates the index again, with a new peer, and fills it from the table.

    Example: tailorbird index rm topologies/shop.yml --index orders
    """
    from indexer.peer.zk_registration import session
    from indexer.rebuild.zk_state import Generations, RebuildState, StoredTargets
    from indexer.run_indexer import choose_index
    from tailorbird.provision.engine_admin import admin_of
    from tailorbird.provision.hbase_admin import HBaseAdmin

    topology = load_topology(file)
    index = choose_index(topology, name)
    with session(topology.hbase.zookeeper) as client:
        generations = Generations(client)
        id_ = peer(topology.name, index.name, generations.current(topology.name, index.name))
        if running := generations.announced(id_):
            raise UsageError(f"index {index.name} is served by {', '.join(running)}", "stop its processes first")
        collections = StoredTargets(client, id_, collection=index.collection).read().collections
        if not yes:
            typer.confirm(f"Remove peer {id_} and {engine_name(index)}'s {', '.join(collections)}?", abort=True)
        with RebuildState(client, id_).lock():
            # done first, so that the name is never used again, even if this is interrupted
            generations.advance(topology.name, index.name)
            with HBaseAdmin(zookeeper=topology.hbase.zookeeper, thrift=topology.hbase.thrift) as hbase:
                had_peer = id_ in hbase.peers()
                if had_peer:
                    hbase.remove_peer(id_)
            admin = admin_of(topology, index)
            removed = [each for each in collections if admin.exists(each)]
            for each in removed:
                admin.remove(each)
    gone = [*([id_] if had_peer else []), *removed]
    result = {"index": index.name, "peer": id_ if had_peer else None, "collections": removed}
    typer.echo(json.dumps(result) if as_json else f"removed {', '.join(gone) or 'nothing: there was nothing'}")


def replay_dead_letters(
    file: File,
    name: Name = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list them.")] = False,
    as_json: AsJson = False,
) -> None:
    """Index the rows of dead-letter records again, from the current table.

    Run it after you have fixed the cause, for example a missing layout. It does the same as `tailorbird dead-letters
    replay` for the records of one index.

    Example: tailorbird index replay-dead-letters topologies/shop.yml --index orders
    """
    from indexer.run_indexer import choose_index
    from tailorbird.cli.index.cli_index_rebuild import index_again
    from tailorbird.operate.status.kafka_dead_letters import settle, waiting_dead_letters

    topology = load_topology(file)
    index = choose_index(topology, name)
    dead_letters = waiting_dead_letters(topology, "indexer", index.name)
    if dry_run:
        for one in dead_letters:
            typer.echo(json.dumps({"row": one.key, "reason": one.reason}) if as_json else f"{one.key}  {one.reason}")
        return
    counts = index_again(topology, index, [bytes.fromhex(one.key) for one in dead_letters])
    settle(topology, dead_letters, "replayed")
    result = {"letters": len(dead_letters), "rows": counts.rows, "dead_letters": counts.dead}
    typer.echo(json.dumps(result) if as_json else "; ".join(f"{key}: {value}" for key, value in result.items()))
