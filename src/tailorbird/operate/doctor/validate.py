"""Check a topology without servers: parse every query, and check that the columns named elsewhere are in its result."""

from __future__ import annotations

from collections.abc import Mapping

from cdc.model.schema import TableId, TableSchema
from cdc.topology.topology import Table, Topology
from joins.query.loose_keys import loose_keys
from joins.query.plan import Plan
from joins.select.compiler import compile_plan
from joins.select.parser import check_query, tables_of
from joins.select.tokens import without_effect


def validate(topology: Topology, schemas: Mapping[TableId, TableSchema] | None = None) -> dict[str, list[str] | None]:
    """Return the result columns of each joined table. Raises TopologyError at the first mistake.

    No server is contacted. The value is None for a query with `alias.*` of a table that is not in `schemas`. The
    columns of a foreign table are the fields that the topology names."""
    columns = {name: check_query(topology, table) for name, table in topology.tables.items()}
    for name, table in topology.tables.items():
        if columns[name] is None and schemas and tables_of(topology, table) <= set(schemas):
            columns[name] = [output.name for output in compile_plan(topology, table, schemas).outputs]
    fields = {name: [field.name for field in foreign.fields] for name, foreign in topology.foreign_tables.items()}
    indexed = {**columns, **fields}
    for index in topology.indexes.values():
        _known(topology, f"indexes.{index.name}.search", index.search, indexed[index.table])
    for dashboard in topology.dashboards.values():
        known = indexed[topology.indexes[dashboard.index].table]
        path = f"dashboards.{dashboard.name}"
        _known(topology, f"{path}.facets", dashboard.facets, known)
        _known(topology, f"{path}.columns", dashboard.columns, known)
        if dashboard.time is not None:
            _known_one(topology, f"{path}.time", dashboard.time, known)
        for i, panel in enumerate(dashboard.panels):
            for name in panel.columns:
                _known_one(topology, f"{path}.panels[{i}]", name, known)
    return columns


def judged(topology: Topology, schemas: Mapping[TableId, TableSchema]) -> dict[str, list[tuple[str, str]]]:
    """Return the warnings about each joined table's query, as (finding, remedy).

    Tables with an unknown schema are skipped. Raises TopologyError for errors that the schemas reveal."""
    found: dict[str, list[tuple[str, str]]] = {}
    for name, table in topology.tables.items():
        if tables_of(topology, table) <= set(schemas):
            found[name] = warnings_of(topology, table, compile_plan(topology, table, schemas), schemas)
    return found


def warnings_of(
    topology: Topology, table: Table, plan: Plan, schemas: Mapping[TableId, TableSchema]
) -> list[tuple[str, str]]:
    """Return the warnings about a table's query, whose plan is known, as (finding, remedy)."""
    keys = [(key.found, key.remedy) for key in loose_keys(plan, schemas)]
    return [*without_effect(topology, table), *keys]


def _known(topology: Topology, path: str, names: tuple[str, ...], known: list[str] | None) -> None:
    for i, name in enumerate(names):
        _known_one(topology, f"{path}[{i}]", name, known)


def _known_one(topology: Topology, path: str, name: str, known: list[str] | None) -> None:
    if known is not None and name not in known:
        raise topology.error(path, f"unknown column {name}", "one of " + ", ".join(known))
