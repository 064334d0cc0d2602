"""The 22 queries of TPC-H over its eight tables, with random rows in which each query finds something.

The queries have the meaning of the benchmark's definition (revision 3), with constants for its parameters. `LIMIT` has
a row key to decide among equal rows, and a group of all rows has a constant as its key.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

TABLES: dict[str, dict[str, Any]] = {
    "tpch.region": {"key": ["r_regionkey"], "r_regionkey": "int", "r_name": "varchar(25)"},
    "tpch.nation": {"key": ["n_nationkey"], "n_nationkey": "int", "n_name": "varchar(25)", "n_regionkey": "int"},
    "tpch.supplier": {
        "key": ["s_suppkey"], "s_suppkey": "int", "s_name": "varchar(25)", "s_address": "varchar(40)",
        "s_nationkey": "int", "s_phone": "varchar(15)", "s_acctbal": "decimal(15,2)", "s_comment": "varchar(101)",
    },
    "tpch.customer": {
        "key": ["c_custkey"], "c_custkey": "int", "c_name": "varchar(25)", "c_address": "varchar(40)",
        "c_nationkey": "int", "c_phone": "varchar(15)", "c_acctbal": "decimal(15,2)", "c_mktsegment": "varchar(10)",
        "c_comment": "varchar(117)",
    },
    "tpch.part": {
        "key": ["p_partkey"], "p_partkey": "int", "p_name": "varchar(55)", "p_mfgr": "varchar(25)",
        "p_brand": "varchar(10)", "p_type": "varchar(25)", "p_size": "int", "p_container": "varchar(10)",
        "p_retailprice": "decimal(15,2)",
    },
    "tpch.partsupp": {
        "key": ["ps_partkey", "ps_suppkey"], "ps_partkey": "int", "ps_suppkey": "int", "ps_availqty": "int",
        "ps_supplycost": "decimal(15,2)",
    },
    "tpch.orders": {
        "key": ["o_orderkey"], "o_orderkey": "int", "o_custkey": "int", "o_orderstatus": "char(1)",
        "o_totalprice": "decimal(15,2)", "o_orderdate": "date", "o_orderpriority": "varchar(15)",
        "o_shippriority": "int", "o_comment": "varchar(79)",
    },
    "tpch.lineitem": {
        "key": ["l_orderkey", "l_linenumber"], "l_orderkey": "int", "l_linenumber": "int", "l_partkey": "int",
        "l_suppkey": "int", "l_quantity": "decimal(15,2)", "l_extendedprice": "decimal(15,2)",
        "l_discount": "decimal(15,2)", "l_tax": "decimal(15,2)", "l_returnflag": "char(1)", "l_linestatus": "char(1)",
        "l_shipdate": "date", "l_commitdate": "date", "l_receiptdate": "date", "l_shipinstruct": "varchar(25)",
        "l_shipmode": "varchar(10)",
    },
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """A query, its row key, and the tables that it reads."""

    name: str
    text: str
    key: str

    def of(self, tables: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
        """Return those of the tables that it reads."""
        return {name: columns for name, columns in tables.items() if name in self.text}


QUERIES = (
    Query(
        name="q1",
        key="l_returnflag, l_linestatus",
        text="""
        SELECT l_returnflag, l_linestatus, sum(l_quantity) AS sum_qty, sum(l_extendedprice) AS sum_base_price,
          sum(l_extendedprice * (1 - l_discount)) AS sum_disc_price,
          sum(l_extendedprice * (1 - l_discount) * (1 + l_tax)) AS sum_charge, avg(l_quantity) AS avg_qty,
          avg(l_extendedprice) AS avg_price, avg(l_discount) AS avg_disc, count(*) AS count_order
        FROM tpch.lineitem WHERE l_shipdate <= DATE'1998-12-01' - INTERVAL '90' DAY
        GROUP BY l_returnflag, l_linestatus
        ORDER BY l_returnflag, l_linestatus""",
    ),
    Query(
        name="q2",
        key="p_partkey, s_suppkey",
        text="""
        SELECT s_acctbal, s_name, n_name, p_partkey, s_suppkey, p_mfgr, s_address, s_phone, s_comment
        FROM tpch.part, tpch.supplier, tpch.partsupp, tpch.nation, tpch.region
        WHERE p_partkey = ps_partkey AND s_suppkey = ps_suppkey AND p_size = 3 AND p_type LIKE '%BRASS'
          AND s_nationkey = n_nationkey AND n_regionkey = r_regionkey AND r_name = 'EUROPE'
          AND ps_supplycost = (SELECT min(ps_supplycost) FROM tpch.partsupp, tpch.supplier, tpch.nation, tpch.region
            WHERE p_partkey = ps_partkey AND s_suppkey = ps_suppkey AND s_nationkey = n_nationkey
              AND n_regionkey = r_regionkey AND r_name = 'EUROPE')
        ORDER BY s_acctbal DESC, n_name, s_name, p_partkey, s_suppkey LIMIT 100""",
    ),
    Query(
        name="q3",
        key="l_orderkey",
        text="""
        SELECT l_orderkey, sum(l_extendedprice * (1 - l_discount)) AS revenue, o_orderdate, o_shippriority
        FROM tpch.customer, tpch.orders, tpch.lineitem
        WHERE c_mktsegment = 'BUILDING' AND c_custkey = o_custkey AND l_orderkey = o_orderkey
          AND o_orderdate < DATE'1995-03-15' AND l_shipdate > DATE'1995-03-15'
        GROUP BY l_orderkey, o_orderdate, o_shippriority ORDER BY revenue DESC, o_orderdate, l_orderkey LIMIT 10""",
    ),
    Query(
        name="q4",
        key="o_orderpriority",
        text="""
        SELECT o_orderpriority, count(*) AS order_count FROM tpch.orders
        WHERE o_orderdate >= DATE'1993-07-01' AND o_orderdate < DATE'1993-07-01' + INTERVAL '3' YEAR
          AND EXISTS (SELECT * FROM tpch.lineitem WHERE l_orderkey = o_orderkey AND l_commitdate < l_receiptdate)
        GROUP BY o_orderpriority
        ORDER BY o_orderpriority""",
    ),
    Query(
        name="q5",
        key="n_name",
        text="""
        SELECT n_name, sum(l_extendedprice * (1 - l_discount)) AS revenue
        FROM tpch.customer, tpch.orders, tpch.lineitem, tpch.supplier, tpch.nation, tpch.region
        WHERE c_custkey = o_custkey AND l_orderkey = o_orderkey AND l_suppkey = s_suppkey
          AND c_nationkey = s_nationkey AND s_nationkey = n_nationkey AND n_regionkey = r_regionkey
          AND r_name = 'ASIA' AND o_orderdate >= DATE'1994-01-01'
          AND o_orderdate < DATE'1994-01-01' + INTERVAL '2' YEAR
        GROUP BY n_name
        ORDER BY revenue DESC""",
    ),
    Query(
        name="q6",
        key="k",
        text="""
        SELECT 'all' AS k, sum(l_extendedprice * l_discount) AS revenue FROM tpch.lineitem
        WHERE l_shipdate >= DATE'1994-01-01' AND l_shipdate < DATE'1994-01-01' + INTERVAL '1' YEAR
          AND l_discount BETWEEN 0.06 - 0.01 AND 0.06 + 0.01 AND l_quantity < 24""",
    ),
    Query(
        name="q7",
        key="supp_nation, cust_nation, l_year",
        text="""
        SELECT supp_nation, cust_nation, l_year, sum(volume) AS revenue
        FROM (SELECT n1.n_name AS supp_nation, n2.n_name AS cust_nation, EXTRACT(YEAR FROM l_shipdate) AS l_year,
            l_extendedprice * (1 - l_discount) AS volume
          FROM tpch.supplier, tpch.lineitem, tpch.orders, tpch.customer, tpch.nation n1, tpch.nation n2
          WHERE s_suppkey = l_suppkey AND o_orderkey = l_orderkey AND c_custkey = o_custkey
            AND s_nationkey = n1.n_nationkey AND c_nationkey = n2.n_nationkey
            AND ((n1.n_name = 'FRANCE' AND n2.n_name = 'GERMANY') OR (n1.n_name = 'GERMANY' AND n2.n_name = 'FRANCE'))
            AND l_shipdate BETWEEN DATE'1995-01-01' AND DATE'1996-12-31') AS shipping
        GROUP BY supp_nation, cust_nation, l_year
        ORDER BY supp_nation, cust_nation, l_year""",
    ),
    Query(
        name="q8",
        key="o_year",
        text="""
        SELECT o_year, sum(CASE WHEN nation = 'BRAZIL' THEN volume ELSE 0 END) / sum(volume) AS mkt_share
        FROM (SELECT EXTRACT(YEAR FROM o_orderdate) AS o_year, l_extendedprice * (1 - l_discount) AS volume,
            n2.n_name AS nation
          FROM tpch.part, tpch.supplier, tpch.lineitem, tpch.orders, tpch.customer, tpch.nation n1, tpch.nation n2,
            tpch.region
          WHERE p_partkey = l_partkey AND s_suppkey = l_suppkey AND l_orderkey = o_orderkey AND o_custkey = c_custkey
            AND c_nationkey = n1.n_nationkey AND n1.n_regionkey = r_regionkey AND r_name = 'AMERICA'
            AND s_nationkey = n2.n_nationkey AND o_orderdate BETWEEN DATE'1993-01-01' AND DATE'1996-12-31'
            AND p_type = 'ECONOMY STEEL') AS all_nations
        GROUP BY o_year
        ORDER BY o_year""",
    ),
    Query(
        name="q9",
        key="nation, o_year",
        text="""
        SELECT nation, o_year, sum(amount) AS sum_profit
        FROM (SELECT n_name AS nation, EXTRACT(YEAR FROM o_orderdate) AS o_year,
            l_extendedprice * (1 - l_discount) - ps_supplycost * l_quantity AS amount
          FROM tpch.part, tpch.supplier, tpch.lineitem, tpch.partsupp, tpch.orders, tpch.nation
          WHERE s_suppkey = l_suppkey AND ps_suppkey = l_suppkey AND ps_partkey = l_partkey AND p_partkey = l_partkey
            AND o_orderkey = l_orderkey AND s_nationkey = n_nationkey AND p_name LIKE '%green%') AS profit
        GROUP BY nation, o_year
        ORDER BY nation, o_year DESC""",
    ),
    Query(
        name="q10",
        key="c_custkey",
        text="""
        SELECT c_custkey, c_name, sum(l_extendedprice * (1 - l_discount)) AS revenue, c_acctbal, n_name, c_address,
          c_phone, c_comment
        FROM tpch.customer, tpch.orders, tpch.lineitem, tpch.nation
        WHERE c_custkey = o_custkey AND l_orderkey = o_orderkey AND o_orderdate >= DATE'1993-10-01'
          AND o_orderdate < DATE'1993-10-01' + INTERVAL '24' MONTH AND l_returnflag = 'R' AND c_nationkey = n_nationkey
        GROUP BY c_custkey, c_name, c_acctbal, c_phone, n_name, c_address, c_comment
        ORDER BY revenue DESC, c_custkey LIMIT 20""",
    ),
    Query(
        name="q11",
        key="ps_partkey",
        text="""
        SELECT ps_partkey, sum(ps_supplycost * ps_availqty) AS value
        FROM tpch.partsupp, tpch.supplier, tpch.nation
        WHERE ps_suppkey = s_suppkey AND s_nationkey = n_nationkey AND n_name = 'GERMANY'
        GROUP BY ps_partkey
        HAVING sum(ps_supplycost * ps_availqty) > (SELECT sum(ps_supplycost * ps_availqty) * 0.001
          FROM tpch.partsupp, tpch.supplier, tpch.nation
          WHERE ps_suppkey = s_suppkey AND s_nationkey = n_nationkey AND n_name = 'GERMANY')
        ORDER BY value DESC""",
    ),
    Query(
        name="q12",
        key="l_shipmode",
        text="""
        SELECT l_shipmode,
          sum(CASE WHEN o_orderpriority = '1-URGENT' OR o_orderpriority = '2-HIGH' THEN 1 ELSE 0 END)
            AS high_line_count,
          sum(CASE WHEN o_orderpriority <> '1-URGENT' AND o_orderpriority <> '2-HIGH' THEN 1 ELSE 0 END)
            AS low_line_count
        FROM tpch.orders, tpch.lineitem
        WHERE o_orderkey = l_orderkey AND l_shipmode IN ('MAIL', 'SHIP') AND l_commitdate < l_receiptdate
          AND l_shipdate < l_commitdate AND l_receiptdate >= DATE'1994-01-01'
          AND l_receiptdate < DATE'1994-01-01' + INTERVAL '2' YEAR
        GROUP BY l_shipmode
        ORDER BY l_shipmode""",
    ),
    Query(
        name="q13",
        key="c_count",
        text="""
        SELECT c_count, count(*) AS custdist
        FROM (SELECT c_custkey, count(o_orderkey) AS c_count FROM tpch.customer
          LEFT OUTER JOIN tpch.orders ON c_custkey = o_custkey AND o_comment NOT LIKE '%special%requests%'
          GROUP BY c_custkey) AS c_orders
        GROUP BY c_count
        ORDER BY custdist DESC, c_count DESC""",
    ),
    Query(
        name="q14",
        key="k",
        text="""
        SELECT 'all' AS k,
          100.00 * sum(CASE WHEN p_type LIKE 'PROMO%' THEN l_extendedprice * (1 - l_discount) ELSE 0 END)
          / sum(l_extendedprice * (1 - l_discount)) AS promo_revenue
        FROM tpch.lineitem, tpch.part
        WHERE l_partkey = p_partkey AND l_shipdate >= DATE'1995-09-01'
          AND l_shipdate < DATE'1995-09-01' + INTERVAL '12' MONTH""",
    ),
    Query(
        name="q15",
        key="s_suppkey",
        text="""
        WITH revenue AS (SELECT l_suppkey AS supplier_no, sum(l_extendedprice * (1 - l_discount)) AS total_revenue
          FROM tpch.lineitem WHERE l_shipdate >= DATE'1996-01-01'
            AND l_shipdate < DATE'1996-01-01' + INTERVAL '12' MONTH GROUP BY l_suppkey)
        SELECT s_suppkey, s_name, s_address, s_phone, total_revenue FROM tpch.supplier, revenue
        WHERE s_suppkey = supplier_no AND total_revenue = (SELECT max(total_revenue) FROM revenue)
        ORDER BY s_suppkey""",
    ),
    Query(
        name="q16",
        key="p_brand, p_type, p_size",
        text="""
        SELECT p_brand, p_type, p_size, count(DISTINCT ps_suppkey) AS supplier_cnt
        FROM tpch.partsupp, tpch.part
        WHERE p_partkey = ps_partkey AND p_brand <> 'Brand#12' AND p_type NOT LIKE 'PROMO POL%'
          AND p_size IN (1, 2, 3, 5) AND ps_suppkey NOT IN
            (SELECT s_suppkey FROM tpch.supplier WHERE s_comment LIKE '%Customer%Complaints%')
        GROUP BY p_brand, p_type, p_size
        ORDER BY supplier_cnt DESC, p_brand, p_type, p_size""",
    ),
    Query(
        name="q17",
        key="k",
        text="""
        SELECT 'all' AS k, sum(l_extendedprice) / 7.0 AS avg_yearly FROM tpch.lineitem, tpch.part
        WHERE p_partkey = l_partkey AND p_brand = 'Brand#12' AND p_container = 'MED BOX'
          AND l_quantity < (SELECT 0.9 * avg(l_quantity) FROM tpch.lineitem WHERE l_partkey = p_partkey)""",
    ),
    Query(
        name="q18",
        key="o_orderkey",
        text="""
        SELECT c_name, c_custkey, o_orderkey, o_orderdate, o_totalprice, sum(l_quantity) AS quantity
        FROM tpch.customer, tpch.orders, tpch.lineitem
        WHERE o_orderkey IN (SELECT l_orderkey FROM tpch.lineitem GROUP BY l_orderkey HAVING sum(l_quantity) > 60)
          AND c_custkey = o_custkey AND o_orderkey = l_orderkey
        GROUP BY c_name, c_custkey, o_orderkey, o_orderdate, o_totalprice
        ORDER BY o_totalprice DESC, o_orderdate, o_orderkey LIMIT 100""",
    ),
    Query(
        name="q19",
        key="k",
        text="""
        SELECT 'all' AS k, sum(l_extendedprice * (1 - l_discount)) AS revenue FROM tpch.lineitem, tpch.part
        WHERE (p_partkey = l_partkey AND p_brand = 'Brand#12' AND p_container IN ('SM CASE', 'SM BOX')
            AND l_quantity >= 1 AND l_quantity <= 21 AND p_size BETWEEN 1 AND 5 AND l_shipmode IN ('AIR', 'AIR REG')
            AND l_shipinstruct = 'DELIVER IN PERSON')
          OR (p_partkey = l_partkey AND p_brand = 'Brand#23' AND p_container IN ('MED BAG', 'MED BOX')
            AND l_quantity >= 10 AND l_quantity <= 30 AND p_size BETWEEN 1 AND 10 AND l_shipmode IN ('AIR', 'AIR REG')
            AND l_shipinstruct = 'DELIVER IN PERSON')
          OR (p_partkey = l_partkey AND p_brand = 'Brand#34' AND p_container IN ('LG CASE', 'LG BOX')
            AND l_quantity >= 20 AND l_quantity <= 40 AND p_size BETWEEN 1 AND 15 AND l_shipmode IN ('AIR', 'AIR REG')
            AND l_shipinstruct = 'DELIVER IN PERSON')""",
    ),
    Query(
        name="q20",
        key="s_suppkey",
        text="""
        SELECT s_suppkey, s_name, s_address FROM tpch.supplier, tpch.nation
        WHERE s_suppkey IN (SELECT ps_suppkey FROM tpch.partsupp
            WHERE ps_partkey IN (SELECT p_partkey FROM tpch.part WHERE p_name LIKE 'forest%')
              AND ps_availqty > (SELECT 0.5 * sum(l_quantity) FROM tpch.lineitem
                WHERE l_partkey = ps_partkey AND l_suppkey = ps_suppkey AND l_shipdate >= DATE'1994-01-01'
                  AND l_shipdate < DATE'1994-01-01' + INTERVAL '2' YEAR))
          AND s_nationkey = n_nationkey AND n_name = 'CANADA'
        ORDER BY s_name""",
    ),
    Query(
        name="q21",
        key="s_name",
        text="""
        SELECT s_name, count(*) AS numwait FROM tpch.supplier, tpch.lineitem l1, tpch.orders, tpch.nation
        WHERE s_suppkey = l1.l_suppkey AND o_orderkey = l1.l_orderkey AND o_orderstatus = 'F'
          AND l1.l_receiptdate > l1.l_commitdate
          AND EXISTS (SELECT * FROM tpch.lineitem l2
            WHERE l2.l_orderkey = l1.l_orderkey AND l2.l_suppkey <> l1.l_suppkey)
          AND NOT EXISTS (SELECT * FROM tpch.lineitem l3 WHERE l3.l_orderkey = l1.l_orderkey
            AND l3.l_suppkey <> l1.l_suppkey AND l3.l_receiptdate > l3.l_commitdate)
          AND s_nationkey = n_nationkey AND n_name = 'FRANCE'
        GROUP BY s_name ORDER BY numwait DESC, s_name LIMIT 100""",
    ),
    Query(
        name="q22",
        key="cntrycode",
        text="""
        SELECT cntrycode, count(*) AS numcust, sum(c_acctbal) AS totacctbal
        FROM (SELECT substring(c_phone FROM 1 FOR 2) AS cntrycode, c_acctbal FROM tpch.customer
          WHERE substring(c_phone FROM 1 FOR 2) IN ('13', '31', '23', '29')
            AND c_acctbal > (SELECT avg(c_acctbal) FROM tpch.customer WHERE c_acctbal > 0.00
              AND substring(c_phone FROM 1 FOR 2) IN ('13', '31', '23', '29'))
            AND NOT EXISTS (SELECT * FROM tpch.orders WHERE o_custkey = c_custkey)) AS custsale
        GROUP BY cntrycode
        ORDER BY cntrycode""",
    ),
)  # fmt: skip

_NATIONS = ("FRANCE", "GERMANY", "BRAZIL", "CANADA")
_DAYS = ("1993-08-01", "1994-01-01", "1994-06-15", "1995-03-10", "1995-03-20", "1995-10-01", "1996-02-29", "1998-12-01")
_DOMAINS: dict[str, tuple[Any, ...]] = {
    "r_name": ("EUROPE", "ASIA", "AMERICA"),
    "n_name": _NATIONS,
    "phone": tuple(f"{code}-555-{n}" for code in (13, 31, 23, 40) for n in range(3)),
    "s_comment": ("fine", "the Customer has Complaints", "Customer"),
    "c_mktsegment": ("BUILDING", "MACHINERY"),
    "p_name": ("forest green", "forest blue", "dark green", "red"),
    "p_brand": ("Brand#12", "Brand#23", "Brand#34"),
    "p_type": ("ECONOMY STEEL", "PROMO POLISHED", "SMALL BRASS"),
    "p_size": (1, 3, 14),
    "p_container": ("SM CASE", "MED BOX", "LG BOX"),
    "o_orderstatus": ("F", "O"),
    "o_orderpriority": ("1-URGENT", "2-HIGH", "5-LOW"),
    "o_comment": ("special deposit requests", "special", "none"),
    "l_returnflag": ("R", "A", "N"),
    "l_linestatus": ("F", "O"),
    "l_shipinstruct": ("DELIVER IN PERSON", "NONE"),
    "l_shipmode": ("AIR", "AIR REG", "MAIL", "SHIP"),
    "l_discount": ("0.00", "0.05", "0.06", "0.07"),
    "l_tax": ("0.00", "0.08"),
    "l_quantity": ("1.00", "12.00", "23.00", "30.00", "45.00"),
    "date": _DAYS,
}
_REFERENCES = {
    "n_regionkey": "region", "s_nationkey": "nation", "c_nationkey": "nation", "ps_partkey": "part",
    "ps_suppkey": "supplier", "o_custkey": "customer", "l_orderkey": "orders", "l_partkey": "part",
    "l_suppkey": "supplier",
}  # fmt: skip
_SIZES = {"region": 3, "nation": 4, "supplier": 1 / 60, "customer": 1 / 20, "part": 1 / 25, "orders": 1 / 6}
_WEIGHTS = {"lineitem": 12, "orders": 6, "partsupp": 4, "customer": 2, "part": 2, "supplier": 1, "nation": 0.1}


def history(tables: dict[str, dict[str, Any]], changes: int, chance: random.Random) -> Iterator[list[Any]]:
    """Yield a history of so many inserts, updates and deletes, with two pauses in which everything must be equal."""
    sizes = {name: max(3, int(size if size >= 1 else size * changes)) for name, size in _SIZES.items()}
    sizes |= {name: min(sizes[name], most) for name, most in (("supplier", 100), ("part", 200))}  # so that lines meet
    names = [name for name in tables if name != "tpch.region"]
    weights = [_WEIGHTS[name.partition(".")[2]] for name in names]
    yield from _known(tables, sizes, chance)
    for number in range(changes):
        name = chance.choices(names, weights)[0] if names else "tpch.region"
        row = _row(name, sizes, chance)
        dice = chance.random()
        if dice < 0.15 and name != "tpch.nation":
            yield ["delete", name, {column: row[column] for column in tables[name]["key"]}]
        elif number in (changes // 3, changes * 2 // 3):
            yield ["quiet"]
        else:
            yield ["put", name, row]
    yield from _known(tables, sizes, chance)  # so that the answers are not empty


def _known(tables: dict[str, dict[str, Any]], sizes: dict[str, int], chance: random.Random) -> Iterator[list[Any]]:
    """Yield every region and nation under its name, and every supplier."""
    for name in tables:
        small = name.partition(".")[2]
        for number in range(sizes[small] if small in ("region", "nation", "supplier") else 0):
            row = {**_row(name, sizes, chance), tables[name]["key"][0]: number}
            if small in ("region", "nation"):
                row[f"{small[0]}_name"] = _DOMAINS[f"{small[0]}_name"][number]
            if small == "nation":
                row["n_regionkey"] = number % sizes["region"]
            yield ["put", name, row]


def changes(
    tables: dict[str, dict[str, Any]], count: int, chance: random.Random
) -> Iterator[tuple[str, dict[str, Any] | None, dict[str, Any] | None]]:
    """Yield a history as changes: table, row before and row after."""
    live: dict[tuple[Any, ...], dict[str, Any]] = {}
    for word, *arguments in history(tables, count, chance):
        if word == "quiet":
            continue
        name, given = arguments
        at = (name, *(given[column] for column in tables[name]["key"]))
        before, after = live.pop(at, None), None if word == "delete" else given
        if after is not None:
            live[at] = after
        if before != after:
            yield name, before, after


def _row(name: str, sizes: dict[str, int], chance: random.Random) -> dict[str, Any]:
    return {column: _value(column, kind, sizes, chance) for column, kind in TABLES[name].items() if column != "key"}


def _value(column: str, kind: str, sizes: dict[str, int], chance: random.Random) -> Any:
    table = _REFERENCES.get(column)
    if table is None and column.endswith("key"):
        table = next(name for name in sizes if TABLES[f"tpch.{name}"]["key"][0] == column)
    if column == "o_custkey":
        return chance.randrange(sizes["customer"] * 2 // 3)  # the others have no orders
    if table is not None:
        return chance.randrange(sizes[table])
    if column == "l_linenumber":
        return chance.randrange(3)
    domain = _DOMAINS.get(column) or _DOMAINS.get(column.partition("_")[2]) or _DOMAINS.get(kind)
    if domain is not None:
        return chance.choice(domain)
    if kind.startswith("decimal"):
        return (
            f"{chance.randrange(-99, 10_000) / 100:.2f}"
            if column.endswith("bal")
            else f"{chance.randrange(10_000) / 100:.2f}"
        )
    return chance.randrange(100) if kind == "int" else f"{column}{chance.randrange(5)}"
