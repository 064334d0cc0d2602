"""Define shapes of aggregates and many-to-many joins, over logs created like those of the joins benchmark."""

from __future__ import annotations

from typing import Final

from benchmarks.joins.workload import TIME, Shape, Table

FAN_OUT: Final = 20  # partners of a row in the many-to-many join

_ORDER: Final = {"amount": "bigint", "status": "string"}
_REVENUE = """SELECT c.id, c.name, count(*) AS orders, sum(o.amount) AS revenue
FROM bench.orders o JOIN bench.customers c ON c.id = o.customers_id GROUP BY c.id, c.name"""
_GLOBAL = "SELECT 'all' AS id, count(*) AS orders, sum(o.amount) AS revenue FROM bench.orders o"
_HOT = """SELECT o.customers_id AS id, count(*) AS orders, sum(o.amount) AS revenue, max(o.amount) AS largest
FROM bench.orders o GROUP BY o.customers_id"""
_DISTINCT = """SELECT o.shops_id AS id, count(*) AS orders, count(DISTINCT o.customers_id) AS customers
FROM bench.orders o GROUP BY o.shops_id"""
_PAIRS = """SELECT o.id, v.id AS visit, o.amount, v.price FROM bench.orders o
JOIN bench.visits v ON v.customers_id = o.customers_id"""
# an average of integers is an integer in Flink, but not in MySQL; for doubles both are equal
_Q4 = """SELECT q.category AS id, avg(CAST(q.highest AS DOUBLE)) AS price
FROM (
  SELECT a.id, a.category, max(b.price) AS highest
  FROM bench.auctions a JOIN bench.bids b ON b.auctions_id = a.id
  WHERE b.moment BETWEEN a.opened AND a.expires
  GROUP BY a.id, a.category
) q GROUP BY q.category"""
# a change of an amount moves a row within its partition; Flink orders by one column, and has no rank() without a limit
_WINDOW = """SELECT o.id, o.customers_id, sum(o.amount) OVER (PARTITION BY o.customers_id ORDER BY o.amount) AS total,
  count(o.amount) OVER (PARTITION BY o.customers_id ORDER BY o.amount) AS nr
FROM bench.orders o"""
_SUBQUERY = """SELECT o.id, o.amount FROM bench.orders o
WHERE o.amount > (SELECT avg(CAST(i.amount AS DOUBLE)) FROM bench.orders i WHERE i.customers_id = o.customers_id)"""
# the last minute: a row leaves its group as time passes. Flink compares a row with the clock only when it arrives, so
# its rows stay, and it has less to do. Its windows forget rows, but give a result per window.
_TEMPORAL = """SELECT o.customers_id AS id, count(*) AS orders, sum(o.amount) AS revenue FROM bench.orders o
WHERE o.at >= now() - INTERVAL 1 MINUTE GROUP BY o.customers_id"""
_ARRIVED = """SELECT o.customers_id AS id, count(*) AS orders, sum(o.amount) AS revenue FROM bench.orders o
WHERE o.`at` >= CURRENT_TIMESTAMP - INTERVAL '1' MINUTE GROUP BY o.customers_id"""


def aggregate_shapes(scale: float) -> dict[str, Shape]:
    """Return nine shapes with two million changes each at `scale` 1.0; those that fan out have fewer."""
    changes = int(2_000_000 * scale)

    def size(rows: int) -> int:
        return max(50, int(rows * scale))

    customers = _referred("customers", size(200_000), 0.1, {"name": "string", "city": "string"})
    orders, by_shop = _fact("orders", _ORDER, "customers"), _fact("orders", _ORDER, "customers", "shops")
    some, visited = _ids("customers", size(200_000)), size(10_000)
    shapes = [
        Shape(name="revenue", tables=(orders, customers), query=_REVENUE, row_key=("id", "name"), changes=changes),
        Shape(name="global", tables=(orders, some), query=_GLOBAL, changes=changes),
        Shape(name="hot_group", tables=(orders, some), query=_HOT, changes=changes, skew=0.9),
        Shape(
            name="distinct",
            tables=(by_shop, some, _ids("shops", size(1_000))),
            query=_DISTINCT,
            changes=changes,
        ),
        Shape(
            name="pairs",
            tables=(
                orders,
                _referred("visits", visited * FAN_OUT, 0.05, {"price": "bigint"}, "customers"),
                _ids("customers", visited),
            ),
            query=_PAIRS,
            row_key=("id", "visit"),
            changes=changes // 4 + visited * FAN_OUT,
        ),
        Shape(
            name="q4",
            tables=(
                _fact("bids", {"price": "bigint", "moment": "bigint"}, "auctions"),
                _referred(
                    "auctions", size(200_000), 0.05, {"category": "string", "opened": "bigint", "expires": "bigint"}
                ),
            ),
            query=_Q4,
            changes=changes,
        ),
        Shape(name="window", tables=(orders, _ids("customers", size(10_000))), query=_WINDOW, changes=changes // 8),
        Shape(
            name="temporal",
            tables=(_fact("orders", {"amount": "bigint", TIME: "timestamp_ltz(3)"}, "customers"), some),
            query=_TEMPORAL,
            changes=changes,
            flink=_ARRIVED,
        ),
        Shape(name="subquery", tables=(orders, _ids("customers", size(40_000))), query=_SUBQUERY, changes=changes // 4),
    ]
    return {shape.name: shape for shape in shapes}


def _fact(name: str, columns: dict[str, str], *references: str) -> Table:
    return Table(name=name, rows=0, references={f"{to}_id": to for to in references}, share=0.0, columns=columns)


def _referred(name: str, rows: int, share: float, columns: dict[str, str], *references: str) -> Table:
    return Table(name=name, rows=rows, references={f"{to}_id": to for to in references}, share=share, columns=columns)


def _ids(name: str, rows: int) -> Table:
    return Table(name=name, rows=rows, references={}, share=0.0, columns={}, logged=False)
