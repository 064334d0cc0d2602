"""Queries with the shapes of TPC-H and NEXMark, with updates and deletes: joins alone, and with their aggregation.

Sources: the TPC-H specification, 3.0.1; NEXMark as in the suites of Beam and Flink. Values are small and generated
here;
only the shape of the join and of its conditions matters.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

Row = dict[str, Any]
Made = Callable[[random.Random, "Sizes", int], Row]


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Rows per table, by name."""

    of: dict[str, int]

    def pick(self, chance: random.Random, table: str) -> int:
        return chance.randrange(self.of[table])


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Tables with columns and shares of the rows, a function that makes a row from its number, and the SELECT."""

    tables: dict[str, dict[str, Any]]
    shares: dict[str, float]
    rows: dict[str, Made]
    query: str
    row_key: list[str]


TPCH: dict[str, dict[str, Any]] = {
    "tpch.customer": {"key": ["custkey"], "custkey": "int", "nationkey": "int", "mktsegment": "varchar(9)",
                      "name": "varchar(25)", "acctbal": "decimal(15,2)"},
    "tpch.orders": {"key": ["orderkey"], "orderkey": "int", "custkey": "int", "orderdate": "date",
                    "shippriority": "int", "comment": "varchar(20)", "orderpriority": "varchar(15)",
                    "totalprice": "decimal(15,2)"},
    "tpch.lineitem": {"key": ["orderkey", "linenumber"], "orderkey": "int", "linenumber": "int", "suppkey": "int",
                      "extendedprice": "decimal(15,2)", "discount": "decimal(15,2)", "shipdate": "date",
                      "returnflag": "varchar(1)", "linestatus": "varchar(1)", "quantity": "decimal(15,2)",
                      "tax": "decimal(15,2)", "shipmode": "varchar(10)", "commitdate": "date", "receiptdate": "date"},
    "ref.supplier": {"key": ["suppkey"], "suppkey": "int", "nationkey": "int"},
    "ref.nation": {"key": ["nationkey"], "nationkey": "int", "regionkey": "int", "name": "varchar(25)"},
    "ref.region": {"key": ["regionkey"], "regionkey": "int", "name": "varchar(25)"},
}  # fmt: skip
LINES = 4  # per order


def _day(chance: random.Random) -> str:
    return f"199{chance.randrange(3, 6)}-{chance.randrange(1, 13):02}-{chance.randrange(1, 29):02}Z"


def _money(chance: random.Random) -> str:
    return f"{chance.randrange(90_000)}.{chance.randrange(100):02}"


TPCH_ROWS: dict[str, Made] = {
    "tpch.customer": lambda c, s, n: {
        "custkey": n, "nationkey": s.pick(c, "ref.nation"), "mktsegment": c.choice(["BUILDING", "MACHINERY"]),
        "name": f"Customer#{n}", "acctbal": _money(c)},
    "tpch.orders": lambda c, s, n: {
        "orderkey": n, "custkey": s.pick(c, "tpch.customer"), "orderdate": _day(c), "shippriority": c.randrange(3),
        "comment": f"c{c.randrange(100)}", "orderpriority": c.choice(["1-URGENT", "2-HIGH", "3-MEDIUM", "5-LOW"]),
        "totalprice": _money(c)},
    "tpch.lineitem": lambda c, s, n: {
        "orderkey": n // LINES, "linenumber": n % LINES, "suppkey": s.pick(c, "ref.supplier"),
        "extendedprice": _money(c), "discount": f"0.0{c.randrange(10)}", "shipdate": _day(c),
        "returnflag": c.choice("RAN"), "linestatus": c.choice("OF"), "quantity": f"{c.randrange(1, 51)}.00",
        "tax": f"0.0{c.randrange(9)}", "shipmode": c.choice(["MAIL", "SHIP", "RAIL", "AIR"]),
        "commitdate": _day(c), "receiptdate": _day(c)},
    "ref.supplier": lambda c, s, n: {"suppkey": n, "nationkey": s.pick(c, "ref.nation")},
    "ref.nation": lambda c, s, n: {"nationkey": n, "regionkey": s.pick(c, "ref.region"), "name": f"NATION {n}"},
    "ref.region": lambda c, s, n: {"regionkey": n, "name": ["ASIA", "EUROPE", "AFRICA"][n % 3]},
}  # fmt: skip
TPCH_SHARES = {"tpch.customer": 0.1, "tpch.orders": 0.2, "tpch.lineitem": 0.68, "ref.supplier": 0.02,
               "ref.nation": 0.0, "ref.region": 0.0}  # fmt: skip

NEXMARK: dict[str, dict[str, Any]] = {
    "nexmark.person": {"key": ["id"], "id": "bigint", "name": "varchar(20)", "city": "varchar(20)",
                       "state": "varchar(2)"},
    "nexmark.auction": {"key": ["id"], "id": "bigint", "itemname": "varchar(20)", "seller": "bigint",
                        "category": "int", "expires": "datetime(3)"},
    "nexmark.bid": {"key": ["id"], "id": "bigint", "auction": "bigint", "bidder": "bigint", "price": "bigint",
                    "at": "datetime(3)"},
}  # fmt: skip
NEXMARK_ROWS: dict[str, Made] = {
    "nexmark.person": lambda c, s, n: {
        "id": n, "name": f"p{n}", "city": f"c{c.randrange(50)}", "state": c.choice(["or", "id", "ca", "wa", "az"])},
    "nexmark.auction": lambda c, s, n: {
        "id": n, "itemname": f"i{n}", "seller": s.pick(c, "nexmark.person"), "category": c.randrange(10, 15),
        "expires": f"2026-01-{c.randrange(1, 29):02}T00:00:00.5Z"},
    "nexmark.bid": lambda c, s, n: {
        "id": n, "auction": s.pick(c, "nexmark.auction"), "bidder": s.pick(c, "nexmark.person"),
        "price": c.randrange(10_000), "at": f"2026-01-{c.randrange(1, 29):02}T00:00:01Z"},
}  # fmt: skip
NEXMARK_SHARES = {"nexmark.person": 0.1, "nexmark.auction": 0.2, "nexmark.bid": 0.7}

SHAPES = {
    "tpch-q3": Shape(
        tables=TPCH, shares=TPCH_SHARES, rows=TPCH_ROWS, row_key=["orderkey", "linenumber"],
        query="SELECT l.orderkey, l.linenumber, l.extendedprice * (1 - l.discount) AS revenue, o.orderdate,"
        " o.shippriority FROM tpch.customer c, tpch.orders o, tpch.lineitem l WHERE c.mktsegment = 'BUILDING'"
        " AND c.custkey = o.custkey AND l.orderkey = o.orderkey AND o.orderdate < DATE'1995-03-15'"
        " AND l.shipdate > DATE'1995-03-15'",
    ),
    "tpch-q5": Shape(
        tables=TPCH, shares=TPCH_SHARES, rows=TPCH_ROWS, row_key=["orderkey", "linenumber"],
        query="SELECT l.orderkey, l.linenumber, n.name AS nation, l.extendedprice * (1 - l.discount) AS revenue"
        " FROM tpch.customer c, tpch.orders o, tpch.lineitem l, ref.supplier s, ref.nation n, ref.region r"
        " WHERE c.custkey = o.custkey AND l.orderkey = o.orderkey AND l.suppkey = s.suppkey"
        " AND c.nationkey = s.nationkey AND s.nationkey = n.nationkey AND n.regionkey = r.regionkey"
        " AND r.name = 'ASIA' AND o.orderdate >= DATE'1994-01-01' AND o.orderdate < DATE'1995-01-01'",
    ),
    "tpch-q10": Shape(
        tables=TPCH, shares=TPCH_SHARES, rows=TPCH_ROWS, row_key=["orderkey", "linenumber"],
        query="SELECT l.orderkey, l.linenumber, c.custkey, c.name, c.acctbal, n.name AS nation,"
        " l.extendedprice * (1 - l.discount) AS revenue FROM tpch.customer c, tpch.orders o, tpch.lineitem l,"
        " ref.nation n WHERE c.custkey = o.custkey AND l.orderkey = o.orderkey AND o.orderdate >= DATE'1993-10-01'"
        " AND o.orderdate < DATE'1994-01-01' AND l.returnflag = 'R' AND c.nationkey = n.nationkey",
    ),
    "nexmark-q3": Shape(
        tables=NEXMARK, shares=NEXMARK_SHARES, rows=NEXMARK_ROWS, row_key=["id"],
        query="SELECT p.name, p.city, p.state, a.id FROM nexmark.auction AS a INNER JOIN nexmark.person AS p"
        " ON a.seller = p.id WHERE a.category = 10 AND (p.state = 'or' OR p.state = 'id' OR p.state = 'ca')",
    ),
    "nexmark-q20": Shape(
        tables=NEXMARK, shares=NEXMARK_SHARES, rows=NEXMARK_ROWS, row_key=["id"],
        query="SELECT b.id, b.auction, b.bidder, b.price, b.at, a.itemname, a.seller, a.category, a.expires"
        " FROM nexmark.bid AS b INNER JOIN nexmark.auction AS a ON b.auction = a.id WHERE a.category = 10",
    ),
}  # fmt: skip

_REVENUE = "sum(CAST(l.extendedprice * (1 - l.discount) AS DECIMAL(18,4)))"
_BIDS = "SELECT b.auction, date_trunc('HOUR', b.at) AS hour, count(*) AS n FROM nexmark.bid b GROUP BY 1, 2"
GROUPED = {
    "tpch-q1": Shape(
        tables=TPCH, shares=TPCH_SHARES, rows=TPCH_ROWS, row_key=["returnflag", "linestatus"],
        query="SELECT l.returnflag, l.linestatus, sum(l.quantity) AS sum_qty, sum(l.extendedprice) AS sum_base_price,"
        f" {_REVENUE} AS sum_disc_price, avg(l.quantity) AS avg_qty, avg(l.extendedprice) AS avg_price,"
        " sum(CAST(CAST(l.extendedprice * (1 - l.discount) AS DECIMAL(18,4)) * (1 + l.tax) AS DECIMAL(20,6)))"
        " AS sum_charge, avg(l.discount) AS avg_disc, count(*) AS count_order FROM tpch.lineitem l"
        " WHERE l.shipdate <= DATE'1995-09-02' GROUP BY l.returnflag, l.linestatus",
    ),
    "tpch-q3": Shape(
        tables=TPCH, shares=TPCH_SHARES, rows=TPCH_ROWS, row_key=["orderkey", "orderdate", "shippriority"],
        query=f"SELECT l.orderkey, {_REVENUE} AS revenue, o.orderdate, o.shippriority"
        " FROM tpch.customer c, tpch.orders o, tpch.lineitem l WHERE c.mktsegment = 'BUILDING'"
        " AND c.custkey = o.custkey AND l.orderkey = o.orderkey AND o.orderdate < DATE'1995-03-15'"
        " AND l.shipdate > DATE'1995-03-15' GROUP BY l.orderkey, o.orderdate, o.shippriority",
    ),
    "tpch-q4": Shape(
        tables=TPCH, shares=TPCH_SHARES, rows=TPCH_ROWS, row_key=["orderpriority"],
        query="SELECT o.orderpriority, count(*) AS order_count FROM tpch.orders o WHERE o.orderdate >= DATE'1993-07-01'"
        " AND o.orderdate < DATE'1994-07-01' AND EXISTS (SELECT * FROM tpch.lineitem l WHERE l.orderkey = o.orderkey"
        " AND l.commitdate < l.receiptdate) GROUP BY o.orderpriority",
    ),
    "tpch-q5": Shape(
        tables=TPCH, shares=TPCH_SHARES, rows=TPCH_ROWS, row_key=["nation"],
        query=f"SELECT n.name AS nation, {_REVENUE} AS revenue FROM tpch.customer c, tpch.orders o, tpch.lineitem l,"
        " ref.supplier s, ref.nation n, ref.region r WHERE c.custkey = o.custkey AND l.orderkey = o.orderkey"
        " AND l.suppkey = s.suppkey AND c.nationkey = s.nationkey AND s.nationkey = n.nationkey"
        " AND n.regionkey = r.regionkey AND r.name = 'ASIA' AND o.orderdate >= DATE'1994-01-01'"
        " AND o.orderdate < DATE'1995-01-01' GROUP BY n.name",
    ),
    "tpch-q10": Shape(
        tables=TPCH, shares=TPCH_SHARES, rows=TPCH_ROWS, row_key=["custkey", "name", "acctbal", "nation"],
        query=f"SELECT c.custkey, c.name, {_REVENUE} AS revenue, c.acctbal, n.name AS nation FROM tpch.customer c,"
        " tpch.orders o, tpch.lineitem l, ref.nation n WHERE c.custkey = o.custkey AND l.orderkey = o.orderkey"
        " AND o.orderdate >= DATE'1993-10-01' AND o.orderdate < DATE'1994-01-01' AND l.returnflag = 'R'"
        " AND c.nationkey = n.nationkey GROUP BY c.custkey, c.name, c.acctbal, n.name",
    ),
    "tpch-q12": Shape(
        tables=TPCH, shares=TPCH_SHARES, rows=TPCH_ROWS, row_key=["shipmode"],
        query="SELECT l.shipmode, sum(CASE WHEN o.orderpriority IN ('1-URGENT', '2-HIGH') THEN 1 ELSE 0 END) AS high,"
        " sum(CASE WHEN o.orderpriority NOT IN ('1-URGENT', '2-HIGH') THEN 1 ELSE 0 END) AS low"
        " FROM tpch.orders o, tpch.lineitem l WHERE o.orderkey = l.orderkey AND l.shipmode IN ('MAIL', 'SHIP')"
        " AND l.commitdate < l.receiptdate AND l.shipdate < l.commitdate AND l.receiptdate >= DATE'1994-01-01'"
        " AND l.receiptdate < DATE'1995-01-01' GROUP BY l.shipmode",
    ),
    "tpch-q13": Shape(
        tables=TPCH, shares=TPCH_SHARES, rows=TPCH_ROWS, row_key=["c_count"],
        query="SELECT a.c_count, count(*) AS custdist FROM (SELECT c.custkey, count(o.orderkey) AS c_count"
        " FROM tpch.customer c LEFT JOIN tpch.orders o ON c.custkey = o.custkey AND NOT o.comment LIKE 'c1%'"
        " GROUP BY c.custkey) a GROUP BY a.c_count",
    ),
    "tpch-q18": Shape(
        tables=TPCH, shares=TPCH_SHARES, rows=TPCH_ROWS,
        row_key=["name", "custkey", "orderkey", "orderdate", "totalprice"],
        query="SELECT c.name, c.custkey, o.orderkey, o.orderdate, o.totalprice, sum(l.quantity) AS quantity"
        " FROM tpch.customer c, tpch.orders o, tpch.lineitem l WHERE o.orderkey IN (SELECT orderkey FROM tpch.lineitem"
        " GROUP BY orderkey HAVING sum(quantity) > 120) AND c.custkey = o.custkey AND o.orderkey = l.orderkey"
        " GROUP BY c.name, c.custkey, o.orderkey, o.orderdate, o.totalprice",
    ),
    "tpch-q15": Shape(
        tables=TPCH, shares=TPCH_SHARES, rows=TPCH_ROWS, row_key=["suppkey"],
        query=f"WITH revenue AS (SELECT l.suppkey AS supplier, {_REVENUE} AS total FROM tpch.lineitem l"
        " WHERE l.shipdate >= DATE'1995-01-01' AND l.shipdate < DATE'1995-01-01' + INTERVAL '3' MONTH"
        " GROUP BY l.suppkey) SELECT s.suppkey, r.total FROM ref.supplier s, revenue r"
        " WHERE s.suppkey = r.supplier AND r.total >= (SELECT 0.5 * max(v.total) FROM revenue v)",
    ),
    "tpch-q21": Shape(
        tables=TPCH, shares=TPCH_SHARES, rows=TPCH_ROWS, row_key=["suppkey"],
        query="SELECT s.suppkey, count(*) AS numwait FROM ref.supplier s, tpch.lineitem l1, tpch.orders o, ref.nation n"
        " WHERE s.suppkey = l1.suppkey AND o.orderkey = l1.orderkey AND l1.receiptdate > l1.commitdate"
        " AND EXISTS (SELECT * FROM tpch.lineitem l2 WHERE l2.orderkey = l1.orderkey AND l2.suppkey <> l1.suppkey)"
        " AND NOT EXISTS (SELECT * FROM tpch.lineitem l3 WHERE l3.orderkey = l1.orderkey AND l3.suppkey <> l1.suppkey"
        " AND l3.receiptdate > l3.commitdate) AND s.nationkey = n.nationkey GROUP BY s.suppkey, n.name"
        " ORDER BY numwait DESC, s.suppkey LIMIT 20",
    ),
    "tpch-q22": Shape(
        tables=TPCH, shares=TPCH_SHARES, rows=TPCH_ROWS, row_key=["nationkey"],
        query="SELECT c.nationkey, count(*) AS numcust, sum(c.acctbal) AS total FROM tpch.customer c"
        " WHERE c.acctbal > (SELECT avg(x.acctbal) FROM tpch.customer x WHERE x.acctbal > 0.00)"
        " AND NOT EXISTS (SELECT * FROM tpch.orders o WHERE o.custkey = c.custkey) GROUP BY c.nationkey",
    ),
    "nexmark-q4": Shape(
        tables=NEXMARK, shares=NEXMARK_SHARES, rows=NEXMARK_ROWS, row_key=["category"],
        query="SELECT q.category, avg(q.final) AS average FROM (SELECT max(b.price) AS final, a.category"
        " FROM nexmark.auction a, nexmark.bid b WHERE a.id = b.auction AND b.at <= a.expires"
        " GROUP BY a.id, a.category) q GROUP BY q.category",
    ),
    "nexmark-q5": Shape(
        tables=NEXMARK, shares=NEXMARK_SHARES, rows=NEXMARK_ROWS, row_key=["auction", "hour"],
        query=f"WITH bids AS ({_BIDS}) SELECT c.auction, c.hour, c.n FROM bids c"
        " JOIN (SELECT hour, max(n) AS most FROM bids GROUP BY hour) m ON m.hour = c.hour WHERE c.n >= m.most",
    ),
    "nexmark-q18": Shape(
        tables=NEXMARK, shares=NEXMARK_SHARES, rows=NEXMARK_ROWS, row_key=["bidder", "auction"],
        query="SELECT t.bidder, t.auction, t.price, t.at FROM (SELECT b.*, ROW_NUMBER() OVER (PARTITION BY b.bidder,"
        " b.auction ORDER BY b.at DESC) AS n FROM nexmark.bid b) t WHERE t.n <= 1",
    ),
    "nexmark-q19": Shape(
        tables=NEXMARK, shares=NEXMARK_SHARES, rows=NEXMARK_ROWS, row_key=["category", "place"],
        query="SELECT t.* FROM (SELECT a.category, b.auction, b.bidder, b.price, ROW_NUMBER() OVER (PARTITION BY"
        " a.category ORDER BY b.price DESC) AS place FROM nexmark.bid b JOIN nexmark.auction a ON a.id = b.auction) t"
        " WHERE t.place <= 10",
    ),
    "nexmark-q9": Shape(
        tables=NEXMARK, shares=NEXMARK_SHARES, rows=NEXMARK_ROWS, row_key=["id", "itemname", "category"],
        query="SELECT a.id, a.itemname, a.category, max(b.price) AS price, max_by(b.bidder, b.price) AS bidder"
        " FROM nexmark.auction a, nexmark.bid b WHERE a.id = b.auction AND b.at <= a.expires"
        " GROUP BY a.id, a.itemname, a.category",
    ),
}  # fmt: skip


def changes_of(shape: Shape, count: int, seed: int) -> Iterator[tuple[str, Row | None, Row | None]]:
    """(table, before, after): half of them inserts, then updates that move keys and deletes with later re-inserts."""
    chance = random.Random(seed)
    sizes = Sizes(of={name: max(6, round(count / 2 * share)) for name, share in shape.shares.items()})
    live: dict[tuple[str, int], Row] = {}
    numbers = [(name, n) for name, size in sizes.of.items() for n in range(size)]
    chance.shuffle(numbers)
    made = 0
    for name, n in numbers:
        live[name, n] = after = shape.rows[name](chance, sizes, n)
        yield name, None, after
        made += 1
    while made < count:
        name, n = at = chance.choice(numbers)
        before = live.get(at)
        changed = None if before is not None and chance.random() < 0.2 else shape.rows[name](chance, sizes, n)
        if before == changed:
            continue
        if changed is None:
            del live[at]
        else:
            live[at] = changed
        yield name, before, changed
        made += 1
