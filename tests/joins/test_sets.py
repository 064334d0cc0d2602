"""EXCEPT and INTERSECT, which are rewritten to groups of a UNION ALL. `aggrandom` has them in random queries."""

from __future__ import annotations

import pytest

from cdc.model.errors import TopologyError
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
    with pytest.raises(TopologyError, match=r"(EXCEPT|INTERSECT) is not supported .*query line 1, column \d+"):
        case(query).plan()
