"""Checks what a topology says against itself: every query parsed, every column named elsewhere among its outputs."""

from __future__ import annotations

from cdc.topology import Topology
from joins.sql import check_query


def validate(topology: Topology) -> dict[str, list[str] | None]:
    """Output columns by aggregated table; TopologyError at the first mistake. No server is asked.

    None for a table whose query says `alias.*`: its columns are known when the source's schema is.
    """
    columns = {name: check_query(topology, table) for name, table in topology.tables.items()}
    for index in topology.indexes.values():
        _known(topology, f"indexes.{index.name}.search", index.search, columns[index.table])
    for dashboard in topology.dashboards.values():
        known = columns[topology.indexes[dashboard.index].table]
        path = f"dashboards.{dashboard.name}"
        _known(topology, f"{path}.facets", dashboard.facets, known)
        _known(topology, f"{path}.columns", dashboard.columns, known)
        if dashboard.time is not None:
            _known_one(topology, f"{path}.time", dashboard.time, known)
    return columns


def _known(topology: Topology, path: str, names: tuple[str, ...], known: list[str] | None) -> None:
    for i, name in enumerate(names):
        _known_one(topology, f"{path}[{i}]", name, known)


def _known_one(topology: Topology, path: str, name: str, known: list[str] | None) -> None:
    if known is not None and name not in known:
        raise topology.error(path, f"unknown column {name}", "one of " + ", ".join(known))
