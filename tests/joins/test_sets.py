"""EXCEPT and INTERSECT, which are rewritten to groups of a UNION ALL, and aggregates that are rewritten to exact ones.

`aggrandom` has sets in random queries."""

from __future__ import annotations

import pytest

from cdc.model.errors import TopologyError
from joins.select.tokens import statements_of
from tests.joins.joincase import run_case
from tests.joins.test_partitions import case, compare_in_duckdb, history_of_rows

QUERIES = [
    "SELECT k AS id FROM shop.a EXCEPT SELECT y FROM shop.b",
    "SELECT a.k AS id FROM shop.a a WHERE a.x > 1 INTERSECT SELECT y + 1 FROM shop.b",
    "SELECT x AS id FROM shop.a UNION SELECT y FROM shop.b EXCEPT SELECT k FROM shop.b",
    "SELECT x AS id FROM shop.a EXCEPT SELECT y FROM shop.b INTERSECT SELECT k FROM shop.b",
    "SELECT id FROM (SELECT id FROM shop.a EXCEPT SELECT k FROM shop.b) q WHERE id > 1",
    "SELECT k AS id, count(*) AS n FROM shop.a GROUP BY k EXCEPT SELECT y, 1 FROM shop.b",
]


def test_results_that_spark_leaves_open_are_exact() -> None:
    """A value of a group is its smallest one, and an approximate count is exact."""
    calls = "any_value(x) AS x, approx_count_distinct(x) AS n, 1 - approx_count_distinct(x) FILTER (WHERE x > 1) AS m"
    run_case(case(f"SELECT k AS id, {calls} FROM shop.a GROUP BY k", history=history_of_rows()), seed=1)
    statement = statements_of(f"SELECT {calls} FROM shop.a")[0]
    assert statement is not None
    assert statement.sql("spark").startswith("SELECT MIN(x) AS x, COUNT(DISTINCT x) AS n, 1 - COUNT(DISTINCT x) FILTER")


@pytest.mark.parametrize("call", ["approx_count_distinct(x, 0.1)", "any_value(x) IGNORE NULLS", "any_value(x, true)"])
def test_their_further_arguments_are_refused(call: str) -> None:
    """No argument is ignored."""
    with pytest.raises(TopologyError, match=r"query line 1, column \d+"):
        case(f"SELECT k AS id, {call} AS n FROM shop.a GROUP BY k").plan()


@pytest.mark.parametrize("query", QUERIES)
def test_the_rewritten_query_means_the_same(query: str) -> None:
    """The laws compare the join with the rewritten text only."""
    compare_in_duckdb(query)


@pytest.mark.parametrize("query", QUERIES)
def test_sets_follow_their_rows(query: str) -> None:
    """A row appears and vanishes with those of both sides, NULL too; the result equals DuckDB's at every step."""
    key = ("id", "n") if "count(*)" in query else ("id",)
    run_case(case(query, *key, history=history_of_rows()), seed=1)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT id FROM shop.a EXCEPT ALL SELECT id FROM shop.b",
        "SELECT id FROM shop.a INTERSECT ALL SELECT id FROM shop.b",
        "SELECT * FROM shop.a INTERSECT SELECT * FROM shop.a",
        "SELECT id FROM shop.a EXCEPT SELECT * FROM shop.b",
        "SELECT id FROM shop.a EXCEPT SELECT id, k FROM shop.b",
        "SELECT id + 1 FROM shop.a EXCEPT SELECT id FROM shop.b",
    ],
)
def test_others_are_refused(query: str) -> None:
    """The error has the position, and a form that works."""
    with pytest.raises(TopologyError, match=r"(EXCEPT|INTERSECT)( ALL)? is not supported .*query line 1, column \d+"):
        case(query).plan()
