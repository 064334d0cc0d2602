"""The oracle answers a topology's own query, in canonical values."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

from cdc.model.schema import Column, TableId, TableSchema
from cdc.model.types import from_mysql
from cdc.topology.reader import read_topology
from cdc.topology.topology import Topology
from tailorbird.verify.mysql_tables import SourceTable
from tailorbird.verify.sql_oracle import _arrow, answer, duration

TOPOLOGIES = Path(__file__).parents[2] / "topologies"
SHOP, REVENUE = TOPOLOGIES / "shop.yml", TOPOLOGIES / "revenue.yml"


def table(columns: dict[str, str], *rows: tuple[object, ...]) -> SourceTable:
    return SourceTable(columns=tuple((name, from_mysql(type_)) for name, type_ in columns.items()), rows=list(rows))


def tables(topology: Topology) -> dict[TableId, SourceTable]:
    """Two orders: one of a customer and a product that there are, one of a guest and a product that is gone."""
    at = dt.datetime(2026, 1, 2, 3, 4, 5, 600_000)
    given = {
        "shop.shop.orders": table(
            {"id": "bigint", "customer_id": "int", "product_id": "int", "status": "enum('new')", "quantity": "int",
             "amount": "decimal(12,2)", "note": "text", "created_at": "datetime(3)", "revision": "int"},
            (1, 7, 3, "new", 2, Decimal("10.50"), None, at, 1),
            (2, None, 99, "new", 1, Decimal("0.00"), "", dt.datetime(2026, 1, 1), 4),
        ),
        "crm.crm.customers": table(
            {"id": "int", "name": "text", "country": "char(2)", "email": "text"}, (7, "Ada", "FR", None)
        ),
        "shop.shop.products": table(
            {"id": "int", "title": "text", "category": "text", "price": "decimal(10,2)"},
            (3, "Kettle", "kitchen", Decimal("5.25")),
        ),
    }  # fmt: skip
    ids = {str(t): t for source in topology.sources.values() for t in source.tables}
    return {ids[name]: rows for name, rows in given.items()}


def test_shop_query_is_answered() -> None:
    """A left join keeps orders without customer or product, and every type arrives in its canonical form."""
    topology = read_topology(SHOP.read_text(), file="shop.yml", environ={})
    rows = answer(topology, topology.tables["orders_wide"], tables(topology)).rows
    assert sorted(rows, key=lambda row: int(str(row["id"] or 0))) == [
        {"id": 1, "status": "new", "quantity": 2, "amount": "10.50", "note": None, "revision": 1,
         "created_at": "2026-01-02T03:04:05.6Z", "customer_id": 7, "customer": "Ada", "country": "FR", "email": None,
         "product_id": 3, "product": "Kettle", "category": "kitchen", "price": "5.25"},
        {"id": 2, "status": "new", "quantity": 1, "amount": "0.00", "note": "", "revision": 4,
         "created_at": "2026-01-01T00:00:00Z", "customer_id": None, "customer": None, "country": None, "email": None,
         "product_id": 99, "product": None, "category": None, "price": None},
    ]  # fmt: skip


def test_a_table_over_a_table_of_the_topology_is_answered() -> None:
    """Groups of rows that another query joins, also of those without a country: decimals, lists, counts as Spark has
    them."""
    topology = read_topology(REVENUE.read_text(), file="revenue.yml", environ={})
    rows = answer(topology, topology.tables["revenue"], tables(topology)).rows
    assert sorted(rows, key=lambda row: str(row["country"])) == [
        {"country": "FR", "category": "kitchen", "orders": 1, "customers": 1, "revenue": "10.50", "average": "10.50",
         "newest_order": "2026-01-02T03:04:05.6Z", "statuses": ["new"]},
        {"country": None, "category": None, "orders": 1, "customers": 0, "revenue": "0.00", "average": "0.00",
         "newest_order": "2026-01-01T00:00:00Z", "statuses": ["new"]},
    ]  # fmt: skip


def test_durations_may_be_negative_and_long() -> None:
    """A MySQL TIME is a duration of up to 838 hours, of either sign."""
    assert duration(dt.timedelta(hours=-100, seconds=-5, microseconds=-250_000)) == "-100:00:05.25"
    assert duration(dt.timedelta(minutes=1)) == "00:01:00"


def test_a_value_without_a_form_is_null() -> None:
    """A day that is none, which MySQL's driver gives as text, is NULL as it was published; NaN and infinities are
    values; a row whose key is no day was not published."""
    text = (
        "name: t\nsources:\n  s: {type: mysql, hostname: h, username: u, password: p, database: d, server_id: 1,"
        " tables: [a]}\ntables:\n  a: {query: 'SELECT a.k, a.d, a.at, a.f FROM s.a a', row_key: [k]}\n"
    )
    topology = read_topology(text, file="t.yml", environ={})
    (name,) = topology.sources["s"].tables
    columns = {"k": "date", "d": "date", "at": "datetime(3)", "f": "double"}
    day = dt.date(2026, 1, 2)
    found = table(
        columns,
        (day, "0000-00-00", "2020-00-00 00:00:00.000", float("nan")),
        (dt.date(2026, 1, 3), None, dt.datetime(2026, 1, 1), float("-inf")),
        ("0000-00-00", day, None, 1.5),
    )
    schema = TableSchema(
        table_id=name, version=1, primary_key=("k",),
        columns=tuple(Column(name=one, column_type=type_) for one, type_ in columns.items()),
    )  # fmt: skip
    rows = answer(topology, topology.tables["a"], {name: replace(found, schema=schema)}).rows
    assert sorted(rows, key=lambda row: str(row["k"])) == [
        {"k": "2026-01-02Z", "d": None, "at": None, "f": "NaN"},
        {"k": "2026-01-03Z", "d": None, "at": "2026-01-01T00:00:00Z", "f": "-Infinity"},
    ]


def test_geometries_vectors_and_addresses_are_answered() -> None:
    """The drivers return MySQL's bytes, PostgreSQL's text and hexadecimal vectors; an empty geometry is NULL."""
    stored = bytes.fromhex("E6100000010100000000000000000034400000000000002440")
    shown = _arrow(
        table(
            {"p": "point", "g": "geometry", "q": "point", "v": "vector(2)", "u": "uuid"},
            (stored, stored, "(1.5,-2)", "0000803F000000BF", "6ccd780c-baba-1026-9564-5b8c656024db"),
            (b"", b"", None, None, None),
        )
    ).to_pylist()
    assert shown == [
        {"p": "SRID=4326;POINT(20 10)", "g": "SRID=4326;POINT(20 10)", "q": "POINT(1.5 -2)", "v": [1.0, -0.5],
         "u": "6ccd780c-baba-1026-9564-5b8c656024db"},
        dict.fromkeys("pgqvu"),
    ]  # fmt: skip
