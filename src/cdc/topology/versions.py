"""Versions of a topology's tables: the declaration of each, which one queries see, and which ones run.

If the query of a table is changed, `apply` builds the new version next to the old one, under a name of its own
(`orders_wide.v2`; names in the YAML file have no dot). HBase table, state, layouts, peer and collection have this name,
too. So every stage treats a version like any other table. All versions run until they are retired, even if the YAML
file has changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from cdc.topology.topology import Index, Table, Topology

FORMAT = 1


def version_name(name: str, number: int) -> str:
    """Return the name of a version of a table or an index. Version 1 has the name in the YAML file."""
    return name if number == 1 else f"{name}.v{number}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableVersions:
    """Versions of one table; `serving` is the number of the one that queries see.

    `tables` maps the number of each version to its declaration. `indexes` does the same for each index, by the index's
    name in the YAML file. Versions in `retiring` are being removed.
    """

    serving: int
    tables: Mapping[int, Table]
    indexes: Mapping[str, Mapping[int, Index]] = field(default_factory=dict)
    retiring: tuple[int, ...] = ()

    @property
    def live(self) -> tuple[int, ...]:
        """Return the numbers of the versions that run, in order."""
        return tuple(sorted(number for number in self.tables if number not in self.retiring))

    @property
    def newest(self) -> int:
        """Return the greatest version number that is stored, also of a version that is being removed."""
        return max(self.tables)


@dataclass(frozen=True, slots=True, kw_only=True)
class Versions:
    """Versions of all applied tables, by their names in the YAML file. `epoch` grows with every change."""

    epoch: int = 0
    tables: Mapping[str, TableVersions] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the stored form; inverse of `load_versions`."""
        stored = {
            name: {
                "serving": one.serving,
                "retiring": list(one.retiring),
                "tables": {str(number): asdict(table) for number, table in one.tables.items()},
                "indexes": {
                    index: {str(number): asdict(each) for number, each in versions.items()}
                    for index, versions in one.indexes.items()
                },
            }
            for name, one in self.tables.items()
        }
        return {"format": FORMAT, "epoch": self.epoch, "tables": stored}

    def with_table(self, name: str, one: TableVersions) -> Versions:
        """Return a copy with these versions of one table, and the next epoch."""
        return Versions(epoch=self.epoch + 1, tables={**self.tables, name: one})


def load_versions(value: Any) -> Versions:
    """Read the stored form. Raises KeyError, TypeError or ValueError if it is invalid."""
    if value["format"] != FORMAT:
        raise ValueError(f"versions of format {value['format']}, this program reads format {FORMAT}")
    return Versions(
        epoch=value["epoch"],
        tables={
            name: TableVersions(
                serving=one["serving"],
                retiring=tuple(one["retiring"]),
                tables={int(number): _table(table) for number, table in one["tables"].items()},
                indexes={
                    index: {int(number): _index(each) for number, each in versions.items()}
                    for index, versions in one["indexes"].items()
                },
            )
            for name, one in value["tables"].items()
        },
    )


def _table(value: Any) -> Table:
    known = {key: each for key, each in value.items() if key != "engine"}  # versions before 0.2 wrote it
    return Table(**{**known, "row_key": tuple(value["row_key"])})


def _index(value: Any) -> Index:
    return Index(**{**value, "search": tuple(value["search"])})


def in_versions(topology: Topology, versions: Versions, *, serving_only: bool = False) -> Topology:
    """Return the topology as it runs: each table in all its live versions; dashboards and checks use the serving ones.

    `serving_only`: leave out all versions but the serving ones.
    """
    if not versions.tables:
        return topology
    tables: dict[str, Table] = {}
    for name in dict.fromkeys((*topology.tables, *versions.tables)):
        one = versions.tables.get(name)
        found = [topology.tables[name]] if one is None else [one.tables[number] for number in _run(one, serving_only)]
        tables |= {table.name: table for table in found}
    serving = {name: version_name(name, one.serving) for name, one in versions.tables.items()}
    indexes: dict[str, Index] = {}
    shown: dict[str, str] = {}
    for name, index in topology.indexes.items():
        if not any(name in one.indexes for one in versions.tables.values()):
            indexes[name] = replace(index, table=serving.get(index.table, index.table))
    for one in versions.tables.values():
        for name, known in one.indexes.items():
            indexes |= {known[n].name: known[n] for n in _run(one, serving_only) if n in known}
            if one.serving in known:
                shown[name] = known[one.serving].name
    return replace(
        topology,
        tables=tables,
        indexes=indexes,
        dashboards={
            name: replace(dashboard, index=shown.get(dashboard.index, dashboard.index))
            for name, dashboard in topology.dashboards.items()
        },
        checks={
            name: replace(check, tables=tuple(serving.get(table, table) for table in check.tables))
            for name, check in topology.checks.items()
        },
    )


def _run(one: TableVersions, serving_only: bool) -> tuple[int, ...]:
    return (one.serving,) if serving_only else one.live
