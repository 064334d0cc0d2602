"""Rename the tables of a topology to certain versions. `orders` in version 2 is a separate table with its own name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from cdc.topology.topology import Index, Table, Topology
from cdc.topology.versions import TableVersions, Versions, version_name
from joins.process.renaming import renamed


def declared(topology: Topology, versions: Versions, numbers: Mapping[str, int]) -> Topology:
    """Return the topology with tables, and references to them, renamed to the version `numbers` (default: 1).

    An index of a new version has its own collection until the query alias moves to it."""
    names = {name: version_name(name, numbers.get(name, 1)) for name in topology.tables}
    tables = {
        names[name]: replace(table, name=names[name], query=renamed(table.query, names))
        for name, table in topology.tables.items()
    }
    indexes: dict[str, Index] = {}
    called: dict[str, str] = {}
    for name, index in topology.indexes.items():
        number = numbers.get(index.table, 1) if index.table in topology.tables else 1
        one = replace(
            index,
            name=version_name(name, number),
            table=names.get(index.table, index.table),
            collection=_collection(versions.tables.get(index.table), index, number),
        )
        indexes[one.name], called[name] = one, one.name
    return replace(
        topology,
        tables=tables,
        indexes=indexes,
        dashboards={
            name: replace(dashboard, index=called[dashboard.index]) for name, dashboard in topology.dashboards.items()
        },
        checks={
            name: replace(check, tables=tuple(names.get(table, table) for table in check.tables))
            for name, check in topology.checks.items()
        },
    )


def _collection(known: TableVersions | None, index: Index, number: int) -> str:
    """Return the collection of an index's version. If that version serves queries, it is the alias that they use."""
    versions = known.indexes.get(index.name, {}) if known is not None else {}
    if number == (1 if known is None else known.serving):
        return index.collection
    return versions[number].collection if number in versions else version_name(index.collection, number)


def serving(versions: Versions) -> dict[str, int]:
    """Return by table the number of the version that queries read."""
    return {name: one.serving for name, one in versions.tables.items()}


def recorded(topology: Topology, versions: Versions, numbers: Mapping[str, int], names: Sequence[str]) -> Versions:
    """Return a copy of `versions` with the queries of the tables `names` and of their indexes, as the topology declares
    them, under the version `numbers` (by table; 1 by default)."""
    found = declared(topology, versions, numbers)
    for name in names:
        number = numbers.get(name, 1)
        one = versions.tables.get(name) or TableVersions(serving=number, tables={})
        table: Table = found.tables[version_name(name, number)]
        indexes = {index: dict(known) for index, known in one.indexes.items() if index in topology.indexes}
        for index in topology.indexes.values():
            if index.table == name:
                known = indexes.setdefault(index.name, {})
                known[number] = found.indexes[version_name(index.name, number)]
        changed = replace(one, tables={**one.tables, number: table}, indexes=indexes)
        if changed != versions.tables.get(name):
            versions = versions.with_table(name, changed)
    return versions


def named_by(topology: Topology, versions: Versions) -> Versions:
    """Return the versions of the tables that the file has. Versions of other tables no longer run."""
    left = {name: one for name, one in versions.tables.items() if name in topology.tables}
    return versions if len(left) == len(versions.tables) else Versions(epoch=versions.epoch + 1, tables=left)
