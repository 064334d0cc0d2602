"""What a capture reports to an OpenLineage receiver: its tables and topics, with the columns that are captured."""

from __future__ import annotations

from collections.abc import Mapping

import orjson

from cdc.model.event import Position
from cdc.model.schema import Column, TableId, TableSchema
from cdc.topology.reader import read_topology
from cdc.topology.topology import Topology
from ingest.log.memory_log import Broker
from ingest.log.schemas_log import SchemasLog
from ingest.records.capture_interfaces import Checkpoint, Record
from ingest.report.lineage import datasets_of
from tests.ingest.test_traced_log import OpenedLog

_AT = Position(file="f", pos=4, row=0, gtid_set="", sequence=9)
_ORDERS = TableId(source="shop", database="db", table="orders")


def topology(tables: str = "[orders]", log: str = "", database: str = "db", more: str = "") -> Topology:
    text = f"""
name: t
{log}
sources:
  shop:
    {{type: mysql, hostname: h, username: u, password: p, server_id: 3, database: "{database}", tables: {tables}{more}}}
"""
    return read_topology(text, file="t.yml", environ={})


def schema(table: TableId, *columns: str) -> TableSchema:
    made = tuple(Column(name=name, column_type="int unsigned", nullable=False) for name in columns)
    return TableSchema(table_id=table, version=1, columns=made, primary_key=(columns[0],))


def test_tables_become_topics_with_the_columns_that_are_captured() -> None:
    """Before the first schema, the topology's tables have no columns. A masked column is one of the topic, masked."""
    given = topology('{orders: {mask: {mail: "sha256(x)"}}}')
    source = given.sources["shop"]
    [input_], [output] = datasets_of(given, source, {})
    assert (input_.name.namespace, input_.name.name, input_.fields) == ("mysql://h:3306", "db.orders", ())
    assert output.name.name == "t.shop.db.orders"
    former = TableId(source="shop", database="db", table="former")
    known = {_ORDERS: schema(_ORDERS, "id", "mail"), former: schema(former, "id")}
    [input_], [output] = datasets_of(given, source, known)
    assert [(one.name, one.type) for one in input_.fields] == [("id", "int unsigned"), ("mail", "int unsigned")]
    assert {name: [one.masked for one in origins] for name, origins in output.origins.items()} == {
        "id": [False], "mail": [True],
    }  # fmt: skip


def test_merged_tables_are_one_dataset() -> None:
    """It is named by the pattern, as in queries; the tables of each database are not listed."""
    given = topology(database="tenant_*")
    merged, one = (TableId(source="shop", database=name, table="orders") for name in ("tenant_*", "tenant_1"))
    known = {merged: schema(merged, "database_name", "id"), one: schema(one, "id")}
    inputs, outputs = datasets_of(given, given.sources["shop"], known)
    assert [one.name.name for one in inputs] == ["tenant_*.orders"]
    assert [len(one.fields) for one in outputs] == [2]


def test_a_topic_of_several_tables_has_no_columns() -> None:
    """Those of its tables differ. Each table has its own."""
    given = topology("[orders, items]", "log: {topics: per_source}")
    items = TableId(source="shop", database="db", table="items")
    known = {_ORDERS: schema(_ORDERS, "id"), items: schema(items, "id", "n")}
    inputs, [output] = datasets_of(given, given.sources["shop"], known)
    assert [len(one.fields) for one in inputs] == [2, 1]
    assert (output.name.name, output.fields, output.origins) == ("t.shop.all_tables", (), {})


def test_schemas_are_reported_when_they_are_committed() -> None:
    """The recovered ones at the begin; an aborted one not at all; other records are not read."""
    reported: list[Mapping[TableId, TableSchema]] = []
    broker = Broker()
    log = SchemasLog(OpenedLog(broker, "t.schemas", "t.history"), "t", "shop", reported.append)

    def record(*columns: str) -> Record:
        return Record("t.schemas", str(_ORDERS).encode(), orjson.dumps(schema(_ORDERS, *columns).to_json()))

    def commit() -> None:
        log.commit(Checkpoint(position=_AT, snapshot="done", ts_ms=3))

    log.recover()
    log.extend([Record("t.shop.db.orders", b"{}", b"no schema"), record("id")])
    assert reported == [{}]
    commit()
    commit()
    assert reported[1:] == [{_ORDERS: schema(_ORDERS, "id")}]
    log.append(record("id", "n"))
    log.abort()
    commit()
    assert len(reported) == 2
    again = SchemasLog(OpenedLog(broker, "t.schemas", "t.history"), "t", "shop", reported.append)
    assert again.recover().schemas == reported[-1] == {_ORDERS: schema(_ORDERS, "id")}
