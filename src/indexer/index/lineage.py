"""Describe what an indexer reads and writes, for OpenLineage: a table of HBase, and a collection."""

from __future__ import annotations

from cdc.model.naming import hbase_table
from cdc.openlineage.datasets import DatasetField, FieldOrigin, LineageDataset, Sides, unchanged
from cdc.openlineage.names import hbase_name, index_name
from cdc.stored.foreign import ForeignTable
from cdc.stored.layout import Layout
from cdc.topology.topology import Index, Topology


def indexed_datasets(topology: Topology, index: Index, layout: Layout | None) -> Sides:
    """Return the input and the output of an index. `layout` has the columns of a joined table; None: not known yet.

    The fields of a collection have the names of the columns. Its further fields for queries (`_q_…`) are left out."""
    target, foreign = index_name(topology, index), topology.foreign_tables.get(index.table)
    if foreign is not None:
        return _foreign(topology, index, foreign)
    source = hbase_name(topology, hbase_table(topology.name, index.table))
    columns = () if layout is None else layout.columns
    fields = tuple(DatasetField(name=one.name, type=str(one.type)) for one in columns)
    return (LineageDataset(name=source, fields=fields),), (unchanged(source, target, fields),)


def _foreign(topology: Topology, index: Index, foreign: ForeignTable) -> Sides:
    source = hbase_name(topology, foreign.table)
    cells = {one.name: f"{one.family}:{one.qualifier}" if one.family else "row key" for one in foreign.fields}
    columns = dict.fromkeys(cells.values(), "bytes")
    output = LineageDataset(
        name=index_name(topology, index),
        fields=tuple(DatasetField(name=one.name, type=str(one.type)) for one in foreign.fields),
        origins={
            name: (FieldOrigin(dataset=source, field=cell, how="TRANSFORMATION"),) for name, cell in cells.items()
        },
    )
    fields = tuple(DatasetField(name=name, type=type_) for name, type_ in columns.items())
    return (LineageDataset(name=source, fields=fields),), (output,)
