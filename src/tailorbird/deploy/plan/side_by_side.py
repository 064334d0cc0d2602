"""Choose which tables get a new version that is built alongside the current one, and plan the steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from cdc.model.naming import hbase_table
from cdc.topology.topology import COMPARABLE, Topology
from cdc.topology.versions import Versions, version_name
from joins.process.declared import declared, serving
from tailorbird.deploy.plan.change import INDEXED, Change, seconds_for

See = Callable[[Topology], Sequence[Change]]


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionChoice:
    """The version of each table in the file, by name (`numbers`), and the steps (`changes`) to get there.

    `moving` are tables whose queries still use another version. `stuck` are changed tables that cannot be built
    alongside, because their sink is Kafka, their previous query is unknown, or their store has lost them."""

    numbers: Mapping[str, int]
    moving: tuple[str, ...]
    stuck: tuple[str, ...]
    changes: Sequence[Change]


def choose(topology: Topology, versions: Versions, see: See) -> VersionChoice:
    """Choose versions for the tables of the file. `see` returns the steps for a topology that names versions.

    A table whose query has changed gets its newest version if that one has the query already, as after an
    interrupted apply or a rollback. Otherwise it gets a new version."""
    numbers = {name: number for name, number in serving(versions).items() if name in topology.tables}
    found = see(declared(topology, versions, numbers))
    changed = _again(topology, numbers, found)
    movable = [
        name
        for name in changed
        if topology.tables[name].sink in COMPARABLE
        and not changed[name].lost
        and name in versions.tables
        and numbers[name] in versions.tables[name].live
    ]
    if movable:
        tried = {name: versions.tables[name].live[-1] for name in movable}
        again = {name for name, number in tried.items() if number == numbers[name]}
        if len(again) < len(movable):
            again |= set(_again(topology, numbers | tried, see(declared(topology, versions, numbers | tried))))
        numbers |= {name: versions.tables[name].newest + 1 if name in again else tried[name] for name in movable}
        found = see(declared(topology, versions, numbers))
    refused = {one.name for one in found if one.action == "refuse" and one.kind == "join"}
    stuck = tuple(
        name
        for name in topology.tables
        if (name in changed and name not in movable) or version_name(name, numbers.get(name, 1)) in refused
    )
    reported = _reported(topology, versions, numbers, found, changed, movable)
    return VersionChoice(numbers=numbers, moving=tuple(movable), stuck=stuck, changes=list(reported))


def _again(topology: Topology, numbers: Mapping[str, int], found: Sequence[Change]) -> dict[str, Change]:
    """Return the changed tables, by their name in the file, each with the step that shows the change."""
    changed = {}
    for name in topology.tables:
        called = version_name(name, numbers.get(name, 1))
        for one in found:
            joined = one.action == "rebuild" and one.kind == "join" and one.name == called
            made = one.action == "refuse" and one.kind == "table" and one.name == hbase_table(topology.name, called)
            if joined or made:
                changed[name] = one
    return changed


def _reported(
    topology: Topology,
    versions: Versions,
    numbers: Mapping[str, int],
    found: Sequence[Change],
    changed: Mapping[str, Change],
    movable: Sequence[str],
) -> Iterator[Change]:
    """Yield the steps to report. For tables with a new version, `build`, `verify` and `move` replace the start of
    the join."""
    kept = {name: one for name, one in versions.tables.items() if name in topology.tables}
    known = {version_name(name, n): name for name, one in kept.items() for n in one.tables}
    known_peers = {
        version_name(index, n): index
        for one in kept.values()
        for index, of in one.indexes.items()
        if index in topology.indexes
        for n in of
    }
    building = {version_name(name, numbers[name]): name for name in movable}
    for one in found:
        if one.action == "leave" and _is_version(topology, one, known, known_peers):
            continue
        name = building.get(one.name) if one.kind == "join" else None
        if name is None:
            yield one
            continue
        was = version_name(name, versions.tables[name].serving)
        why = changed[name].why if one.action in ("join", "rebuild") else "it exists and has the file's query"
        cost = one if one.records is not None else changed[name]
        yield replace(
            one, action="build", why=f"alongside {was}: {why}", by="apply", records=cost.records, seconds=cost.seconds,
            rows=changed[name].rows, meanwhile=f"{was} serves until the swap",
        )  # fmt: skip
    for called, name in building.items():
        was = version_name(name, versions.tables[name].serving)
        rows = changed[name].rows
        yield Change(
            action="verify", kind="table", name=called, why="compared with the sources, and its indexes with the table",
            by="apply", rows=rows, seconds=seconds_for(rows.rows if rows else None, INDEXED),
        )  # fmt: skip
        for index in topology.indexes.values():
            if index.table == name:
                why = f"queries see {called} from then on; {was} stays fresh for `apply --rollback`, until `--retire`"
                yield Change(action="move", kind="index", name=index.name, why=why, by="apply")
    for name, one_of in kept.items():
        for number in one_of.live:
            if number not in (one_of.serving, numbers.get(name)):
                why = "a version that queries do not see: for `apply --rollback`, until `apply --retire`"
                yield Change(action="keep", kind="table", name=version_name(name, number), why=why)


def _is_version(topology: Topology, one: Change, tables: Mapping[str, str], indexes: Mapping[str, str]) -> bool:
    """Return whether an object that the file does not name belongs to a version of a table."""
    if one.kind == "table":
        return one.name.removeprefix(f"{topology.name}:") in tables
    if one.kind == "peer":
        return one.name.removeprefix(f"{topology.name}_").rpartition("_")[0] in indexes
    return one.kind == "join" and one.name in tables
