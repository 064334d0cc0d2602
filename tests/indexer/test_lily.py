"""Lily's indexer XML becomes a valid topology, and what cannot be converted is listed."""

from __future__ import annotations

import pytest

from cdc.model.errors import UsageError
from cdc.model.types import parse_type
from cdc.stored.foreign import ForeignField
from cdc.topology.reader import read_topology
from indexer.foreign.lily import import_lily

XML = """<?xml version="1.0"?>
<indexer table="people" mapping-type="column" read-row="never" row-field="rowkey" table-name-field="t"
    unique-key-formatter="com.ngdata.hbaseindexer.uniquekey.HexUniqueKeyFormatter"
    mapper="com.example.MyMapper" colour="blue">
  <field name="name_s" value="info:name"/>
  <field name="age_i" value="info:age" type="int"/>
  <field name="paid_d" value="info:paid" type="bigdecimal"/>
  <field name="tags_ss" value="tags:t_*" source="qualifier" type="string"/>
  <field name="own" value="info:own" type="com.example.MyType"/>
  <field name="bad" value="no-family"/>
  <extract name="body" value="docs:pdf" type="application/pdf"/>
  <param name="a" value="b"/>
</indexer>
"""


def field(name: str, family: str, qualifier: str, kind: str, take: str = "value") -> ForeignField:
    return ForeignField(name=name, family=family, qualifier=qualifier, take=take, type=parse_type(kind))  # type: ignore[arg-type]


def test_an_indexer_becomes_a_topology() -> None:
    """Table, mapping, reads, keys and fields are converted."""
    imported = import_lily(XML, file="x.xml", name="people")
    topology = read_topology(imported.text, file="x.yml", environ={})
    table = topology.foreign_tables["people"]
    assert (table.table, table.mapping, table.read_row, table.unique_key) == (
        "default:people",
        "column",
        "never",
        "hex",
    )
    assert table.fields == (
        field("rowkey", "", "", "string"),
        field("name_s", "info", "name", "string"),
        field("age_i", "info", "age", "int32"),
        field("paid_d", "info", "paid", "decimal(38,0)"),
        field("tags_ss", "tags", "t_*", "string", "qualifier"),
    )
    assert topology.indexes["people"].table == "people"


def test_what_is_left_out_is_reported() -> None:
    """Nothing is dropped silently: every attribute and element without a counterpart is named."""
    left_out = "\n".join(import_lily(XML, file="x.xml", name="people").left_out)
    for what in ("com.example.MyMapper", "table-name-field t", "colour='blue'", "com.example.MyType", "no-family"):
        assert what in left_out
    assert "<extract" in left_out
    assert "<param" in left_out
    assert len(left_out.splitlines()) == 8


@pytest.mark.parametrize("text", ["", "<indexer", "<indexer/>", "<other table='t'/>"])
def test_another_file_is_refused(text: str) -> None:
    """The error contains the file's name and what to pass instead."""
    with pytest.raises(UsageError, match=r"x\.xml: "):
        import_lily(text, file="x.xml", name="people")
