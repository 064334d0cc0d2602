"""The oracle's answers to aggregated queries equal those computed by hand: it must be right before it may judge."""

from __future__ import annotations

from typing import Any

import pytest

from cdc.model.schema import TableId
from joins.oracle.oracle import Rows
from joins.oracle.sql_oracle import Answer, Oracle
from tests.joins.altering import table_id
from tests.joins.joincase import Case, Row

SALES = {"key": ["id"], "id": "int", "shop": "varchar(9)?", "n": "int?", "d": "decimal(6,2)?", "f": "double?",
         "at": "datetime(3)?", "big": "decimal(38,0)?", "unsigned": "bigint unsigned?", "yes": "bit(1)?",
         "day": "date?"}  # fmt: skip
SHOPS = {"key": ["name"], "name": "varchar(9)", "city": "varchar(9)?"}


def sale(id_: int, shop: str | None, n: int | None = None, d: str | None = None, **others: Any) -> Row:
    missing: Row = dict.fromkeys(name for name in SALES if name != "key")
    return {**missing, "id": id_, "shop": shop, "n": n, "d": d, **others}


ROWS = [
    sale(1, "a", 3, "1.00", f=0.1, at="2026-01-01T10:20:00.5Z", day="2026-01-02Z", yes=True),
    sale(2, "a", 3, "1.00", f=0.2, at="2026-01-01T10:59:00Z", day="2026-01-01Z", yes=False),
    sale(3, "a", 1, "0.01", f=0.3, at="2026-01-01T11:00:00Z", yes=None),
    sale(4, None, 2, "-5.50", f=-0.5, yes=True),
    sale(5, None, None, "-0.01", yes=True),
    sale(6, "b"),
]
PLACES: list[Row] = [{"name": "a", "city": "x"}, {"name": "b", "city": "x"}, {"name": "c", "city": None}]


def asked(query: str, row_key: str, rows: list[Row] = ROWS, **views: Any) -> Answer:
    case = Case(
        tables={"shop.sales": SALES, "shop.shops": SHOPS}, query=query, row_key=row_key.split(), history=[], views=views
    )
    topology = case.topology()
    oracle = Oracle(topology, case.schemas())
    try:
        tables: dict[TableId, Rows] = {
            table_id("shop.sales"): {(row["id"],): row for row in rows},
            table_id("shop.shops"): {(row["name"],): row for row in PLACES},
        }
        return oracle.answer(topology.tables["wide"], tuple(row_key.split()), tables)
    finally:
        oracle.close()


def values(answer: Answer) -> list[list[Any]]:
    return [list(row.values()) for _, row in sorted(answer.items(), key=str)]


# Each: the function, and its value in the groups a, b, NULL.
FUNCTIONS: list[tuple[str, Any, Any, Any]] = [
    ("count(*)", 3, 1, 2),
    ("count(1)", 3, 1, 2),
    ("count(n)", 3, 0, 1),
    ("count(DISTINCT n)", 2, 0, 1),
    ("count(NOT n = 3, d)", 3, 0, 1),
    ("collect_set(NOT n = 3)", [False, True], [], [True]),
    ("count(DISTINCT n, d)", 2, 0, 1),
    ("sum(n)", 7, None, 2),
    ("sum(DISTINCT n)", 4, None, 2),
    ("sum(d)", "2.01", None, "-5.51"),
    ("sum(DISTINCT d)", "1.01", None, "-5.51"),
    ("sum(f)", 0.6, None, -0.5),
    ("avg(n)", 7 / 3, None, 2.0),
    ("mean(n)", 7 / 3, None, 2.0),
    ("avg(d)", "0.670000", None, "-2.755000"),
    ("avg(f)", 0.2, None, -0.5),
    ("avg(d * d)", "0.66670000", None, "15.12505000"),
    ("sum(d * 2)", "4.02", None, "-11.02"),
    ("min(n)", 1, None, 2),
    ("max(n)", 3, None, 2),
    ("max(d)", "1.00", None, "-0.01"),
    ("min(at)", "2026-01-01T10:20:00.5Z", None, None),
    ("max(day)", "2026-01-02Z", None, None),
    ("max_by(id, n)", 2, None, 4),
    ("min_by(id, d)", 3, None, 4),
    ("min_by(id, n < 2)", 1, None, 4),
    ("max_by(day, n)", "2026-01-02Z", None, None),
    ("min_by(n, yes)", 3, None, None),
    ("collect_list(n)", [1, 3, 3], [], [2]),
    ("array_agg(d)", ["0.01", "1.00", "1.00"], [], ["-5.50", "-0.01"]),
    ("collect_set(n)", [1, 3], [], [2]),
    ("collect_set(at)", ["2026-01-01T10:20:00.5Z", "2026-01-01T10:59:00Z", "2026-01-01T11:00:00Z"], [], []),
    ("mode(n)", 3, None, 2),
    ("median(n)", 3.0, None, 2.0),
    ("median(d)", 1.0, None, -2.755),
    ("percentile(n, 0.75)", 3.0, None, 2.0),
    ("percentile_cont(0.75) WITHIN GROUP (ORDER BY n DESC)", 2.0, None, 2.0),
    ("percentile_disc(0.3) WITHIN GROUP (ORDER BY n)", 1.0, None, 2.0),
    ("percentile_approx(d, 0.5)", "1.00", None, "-5.50"),
    ("string_agg(n, '; ')", "1; 3; 3", None, "2"),
    ("string_agg(DISTINCT n)", "13", None, "2"),
    ("variance(n)", 4 / 3, None, None),
    ("var_pop(n)", 8 / 9, None, 0.0),
    ("stddev(n)", (4 / 3) ** 0.5, None, None),
    ("stddev_pop(d)", 0.2178**0.5, None, 2.745),
    ("count_if(n > 1)", 2, 0, 1),
    ("bool_and(yes)", False, None, True),
    ("every(n > 0)", True, None, True),
    ("bool_or(yes)", True, None, True),
    ("any(n > 2)", True, None, False),
    ("some(n > 2)", True, None, False),
    ("count(*) FILTER (WHERE n > 1)", 2, 0, 1),
    ("sum(d) FILTER (WHERE n > 1)", "2.00", None, "-5.50"),
    ("avg(d) FILTER (WHERE n > 1)", "1.000000", None, "-5.500000"),
    ("collect_list(n) FILTER (WHERE n > 1)", [3, 3], [], [2]),
    ("max_by(id, n) FILTER (WHERE id <> 2)", 1, None, 4),
    ("collect_set(n) FILTER (WHERE id > 2)", [1], [], [2]),
    ("sum(n) * 2 + count(*)", 17, None, 6),
    ("sum(n) / count(*)", 7 / 3, None, 1.0),
    ("sum(d) / count(*)", "0.67000000000000000000000", None, "-2.75500000000000000000000"),
    ("sum(d) / 3", "0.670000", None, "-1.836667"),
    ("sum(d / 3)", "0.669999", None, "-1.836666"),
    ("avg(n / 2)", 7 / 6, None, 1.0),
    ("coalesce(sum(n), 0)", 7, 0, 2),
    ("max(n) - min(n)", 2, None, 0),
    ("sum(CASE WHEN n > 1 THEN d ELSE 0 END)", "2.00", "0.00", "-5.50"),
    ("upper(max(shop))", "A", "B", None),
]


@pytest.mark.parametrize("function", FUNCTIONS, ids=[function[0] for function in FUNCTIONS])
def test_functions(function: tuple[str, Any, Any, Any]) -> None:
    """Every aggregate, over values that repeat, some or all of which are NULL."""
    text, *expected = function
    found = values(asked(f"SELECT shop, {text} AS x FROM shop.sales GROUP BY shop", "shop"))
    for (shop, x), (known, value) in zip(found, zip(["a", "b", None], expected, strict=True), strict=True):
        assert shop == known
        assert x == (pytest.approx(value, rel=1e-12) if isinstance(value, float) else value), shop
        assert type(x) is type(value)


QUERIES: list[tuple[str, str, list[list[Any]]]] = [
    ("SELECT 'all' AS scope, count(*) AS c, sum(d) AS s FROM shop.sales", "scope", [["all", 6, "-3.50"]]),
    ("SELECT 'all' AS scope, count(*) AS c, max(n) AS m, collect_set(n) AS l FROM shop.sales WHERE id > 9", "scope",
     [["all", 0, None, []]]),
    ("SELECT shop, n, count(*) AS c FROM shop.sales GROUP BY shop, n", "shop n",
     [["a", 1, 1], ["a", 3, 2], ["b", None, 1], [None, 2, 1], [None, None, 1]]),
    ("SELECT n % 2 AS odd, count(*) AS c FROM shop.sales WHERE n > 0 GROUP BY n % 2", "odd", [[0, 1], [1, 3]]),
    ("SELECT date_trunc('HOUR', at) AS hour, count(*) AS c FROM shop.sales GROUP BY date_trunc('HOUR', at)", "hour",
     [["2026-01-01T10:00:00Z", 2], ["2026-01-01T11:00:00Z", 1], [None, 3]]),
    ("SELECT shop, count(*) AS c FROM shop.sales GROUP BY shop HAVING count(*) > 1 AND max(n) < 3", "shop",
     [[None, 2]]),
    ("SELECT DISTINCT shop FROM shop.sales", "shop", [["a"], ["b"], [None]]),
    ("SELECT s.name, s.city, a.c FROM shop.shops s LEFT JOIN (SELECT shop, count(*) AS c FROM shop.sales GROUP BY shop)"
     " a ON a.shop = s.name", "name", [["a", "x", 3], ["b", "x", 1], ["c", None, None]]),
    ("SELECT s.city, avg(a.m) AS m, sum(a.m) AS t FROM shop.shops s JOIN (SELECT shop, avg(d) AS m FROM shop.sales"
     " GROUP BY shop) a ON a.shop = s.name GROUP BY s.city", "city", [["x", "0.6700000000", "0.670000"]]),
    ("SELECT 'sale' AS kind, shop AS name FROM shop.sales WHERE id < 2 UNION ALL SELECT 'shop' AS kind, name FROM"
     " shop.shops", "kind name", [["sale", "a"], ["shop", "a"], ["shop", "b"], ["shop", "c"]]),
    ("SELECT shop AS name FROM shop.sales UNION SELECT name FROM shop.shops", "name", [["a"], ["b"], ["c"], [None]]),
    ("SELECT name FROM shop.shops s WHERE EXISTS (SELECT 1 FROM shop.sales l WHERE l.shop = s.name)", "name",
     [["a"], ["b"]]),
    ("SELECT name FROM shop.shops s WHERE NOT EXISTS (SELECT 1 FROM shop.sales l WHERE l.shop = s.name)", "name",
     [["c"]]),
    ("SELECT name FROM shop.shops WHERE name IN (SELECT shop FROM shop.sales WHERE n > 1)", "name", [["a"]]),
    ("SELECT s.name, l.id FROM shop.shops s RIGHT JOIN shop.sales l ON l.shop = s.name WHERE l.id > 3", "id",
     [[None, 4], [None, 5], ["b", 6]]),
    ("SELECT l.id, s.city FROM shop.sales l LEFT JOIN shop.shops s ON s.name = l.shop AND s.name <> 'b' AND l.n > 1",
     "id", [[1, "x"], [2, "x"], [3, None], [4, None], [5, None], [6, None]]),
    ("SELECT u.name, count(*) AS c FROM (SELECT shop AS name FROM shop.sales UNION ALL SELECT name FROM shop.shops) u"
     " GROUP BY u.name", "name", [["a", 4], ["b", 2], ["c", 1], [None, 2]]),
]  # fmt: skip


@pytest.mark.parametrize(("query", "row_key", "expected"), QUERIES, ids=[query for query, _, _ in QUERIES])
def test_queries(query: str, row_key: str, expected: list[list[Any]]) -> None:
    """Groups, unions, subqueries and joins around them."""
    assert values(asked(query, row_key)) == expected


def test_tables_over_aggregated_tables() -> None:
    """A grouped table of the topology is read like any other; its types are those of its aggregates."""
    view = {"query": "SELECT shop, sum(n) AS s, avg(d) AS m FROM shop.sales GROUP BY shop", "row_key": ["shop"]}
    joined = "perhaps v JOIN shop.shops p ON p.name = v.shop"
    query = f"SELECT p.city, sum(v.s) AS s, max(v.m) AS m FROM {joined} GROUP BY p.city"
    assert values(asked(query, "city", perhaps=view)) == [["x", 7, "0.670000"]]


def test_sums_that_do_not_fit_are_null() -> None:
    """Decimals of 38 digits at their limit, integers beyond a BIGINT, unsigned ones as decimals."""
    most = "9" * 38
    half = 2**62
    rows = [sale(1, "a", big=most, unsigned=2**64 - 1), sale(2, "b", big=most, unsigned=2), sale(3, "b", big="1")]
    rows += [sale(4, "c", big=f"-{most}"), sale(5, "c", big=most), *(sale(n, "d", big=most) for n in range(6, 10))]
    sums = f"sum(big) AS s, sum(unsigned) AS u, sum(id - id + {half}) AS i"
    query = f"SELECT shop, {sums} FROM shop.sales GROUP BY shop"
    distinct = asked("SELECT shop, sum(DISTINCT big) AS s FROM shop.sales GROUP BY shop", "shop", rows)
    assert values(distinct) == [["a", most], ["b", None], ["c", "0"], ["d", most]]
    assert values(asked(query, "shop", rows)) == [
        ["a", most, "18446744073709551615", half],
        ["b", None, "2", None],
        ["c", "0", None, None],
        ["d", None, None, None],
    ]


@pytest.mark.parametrize(
    ("d", "n", "expected"),
    [
        ("0.01", 20_000, "0.000001"),
        ("-0.01", 20_000, "-0.000001"),
        ("0.01", 20_001, "0.000000"),
        ("1.00", 3, "0.333333"),
    ],
)
def test_means_of_decimals_are_rounded_half_up(d: str, n: int, expected: str) -> None:
    """The mean of n rows, one with the value d and the others with 0.00, is rounded half up."""
    rows = [sale(i, "a", d="0.00" if i else d) for i in range(n)]
    assert values(asked("SELECT shop, avg(d) AS m FROM shop.sales GROUP BY shop", "shop", rows)) == [["a", expected]]


def test_a_row_key_that_is_none_is_noticed() -> None:
    """The oracle raises an error if two rows of an answer have one key."""
    with pytest.raises(ValueError, match="two rows of wide have the key"):
        asked("SELECT shop, n FROM shop.sales", "shop")


def test_with_in_from_names_queries_there() -> None:
    """A name of WITH is known in its query, within its subqueries, and hides one around it."""
    query = (
        "WITH a AS (SELECT shop, 7 AS n FROM shop.sales GROUP BY shop) SELECT q.shop, q.n, a.n AS seven FROM a JOIN ("
        "WITH a AS (SELECT shop, count(*) AS n FROM shop.sales GROUP BY shop), "
        "b AS (SELECT shop, n FROM a WHERE n > 1) "
        "SELECT shop, n FROM b WHERE shop IN (SELECT shop FROM a)) q ON q.shop = a.shop"
    )
    assert values(asked(query, "shop")) == [["a", 3, 7]]
