"""Describe what a capture reads and writes, for OpenLineage: its tables, and the topics of their changes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from cdc.model.patterns import merged_named, merged_of
from cdc.model.schema import TableId, TableSchema
from cdc.openlineage.datasets import DatasetField, LineageDataset, Sides, merged_datasets, unchanged
from cdc.openlineage.names import change_topic_name, source_name
from cdc.topology.copies import declared_tables
from cdc.topology.topology import Source, Topology


def datasets_of(topology: Topology, source: Source, schemas: Mapping[TableId, TableSchema]) -> Sides:
    """Return the inputs and outputs of a capture. A table that `schemas` lacks has no columns yet.

    Columns are those that are captured, by the names and types in the source. Tables of a merged table are one dataset,
    named by the pattern."""
    inputs: list[LineageDataset] = []
    outputs: list[LineageDataset] = []
    for table in dict.fromkeys((*declared_tables(source), *_captured(source, schemas))):
        schema, name = schemas.get(table), source_name(source, table)
        topic = change_topic_name(topology, source, table)
        columns = () if schema is None else schema.columns
        fields = tuple(DatasetField(name=one.name, type=one.column_type) for one in columns)
        if name is None:
            outputs.append(LineageDataset(name=topic, fields=fields))
            continue
        inputs.append(LineageDataset(name=name, fields=fields))
        rule = source.rule_of(table)
        masked = () if rule is None else tuple(one.name for one in fields if rule.mask_of(one.name) is not None)
        outputs.append(unchanged(name, topic, fields, masked))
    return merged_datasets(inputs), merged_datasets(outputs)


def _captured(source: Source, schemas: Mapping[TableId, TableSchema]) -> Iterator[TableId]:
    """Yield the tables with a schema that the source captures now. The log may have schemas of former ones, too."""
    for table in schemas:
        if merged_named(table, source.merged) is not None or (
            source.captures(table) and merged_of(table, source.merged) is None
        ):
            yield table
