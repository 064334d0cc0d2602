"""What an indexer reports to an OpenLineage receiver: a table of HBase, a collection, and their columns."""

from __future__ import annotations

from cdc.model.types import parse_type
from cdc.stored.layout import Layout, LayoutColumn
from cdc.topology.reader import read_topology
from indexer.index.lineage import indexed_datasets

_TOPOLOGY = """
name: t
sources: {s: {type: mysql, hostname: h, username: u, password: p, server_id: 3, database: d, tables: [a]}}
tables: {wide: {query: "SELECT a.id FROM s.a a", row_key: [id], salt_buckets: 2}}
foreign_tables:
  people: {table: people, fields: {id: {source: row, type: string}, name: {source: "f:n", type: string}}}
indexes: {wide: {table: wide}, people: {table: people}}
"""


def test_fields_of_a_collection_are_the_columns_of_its_table() -> None:
    """They have none until a layout is known."""
    topology = read_topology(_TOPOLOGY, file="t.yml", environ={})
    columns = tuple(LayoutColumn(name=name, type=parse_type(type_), origin="") for name, type_ in (("id", "int64"),))
    layout = Layout(
        topology="t", table="wide", id=1, family="d", columns=columns, row_key=("id",), salt_buckets=2
    )  # fmt: skip
    [before], _ = indexed_datasets(topology, topology.indexes["wide"], None)
    [input_], [output] = indexed_datasets(topology, topology.indexes["wide"], layout)
    assert (before.name, before.fields) == (input_.name, ())
    assert (input_.name.name, output.name.name) == ("t:wide", "t_wide")
    assert [(one.name, one.type) for one in output.fields] == [("id", "int64")] == [
        (one.name, one.type) for one in input_.fields
    ]  # fmt: skip
    assert [(one.dataset, one.field, one.how) for one in output.origins["id"]] == [(input_.name, "id", "IDENTITY")]


def test_fields_of_an_external_table_come_from_its_cells() -> None:
    """And from the row key. The topology declares them."""
    topology = read_topology(_TOPOLOGY, file="t.yml", environ={})
    [input_], [output] = indexed_datasets(topology, topology.indexes["people"], None)
    assert [one.name for one in input_.fields] == ["row key", "f:n"]
    assert {name: one[0].field for name, one in output.origins.items()} == {"id": "row key", "name": "f:n"}
