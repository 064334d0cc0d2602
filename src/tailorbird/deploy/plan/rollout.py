"""Carries out what a file means for the versions of its tables, a step at a time. Pure: servers are behind `Hands`.

Each step may be cut off and is repeated by the next apply, which begins with what is noted and what runs: a version
that is made is noted, one that is noted is built to its end and moved to, a name that has moved is noted. So the end is
the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from cdc.model.errors import UsageError
from cdc.topology.topology import Index, Topology
from cdc.topology.versions import TableVersions, Versions, in_versions
from joins.process.declared import named_by, recorded
from tailorbird.deploy.plan.side_by_side import Choice

IndexVersions = Mapping[str, Mapping[int, Index]]


class Hands(Protocol):
    """What is done to servers (tailorbird.cli.change.cli_versions); each may be repeated.

    `store` notes versions where every process hears of them; `provision` makes what runs; `until_fresh` waits until a
    version shows what the serving one shows; `verify` is Fatal where it differs from the sources. `move` has the query
    names lead to its indexes, and tells what all are called then; `moved`: that is noted.
    """

    versions: Versions

    def store(self, versions: Versions) -> None: ...
    def provision(self, running: Topology) -> None: ...
    def until_fresh(self, name: str, number: int) -> None: ...
    def verify(self, name: str, number: int) -> None: ...
    def move(self, name: str, number: int) -> IndexVersions: ...
    def moved(self, name: str) -> None: ...
    def end(self, name: str, numbers: Sequence[int]) -> None: ...


def bring(topology: Topology, choice: Choice, hands: Hands, *, wait: bool = True) -> None:
    """Build what is chosen beside what serves, verify it, and move to it; all else is made and noted.

    Without `wait` the new versions are made and noted only: a later apply verifies them and moves to them. UsageError,
    and nothing is done, where something refuses.
    """
    for one in choice.changes:
        if one.action == "refuse" and one.kind != "join":  # such a table is left as it is
            raise UsageError(one.why, one.by)
    noted = [name for name in topology.tables if name not in choice.stuck]
    wanted = named_by(topology, recorded(topology, hands.versions, choice.numbers, noted))
    # made before it is noted: processes begin as soon as they hear of it, and stay down where their table lacks
    hands.provision(in_versions(topology, wanted))
    hands.store(wanted)
    for name in choice.moving if wait else ():
        if name not in choice.stuck:
            hands.until_fresh(name, choice.numbers[name])
            hands.verify(name, choice.numbers[name])
            hands.until_fresh(name, choice.numbers[name])  # again: what queries have seen they see still
            _move(name, choice.numbers[name], hands)


def roll_back(topology: Topology, hands: Hands) -> None:
    """Queries see the versions of before, once these are as fresh; UsageError where there is none."""
    before = {name: _former(one) for name, one in hands.versions.tables.items()}
    found = {name: number for name, number in before.items() if number is not None}
    if not found:
        raise UsageError(f"{topology.file}: nothing to go back to", "every table has one version: `tailorbird plan`")
    for name, number in found.items():
        hands.until_fresh(name, number)
        _move(name, number, hands)


def retire(hands: Hands) -> None:
    """Remove every version that queries do not see: first its processes end, then all that it has goes."""
    for name, one in hands.versions.tables.items():
        gone = tuple(sorted(number for number in one.tables if number != one.serving))
        if gone:
            hands.store(hands.versions.with_table(name, replace(one, retiring=gone)))
            hands.end(name, gone)
            hands.store(hands.versions.with_table(name, _without(one, gone)))


def _former(one: TableVersions) -> int | None:
    """The version that served before: the newest older one, else the oldest of the others."""
    others = [number for number in one.live if number != one.serving]
    older = [number for number in others if number < one.serving]
    return older[-1] if older else next(iter(others), None)


def _move(name: str, number: int, hands: Hands) -> None:
    indexes = hands.move(name, number)
    one = hands.versions.tables[name]
    hands.store(hands.versions.with_table(name, replace(one, serving=number, indexes=indexes)))
    hands.moved(name)


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
