"""`tailorbird index reindex`: build a second collection from the table during live indexing, then swap it in."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from cdc.model.errors import Fatal, UsageError
from cdc.model.naming import peer
from cdc.process.file_topology import load_topology
from cdc.topology.topology import Index, Topology

if TYPE_CHECKING:
    from indexer.peer.zk_registration import Client
    from indexer.rebuild.rebuild import Counts
    from indexer.rebuild.reindex import Reindex
    from indexer.rebuild.zk_state import RebuildState
    from tailorbird.operate.status.dead_letters import DeadLetterRow


def reindex(
    file: Annotated[str, typer.Argument(metavar="TOPOLOGY", help="The topology's YAML file.")],
    name: Annotated[str | None, typer.Option("--index", help="The index. Optional if there is only one.")] = None,
    throttle: Annotated[float | None, typer.Option(help="Maximum rows per second.", min=1)] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Read and map every row; write nothing.")] = False,
    rollback: Annotated[bool, typer.Option("--rollback", help="Return to the previous collection, or cancel.")] = False,
    finish: Annotated[bool, typer.Option("--finish", help="Drop the previous collection.")] = False,
    accept_difference: Annotated[
        bool, typer.Option("--accept-difference", help="Swap even if the new collection differs.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Rebuild an index from its table while everything runs, compare, and swap it in.

    If it is killed, the same command resumes. The previous collection is kept up to date until --finish or the next
    reindex. Exit code 1: the comparison failed, and nothing was swapped.

    Example: tailorbird index reindex topologies/shop.yml --index orders --throttle 5000
    """
    from indexer.run_indexer import choose_index

    topology = load_topology(file)
    index = choose_index(topology, name)
    if sum((dry_run, rollback, finish)) > 1:
        raise UsageError("--dry-run, --rollback and --finish exclude one another", "choose one")
    if dry_run:
        result = _rehearse(topology, index, throttle)
    else:
        with _locked(topology, index) as (steps, state):
            if rollback:
                result = {"index": index.name, "done": steps.rollback()}
            elif finish:
                result = {"index": index.name, "dropped": steps.finish()}
            else:
                result = _reindex(topology, index, steps, state, throttle, accept_difference)
    if as_json:
        typer.echo(json.dumps(result))
    else:
        typer.echo("; ".join(f"{key}: {value}" for key, value in result.items()))


@contextmanager
def rows_reported(title: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """Context manager: yield a function that takes numbers of processed rows. A terminal shows a progress bar."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), disable=not sys.stderr.isatty()) as bars:
        task = bars.add_task(title, total=total)
        yield lambda rows: bars.advance(task, rows)


def _rehearse(topology: Topology, index: Index, throttle: float | None) -> dict[str, Any]:
    from indexer.rebuild.rebuild import MemoryState
    from tailorbird.provision.run_rebuild import Rebuilder

    with rows_reported(f"rehearse {index.name}", Rebuilder(topology, index).expected()) as reported:
        counts = Rebuilder(topology, index, reported=reported).rehearse(MemoryState(), rows_per_second=throttle)
    return {"index": index.name, "rows": counts.rows, "dead_letters": counts.dead, "swapped": False}


def _reindex(
    topology: Topology, index: Index, steps: Reindex, state: RebuildState, throttle: float | None, accept: bool
) -> dict[str, Any]:
    from tailorbird.operate.status.kafka_dead_letters import settle
    from tailorbird.provision.run_rebuild import Rebuilder, wait_for_collection

    if steps.settle():
        return {"index": index.name, "swapped": True, "note": "finished an interrupted swap"}
    new = steps.prepare()
    wait_for_collection(topology, index, new, seconds=30)
    dead_letters = _dead_letters_before(topology, index, state)
    with rows_reported(f"reindex {index.name}", Rebuilder(topology, index).expected()) as reported:
        rebuilder = Rebuilder(topology, index, reported=reported)
        counts = rebuilder.fill(new, state, rows_per_second=throttle)
    difference = rebuilder.compare(new)
    if difference and not accept:
        raise Fatal(
            f"not swapped: {difference}",
            "--accept-difference swaps anyway, if you know that the old collection is wrong; "
            "--rollback discards the new one",
        )
    kept = steps.swap(new)
    settle(topology, dead_letters, "reindexed")
    return {
        "index": index.name,
        "rows": counts.rows,
        "dead_letters": counts.dead,
        "swapped": True,
        "difference": difference or None,
        "kept": kept,
    }


def _dead_letters_before(topology: Topology, index: Index, state: RebuildState) -> list[DeadLetterRow]:
    """Return the index's open dead-letter records, which this rebuild settles.

    For a resumed rebuild the list is empty, because it could include records of the rebuild itself."""
    from tailorbird.operate.status.kafka_dead_letters import waiting_dead_letters

    return [] if (state.read() or {}).get("buckets") else waiting_dead_letters(topology, "indexer", index.name)


def index_again(topology: Topology, index: Index, rows: Sequence[bytes]) -> Counts:
    """Index the current state of some rows of the table. Rows that are refused again become new dead-letter records."""
    from indexer.peer.zk_registration import session
    from indexer.rebuild.zk_state import Generations, StoredTargets
    from tailorbird.provision.run_rebuild import Rebuilder

    with session(topology.hbase.zookeeper) as client, rows_reported(f"replay {index.name}", len(rows)) as reported:
        id_ = peer(topology.name, index.name, Generations(client).current(topology.name, index.name))
        targets = StoredTargets(client, id_, collection=index.collection).read()
        return Rebuilder(topology, index, reported=reported).replay(rows, targets.collections)


@contextmanager
def _locked(topology: Topology, index: Index) -> Iterator[tuple[Reindex, RebuildState]]:
    """Context manager: lock an index against other rebuilds. Yield the rebuild's steps and its stored state."""
    from indexer.peer.zk_registration import session
    from indexer.rebuild.reindex import Reindex
    from indexer.rebuild.zk_state import Generations, RebuildState, StoredTargets
    from tailorbird.provision.engine_admin import admin_of

    with session(topology.hbase.zookeeper) as client:
        name = peer(topology.name, index.name, Generations(client).current(topology.name, index.name))
        state = RebuildState(client, name)
        targets = StoredTargets(client, name, collection=index.collection)
        admin = admin_of(topology, index)
        with state.lock():
            yield Reindex(targets, state, admin, live=index.collection, shards=index.shards), state


class StoredBackfills:
    """Fills a new index with the existing rows of its table (implements a protocol of `provision.apply`).

    A note in ZooKeeper records that the index must be filled, so that an interrupted fill is resumed."""

    def __init__(self, topology: Topology, client: Client) -> None:
        self._topology, self._client = topology, client

    def note(self, index: Index, peer: str) -> None:
        """Store in ZooKeeper that the index must be filled."""
        self._state(peer).write({"collection": index.collection, "buckets": {}})

    def noted(self, index: Index, peer: str) -> bool:
        """Return whether the index must still be filled."""
        stored = self._state(peer).read()
        return stored is not None and stored["collection"] == index.collection

    def run(self, index: Index, peer: str) -> str:
        """Fill the index and delete the note. Return a summary for the user."""
        from tailorbird.provision.run_rebuild import Rebuilder, wait_for_collection

        state = self._state(peer)
        with state.lock(), rows_reported(f"fill {index.collection}", None) as reported:
            wait_for_collection(self._topology, index, index.collection, seconds=30)
            counts = Rebuilder(self._topology, index, reported=reported).fill(index.collection, state)
            state.clear()
        return f"{counts.rows} rows" + (f", {counts.dead} of them dead letters" if counts.dead else "")

    def _state(self, peer: str) -> RebuildState:
        from indexer.rebuild.zk_state import RebuildState

        return RebuildState(self._client, peer)
