"""Roll out the versions of a topology's tables, step by step. Servers are accessed through `RolloutActions`.

A changed table gets a new version, which is built alongside the old one. A version goes through four states: its
objects are created, it is stored in Kafka, the processes build it, and queries are swapped to it. The next apply
repeats an interrupted step, and continues from the stored versions and the running system."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from cdc.model.errors import UsageError
from cdc.topology.topology import Index, Topology
from cdc.topology.versions import TableVersions, Versions, in_versions
from joins.process.declared import named_by, recorded
from tailorbird.deploy.plan.side_by_side import VersionChoice

IndexVersions = Mapping[str, Mapping[int, Index]]


class RolloutActions(Protocol):
    """Actions on servers, which may all be repeated (tailorbird.cli.change.cli_versions).

    - `store` publishes versions to all processes.
    - `provision` creates the objects that a topology needs.
    - `until_fresh` waits until a version has caught up with the one that serves queries.
    - `verify` raises Fatal if a version differs from the sources.
    - `move` points the query names to the version's indexes and returns all names. `moved` confirms that they are
      stored.
    - `end` removes versions."""

    versions: Versions

    def store(self, versions: Versions) -> None: ...
    def provision(self, running: Topology) -> None: ...
    def until_fresh(self, name: str, number: int) -> None: ...
    def verify(self, name: str, number: int) -> None: ...
    def move(self, name: str, number: int) -> IndexVersions: ...
    def moved(self, name: str) -> None: ...
    def end(self, name: str, numbers: Sequence[int]) -> None: ...


def bring(topology: Topology, choice: VersionChoice, actions: RolloutActions, *, wait: bool = True) -> None:
    """Build new versions alongside the current ones, verify them and swap. Create and store everything else.

    Without `wait`, new versions are only created and stored; a later apply verifies and swaps them. If a step is
    refused, raises UsageError and changes nothing."""
    for one in choice.changes:
        if one.action == "refuse" and one.kind != "join":  # such a table remains unchanged
            raise UsageError(one.why, one.by)
    noted = [name for name in topology.tables if name not in choice.stuck]
    wanted = named_by(topology, recorded(topology, actions.versions, choice.numbers, noted))
    # created before it is stored: processes start as soon as it is stored, and fail without their table
    actions.provision(in_versions(topology, wanted))
    actions.store(wanted)
    for name in choice.moving if wait else ():
        if name not in choice.stuck:
            actions.until_fresh(name, choice.numbers[name])
            actions.verify(name, choice.numbers[name])
            actions.until_fresh(name, choice.numbers[name])  # again: queries must not lose what they have seen
            _move(name, choice.numbers[name], actions)


def roll_back(topology: Topology, actions: RolloutActions) -> None:
    """Let queries use the previous versions again, after these have caught up. Raises UsageError if there is none."""
    before = {name: _former(one) for name, one in actions.versions.tables.items()}
    found = {name: number for name, number in before.items() if number is not None}
    if not found:
        raise UsageError(f"{topology.file}: nothing to roll back to", "every table has one version: `tailorbird plan`")
    for name, number in found.items():
        actions.until_fresh(name, number)
        _move(name, number, actions)


def retire(actions: RolloutActions) -> None:
    """Remove every version that does not serve queries: first end its processes, then delete its data."""
    for name, one in actions.versions.tables.items():
        gone = tuple(sorted(number for number in one.tables if number != one.serving))
        if gone:
            actions.store(actions.versions.with_table(name, replace(one, retiring=gone)))
            actions.end(name, gone)
            actions.store(actions.versions.with_table(name, _without(one, gone)))


def _former(one: TableVersions) -> int | None:
    """Return the number of the previous version: the newest one before the current version, or else the oldest of
    the others.

    None if there is no other version."""
    others = [number for number in one.live if number != one.serving]
    older = [number for number in others if number < one.serving]
    return older[-1] if older else next(iter(others), None)


def _move(name: str, number: int, actions: RolloutActions) -> None:
    indexes = actions.move(name, number)
    one = actions.versions.tables[name]
    actions.store(actions.versions.with_table(name, replace(one, serving=number, indexes=indexes)))
    actions.moved(name)


def _without(one: TableVersions, gone: Sequence[int]) -> TableVersions:
    return replace(
        one,
        retiring=(),
        tables={number: table for number, table in one.tables.items() if number not in gone},
        indexes={
            index: {number: each for number, each in known.items() if number not in gone}
            for index, known in one.indexes.items()
        },
    )
