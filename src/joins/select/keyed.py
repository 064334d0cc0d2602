"""Bind a table's query so that its row key identifies the rows, if possible (see `joins.select`)."""

from __future__ import annotations

from collections.abc import Mapping

from cdc.model.schema import TableId, TableSchema
from cdc.topology.topology import Table, Topology
from joins.select.bind import Binder
from joins.select.bound import BoundTree
from joins.select.parser import parse_query
from joins.select.rowkey import RowKey
from joins.select.rows import keys_of


def bound_query(topology: Topology, table: Table, schemas: Mapping[TableId, TableSchema]) -> tuple[Binder, BoundTree]:
    """Return a table's bound query with its binder. If the row key omits columns of GROUP BY, the others must determine
    them."""
    binder = Binder(topology, schemas)
    bound = binder.query(parse_query(topology, table))
    if all(key.fault() is not None for key in row_keys(table, bound)):
        reducing = Binder(topology, schemas, table.row_key)
        reduced = reducing.query(parse_query(topology, table))
        if any(key.fault() is None for key in row_keys(table, reduced)):
            return reducing, reduced
    return binder, bound


def row_keys(table: Table, bound: BoundTree) -> list[RowKey]:
    """Return the row key of a query for each of its possible trees and each key of the tree's root table."""
    return [
        RowKey(table, bound, tree, primary)
        for tree in bound.trees
        for primary in keys_of(bound.flat.shapes[tree.root.alias])
    ]
