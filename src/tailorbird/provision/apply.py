"""Run the steps that create a topology's objects in HBase and Solr (`tailorbird.provision.plan`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from cdc.model.errors import Retriable
from cdc.topology.topology import Topology, engine_name
from tailorbird.provision.plan import (
    AdvancePeerName,
    Backfill,
    Keep,
    Kind,
    MakeCollection,
    MakeNamespace,
    MakePeer,
    MakeTable,
    NoteBackfill,
    Replicate,
    Step,
)
from tailorbird.provision.stores import Stores

Done = Literal["made", "kept", "changed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """An object that the topology needs, and what was done: it was created or changed, or existed already."""

    kind: Kind
    name: str
    done: Done
    note: str


def outcome_of(step: Step) -> Outcome | None:
    """Return the outcome that a step reports. None for a step that only prepares another one."""
    match step:
        case Keep():
            return Outcome(kind=step.kind, name=step.name, done="kept", note=step.note)
        case MakeNamespace():
            return Outcome(kind="namespace", name=step.name, done="made", note="in HBase")
        case MakeTable():
            return Outcome(kind="table", name=step.spec.name, done="made", note=step.note)
        case Replicate():
            return Outcome(kind="table", name=step.table, done="changed", note=step.note)
        case MakeCollection():
            note = f"in {engine_name(step.index)}"
            return Outcome(kind="collection", name=step.index.collection, done="made", note=note)
        case MakePeer():
            return Outcome(kind="peer", name=step.spec.id, done="made", note=f"serial, of {step.spec.tables[0]}")
        case Backfill():
            return Outcome(kind="backfill", name=step.index.collection, done="made", note=f"scan of {step.index.table}")
        case AdvancePeerName() | NoteBackfill():
            return None


def doing(step: Step) -> str:
    """Return a short description of a step, for the journal and messages."""
    if isinstance(step, AdvancePeerName | NoteBackfill):
        return f"the peer of index {step.index if isinstance(step, AdvancePeerName) else step.index.name}"
    outcome = outcome_of(step)
    return f"{outcome.kind} {outcome.name}" if outcome else type(step).__name__


def apply(
    topology: Topology,
    steps: Sequence[Step],
    stores: Stores,
    at: Callable[[int, int, str], None] = lambda number, of, doing: None,
) -> Iterator[Outcome]:
    """Run the steps of a plan for a topology, and yield each outcome.

    `at` is called before each step with its number, the number of steps and a description (`journal.Journal.at`).
    Raises Retriable if a server is unavailable, or if another apply runs at the same time."""
    for number, step in enumerate(steps, 1):
        at(number, len(steps), doing(step))
        note = _run(topology, step, stores)
        outcome = outcome_of(step)
        if outcome is not None:
            yield Outcome(kind=outcome.kind, name=outcome.name, done=outcome.done, note=note or outcome.note)


def _run(topology: Topology, step: Step, stores: Stores) -> str:
    """Run one step. Return a note for the user, or an empty text."""
    match step:
        case Keep():
            if step.peer:
                stores.names.mark_made(step.name)
        case MakeNamespace():
            stores.tables.create_namespace(step.name)
        case MakeTable():
            stores.tables.create_table(step.spec)
        case Replicate():
            for family in step.families:
                stores.tables.replicate(step.table, family)
        case AdvancePeerName():
            if stores.names.advance(topology.name, step.index) != step.generation:
                raise Retriable(
                    f"the peer of index {step.index} was renamed concurrently", "run `tailorbird apply` again"
                )
        case NoteBackfill():
            stores.backfills.note(step.index, step.peer)
        case MakeCollection():
            stores.collections(step.index).create(step.index.collection, shards=step.index.shards)
        case MakePeer():
            stores.peers.add_peer(step.spec)
            stores.names.mark_made(step.spec.id)
        case Backfill():
            return stores.backfills.run(step.index, step.peer)
    return ""
