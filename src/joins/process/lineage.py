"""Describe what a join reads and writes, for OpenLineage: topics of captured tables, and the joined table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from cdc.model.schema import TableId, TableSchema
from cdc.openlineage.datasets import (
    DatasetField,
    DatasetName,
    Dependence,
    FieldOrigin,
    LineageDataset,
    Sides,
    merged_datasets,
)
from cdc.openlineage.names import change_topic_name, table_name
from cdc.topology.topology import Table, Topology
from joins.inspection.origins import Input, deciders, lineages
from joins.query.nodes import Derived
from joins.query.plan import Plan
from joins.select.parser import tables_of


def declared_datasets(topology: Topology, table: Table) -> Sides:
    """Return the inputs and outputs that a query names; their columns are not known yet."""
    inputs = (LineageDataset(name=_topic(topology, one)) for one in tables_of(topology, table))
    return merged_datasets(inputs), (LineageDataset(name=table_name(topology, table)),)


def planned_datasets(topology: Topology, table: Table, plan: Plan, schemas: Mapping[TableId, TableSchema]) -> Sides:
    """Return the inputs, with their columns by `schemas`, and the joined table, with the origins of its columns."""
    inputs = []
    for source in plan.sources:
        schema = schemas.get(source.table_id)
        columns = () if schema is None else schema.columns
        fields = tuple(DatasetField(name=one.name, type=one.column_type) for one in columns)
        inputs.append(LineageDataset(name=_topic(topology, source.table_id), fields=fields))
    tables = [None if isinstance(node.source, Derived) else node.source.table_id for node in plan.nodes()]

    def origin(node: int, column: str, how: Dependence) -> FieldOrigin:
        table = tables[node]
        assert table is not None
        return FieldOrigin(dataset=_topic(topology, table), field=column, how=how)

    output = LineageDataset(
        name=table_name(topology, table),
        fields=tuple(DatasetField(name=one.name, type=str(one.type)) for one in plan.outputs),
        origins={one.column: _once(origin(i.node, i.column, _how(i)) for i in one.inputs) for one in lineages(plan)},
        influences=_once(origin(*one) for one in deciders(plan)),
    )
    return merged_datasets(inputs), (output,)


def _how(one: Input) -> Dependence:
    if one.aggregated:
        return "AGGREGATION"
    return "IDENTITY" if one.plain else "TRANSFORMATION"


def _once(origins: Iterable[FieldOrigin]) -> tuple[FieldOrigin, ...]:
    """Return the origins without duplicates: a query may read a table several times."""
    return tuple(sorted(set(origins)))


def _topic(topology: Topology, table: TableId) -> DatasetName:
    return change_topic_name(topology, topology.sources[table.source], table)
