"""The oracle answers a topology's own query, in canonical values."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path

from cdc.topology.reader import read_topology
from cdc.words.types import from_mysql
from console.verify.mysql_tables import SourceTable
from console.verify.sql_oracle import answer, canonical

SHOP = Path(__file__).parents[2] / "topologies" / "shop.yml"


def table(columns: dict[str, str], *rows: tuple[object, ...]) -> SourceTable:
    return SourceTable(columns=tuple((name, from_mysql(type_)) for name, type_ in columns.items()), rows=list(rows))


def test_shop_query_is_answered() -> None:
    """A left join keeps orders without customer or product, and every type arrives in its canonical form."""
    topology = read_topology(SHOP.read_text(), file="shop.yml", environ={})
    tables = {str(t): t for source in topology.sources.values() for t in source.tables}
    order = {"id": "bigint", "customer_id": "int", "product_id": "int", "status": "enum('new')", "quantity": "int",
             "amount": "decimal(12,2)", "note": "text", "created_at": "datetime(3)", "revision": "int"}  # fmt: skip
    at = dt.datetime(2026, 1, 2, 3, 4, 5, 600_000)
    rows = answer(
        topology,
        topology.tables["orders_wide"],
        {
            tables["shop.shop.orders"]: table(
                order,
                (1, 7, 3, "new", 2, Decimal("10.50"), None, at, 1),
                (2, None, 99, "new", 1, Decimal("0.00"), "", dt.datetime(2026, 1, 1), 4),
            ),
            tables["crm.crm.customers"]: table(
                {"id": "int", "name": "text", "country": "char(2)", "email": "text"}, (7, "Ada", "FR", None)
            ),
            tables["shop.shop.products"]: table(
                {"id": "int", "title": "text", "category": "text", "price": "decimal(10,2)"},
                (3, "Kettle", "kitchen", Decimal("5.25")),
            ),
        },
    )
    assert sorted(rows, key=lambda row: int(str(row["id"] or 0))) == [
        {"id": 1, "status": "new", "quantity": 2, "amount": "10.50", "note": None, "revision": 1,
         "created_at": "2026-01-02T03:04:05.6Z", "customer_id": 7, "customer": "Ada", "country": "FR", "email": None,
         "product_id": 3, "product": "Kettle", "category": "kitchen", "price": "5.25"},
        {"id": 2, "status": "new", "quantity": 1, "amount": "0.00", "note": "", "revision": 4,
         "created_at": "2026-01-01T00:00:00Z", "customer_id": None, "customer": None, "country": None, "email": None,
         "product_id": 99, "product": None, "category": None, "price": None},
    ]  # fmt: skip


def test_durations_may_be_negative_and_long() -> None:
    """A MySQL TIME is a duration of up to 838 hours, of either sign."""
    assert canonical(dt.timedelta(hours=-100, seconds=-5, microseconds=-250_000)) == "-100:00:05.25"
    assert canonical(dt.timedelta(minutes=1)) == "00:01:00"
