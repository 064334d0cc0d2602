"""What a query may say: the supported shape is understood, anything else is refused where it stands."""

from __future__ import annotations

import pytest

from cdc.errors import TopologyError
from cdc.reader import read_topology
from cdc.schema import Column, TableId, TableSchema
from cdc.topology import Topology
from joins.plan import Plan, compile_plan
from joins.sql import check_query, parse_query

HEAD = """name: shape
sources:
  shop: {type: mysql, hostname: h, username: u, password: p, database: shop, tables: [orders, old.lines], server_id: 1}
  crm: {type: mysql, hostname: h, username: u, password: p, database: crm, tables: [customers], server_id: 2}
tables:
  wide:
    query: |
"""
FIRST_LINE = 8  # of a query in HEAD's file


def topology(query: str, row_key: str = "[id]") -> Topology:
    lines = "".join(f"      {line}\n" for line in query.strip().splitlines())
    return read_topology(f"{HEAD}{lines}    row_key: {row_key}\n", file="shape.yml", environ={})


def schema(table: TableId, columns: dict[str, str], key: tuple[str, ...] = ("id",)) -> TableSchema:
    made = tuple(Column(name=n, column_type=t.removesuffix("?"), nullable=t.endswith("?")) for n, t in columns.items())
    return TableSchema(table_id=table, version=1, columns=made, primary_key=key)


ORDERS = TableId(source="shop", database="shop", table="orders")
LINES = TableId(source="shop", database="old", table="lines")
CUSTOMERS = TableId(source="crm", database="crm", table="customers")
SCHEMAS = {
    ORDERS: schema(ORDERS, {"id": "int", "customer_id": "bigint?", "code": "varchar(9)?", "rate": "double?"}),
    LINES: schema(LINES, {"order_id": "int", "nr": "int", "rate": "double"}, ("order_id", "nr")),
    CUSTOMERS: schema(CUSTOMERS, {"id": "int", "name": "varchar(9)", "rate": "double"}),
}


def compiled(query: str, row_key: str = "[id]") -> Plan:
    made = topology(query, row_key)
    return compile_plan(made, made.tables["wide"], SCHEMAS)


def check(query: str, row_key: str = "[id]") -> list[str] | None:
    made = topology(query, row_key)
    return check_query(made, made.tables["wide"])


FROM = "FROM shop.orders o"
JOIN = "LEFT JOIN crm.customers c ON c.id = o.customer_id"


def test_shape_is_understood() -> None:
    """Aliases, three-part names, either side of ON, backticks and comments: the promised shape."""
    made = topology(
        f"SELECT o.id, c.`name` AS customer -- who\n{FROM}\n"
        "LEFT OUTER JOIN crm.crm.customers AS c ON (o.customer_id = c.id)"
    )
    select = parse_query(made, made.tables["wide"])
    assert select.tables() == {ORDERS, CUSTOMERS}
    assert [(join.key, join.fact_column, join.line) for join in select.joins] == [("id", "customer_id", 2)]
    assert check_query(made, made.tables["wide"]) == ["id", "customer"]


def test_zero_joins_need_no_alias() -> None:
    """A table copied as it is: topologies/smallest.yml."""
    assert check("SELECT id, code AS x FROM shop.orders") == ["id", "x"]


def test_star_names_are_open_until_schemas_are_known() -> None:
    """`t.*` is allowed; its names come from the schema."""
    assert check(f"SELECT o.* {FROM}") is None
    plan = compiled(f"SELECT o.*, c.name {FROM} {JOIN}")
    names = [output.name for output in plan.assemble.outputs]
    assert names == ["id", "customer_id", "code", "rate", "name"]
    assert [output.hop for output in plan.assemble.outputs] == [None, None, None, None, 0]


@pytest.mark.parametrize(
    ("query", "line", "says"),
    [
        (f"SELECT o.id\n{FROM}\nWHERE o.id > 1", 3, "WHERE is not supported yet, expected no WHERE"),
        (f"SELECT o.id\n{FROM}\nGROUP BY o.id", 3, "GROUP BY is not supported yet, expected one row"),
        (f"SELECT o.id\n{FROM}\nORDER BY o.id", 3, "ORDER BY is not supported yet"),
        (f"SELECT o.id\n{FROM}\nLIMIT 3", 3, "LIMIT is not supported yet"),
        (f"SELECT DISTINCT o.id\n{FROM}", 1, "DISTINCT is not supported yet"),
        (f"WITH x AS (SELECT 1)\nSELECT o.id {FROM}", 1, "WITH is not supported yet"),
        (f"SELECT o.id {FROM}\nUNION ALL\nSELECT o.id\n{FROM}", 3, "UNION, expected one SELECT per table"),
        (
            f"SELECT o.id,\n  upper(o.code) AS code\n{FROM}",
            2,
            "UPPER(o.code) is not supported yet, expected a column such",
        ),
        (f"SELECT o.id,\n  1 AS one\n{FROM}", 2, "1 is not supported yet"),
        (f"SELECT *\n{FROM}", 1, "* is not supported yet, expected o.*"),
        (
            f"SELECT o.id\n{FROM}\nJOIN crm.customers c ON c.id = o.customer_id",
            3,
            "JOIN is not supported yet, expected LEFT",
        ),
        (
            f"SELECT o.id\n{FROM}\nFULL JOIN crm.customers c ON c.id = o.customer_id",
            3,
            "FULL JOIN is not supported yet",
        ),
        (f"SELECT o.id\n{FROM}\nCROSS JOIN crm.customers c", 3, "CROSS JOIN is not supported yet"),
        (f"SELECT o.id\n{FROM},\ncrm.customers c", 3, "JOIN is not supported yet"),
        (f"SELECT o.id\n{FROM}\nLEFT JOIN crm.customers c USING (id)", 3, "USING is not supported yet"),
        (f"SELECT o.id\n{FROM}\nLEFT JOIN crm.customers c", 3, "a join without ON"),
        (f"SELECT o.id\n{FROM}\nLEFT JOIN crm.customers c\n  ON c.id > o.customer_id", 4, "expected ON c.id = o.c_id"),
        (
            f"SELECT o.id\n{FROM}\nLEFT JOIN crm.customers c\n  ON c.id = o.customer_id AND c.id = o.id",
            4,
            "one equality",
        ),
        (f"SELECT o.id\n{FROM}\n{JOIN}\nLEFT JOIN crm.customers d ON d.id = c.id", 4, "expected ON d.id = o.d_id"),
        (f"SELECT o.id\n{FROM}\nLEFT JOIN (SELECT 1) c ON c.id = o.id", 3, "a subquery where a table is expected"),
        (
            "SELECT o.id\nFROM shop.nothing o",
            2,
            "unknown table shop.nothing, expected one of shop.orders, shop.old.lines",
        ),
        ("SELECT o.id\nFROM orders o", 2, "unknown table orders"),
        (f"SELECT o.id,\n x.name {FROM}", 2, "unknown table x in x.name, expected one of o"),
        (f"SELECT o.id,\n  name\n{FROM}\n{JOIN}", 2, "column name without its table, expected o.name"),
        (f"SELECT o.id,\n  o.code AS id\n{FROM}", 2, "column id twice"),
        (f"SELECT o.id,\n  o.code AS _code\n{FROM}", 2, "column _code, expected a name that does not begin with _"),
        (f"SELECT o.id\n{FROM}\nLEFT JOIN crm.customers o ON o.id = o.customer_id", 3, "o names two tables"),
        (f"SELECT o.id,, o.code\n{FROM}", 1, "not SQL"),
        ("SELECT o.id\nFROM shop.orders o\nLEFT JOIN", 3, "not SQL"),
        ("DELETE FROM shop.orders", 1, "expected a SELECT"),
        ("SELECT 1", 1, "no FROM"),
        (f"SELECT o.id {FROM};\nSELECT o.id {FROM}", 1, "not one statement"),
    ],
)
def test_refused_where_it_stands(query: str, line: int, says: str) -> None:
    """Beyond the shape: file:line of the very line, and the nearest form that works; no schema is needed for that."""
    with pytest.raises(TopologyError) as caught:
        check(query)
    assert f"shape.yml:{FIRST_LINE + line - 1}: tables.wide.query: " in str(caught.value)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("query", "row_key", "says"),
    [
        (f"SELECT o.id {FROM}", "[nr]", "unknown column nr"),
        (f"SELECT o.id, c.name {FROM} {JOIN}", "[id, name]", "column name comes from the joined table c"),
    ],
)
def test_row_key_is_checked_without_schemas(query: str, row_key: str, says: str) -> None:
    """A row key outside the result, or one that a missing match would make NULL."""
    with pytest.raises(TopologyError, match=says) as caught:
        check(query, row_key)
    assert ": tables.wide.row_key: " in str(caught.value)


@pytest.mark.parametrize(
    ("query", "row_key", "says"),
    [
        (
            f"SELECT o.id,\n o.nothing {FROM}",
            "[id]",
            r"shape.yml:9: .*unknown column o.nothing, expected one of id, cust",
        ),
        (f"SELECT o.id\n{FROM}\nLEFT JOIN crm.customers c ON c.name = o.code", "[id]", r":10: .*not the primary key"),
        (f"SELECT o.id\n{FROM}\nLEFT JOIN crm.customers c ON c.id = o.code", "[id]", r":10: .*one exact type"),
        (f"SELECT o.id\n{FROM}\nLEFT JOIN shop.old.lines l ON l.nr = o.id", "[id]", "composite primary key"),
        (f"SELECT o.code, o.id {FROM}", "[id, code]", "column code may be NULL"),
        ("SELECT l.order_id AS id FROM shop.old.lines l", "[id]", "l.nr, of the primary key, is not in it"),
        (f"SELECT o.id, o.rate, c.*\n{FROM}\n{JOIN}", "[id]", "column id twice"),
    ],
)
def test_refused_once_schemas_are_known(query: str, row_key: str, says: str) -> None:
    """What only the tables' columns show: unknown names, joins off the primary key, row keys that are none."""
    with pytest.raises(TopologyError, match=says):
        compiled(query, row_key)


def test_plan_reads_only_what_it_uses() -> None:
    """Columns that no step uses are not carried: their updates end before any state."""
    plan = compiled(f"SELECT o.id, c.name {FROM} {JOIN}")
    assert [(project.key, project.columns) for project in plan.projects] == [
        (("id",), ("id", "customer_id")),
        (("id",), ("id", "name")),
    ]
    assert plan.topics == ("shape.crm.crm.customers", "shape.shop.shop.orders")


def test_fingerprint_names_what_the_state_depends_on() -> None:
    """A checkpoint may be continued under the same query only, however it is written."""
    one = compiled(f"SELECT o.id, c.name {FROM} {JOIN}")
    assert one.fingerprint() == compiled(f"SELECT o.id,\n  c.name\n{FROM}\n{JOIN}").fingerprint()
    assert one.fingerprint() != compiled(f"SELECT o.id, c.rate AS name {FROM} {JOIN}").fingerprint()
