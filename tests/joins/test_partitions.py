"""Aggregates over whole partitions: `sum(x) OVER (PARTITION BY y)`, and what they are rewritten to.

`aggrandom` has them in random queries."""

from __future__ import annotations

import random
from typing import Any

import duckdb
import pytest
import sqlglot

from cdc.model.errors import TopologyError
from joins.query.plan import Plan
from joins.select.tokens import statements_of
from tests.joins.joincase import Case, run_case

TABLES: dict[str, dict[str, Any]] = {
    "shop.a": {"key": ["id"], "id": "int", "x": "int?", "k": "int?", "side": "varchar(9)"},
    "shop.b": {"key": ["id"], "id": "int", "y": "int?", "k": "int?"},
}
QUERIES = [
    "SELECT a.id, sum(a.x) OVER (PARTITION BY a.k) AS t, count(*) OVER () AS n FROM shop.a a",
    "SELECT id, max(x) OVER (PARTITION BY k, side) - x AS d FROM shop.a",
    "SELECT a.id, count(DISTINCT a.x) OVER (PARTITION BY b.k) AS t FROM shop.a a LEFT JOIN shop.b b ON b.id = a.x",
    "SELECT a.id, sum(a.x) FILTER (WHERE a.x > 2) OVER (PARTITION BY a.side) AS t FROM shop.a a WHERE a.k IS NOT NULL",
    "SELECT a.id, a.x + count(*) OVER (PARTITION BY a.k) AS t FROM shop.a a"
    " WHERE EXISTS (SELECT 1 FROM shop.b b WHERE b.k = a.k)",
    "SELECT k AS id, count(*) AS n, sum(count(*)) OVER () AS t FROM shop.a GROUP BY k",
    "SELECT a.k AS id, a.side, sum(sum(a.x)) OVER (PARTITION BY a.side) AS t FROM shop.a a GROUP BY a.k, a.side",
    "SELECT k % 2 AS id, sum(x) AS total, max(sum(x)) OVER () AS most FROM shop.a GROUP BY 1 HAVING total > 3",
    "SELECT id, count(*) OVER (PARTITION BY k) AS n"
    " FROM (SELECT id, k, max(x) OVER (PARTITION BY side) AS m FROM shop.a) q WHERE m > 2",
    "SELECT id, CASE WHEN k = 1 THEN sum(x) OVER (PARTITION BY side) END AS n FROM shop.a",
    "SELECT id, x - min(x) OVER () AS t FROM shop.a ORDER BY t DESC, id LIMIT 2",
]


def case(query: str, *row_key: str, history: list[list[Any]] | None = None) -> Case:
    key = row_key or (("id", "side") if "a.side, sum" in query else ("id",))
    return Case(tables=TABLES, query=query, row_key=list(key), history=history or [])


def grouped(plan: Plan) -> int:
    return sum(fragment.group is not None for fragment in plan.fragments)


def compare_in_duckdb(query: str) -> None:
    """Check that DuckDB finds the same rows by a query's text, and by what it is rewritten to. Many values are NULL."""
    rewritten = statements_of(query)[0]
    assert rewritten is not None
    written = sqlglot.transpile(query, read="spark", write="duckdb")[0]
    assert rewritten.find(sqlglot.exp.Subquery) is not None
    most = 0
    for seed in range(8):
        database = filled(random.Random(seed), 2 + 2 * seed)
        found, wanted = (database.execute(text).fetchall() for text in (rewritten.sql("duckdb"), written))
        assert sorted(found, key=repr) == sorted(wanted, key=repr)
        most = max(most, len(wanted))
    assert most


def filled(chance: random.Random, rows: int) -> duckdb.DuckDBPyConnection:
    """Return a database with random rows of both tables."""
    database = duckdb.connect()
    database.execute("CREATE SCHEMA shop")
    for name in "ab":
        columns = [column for column in TABLES[f"shop.{name}"] if column != "key"]
        types = ", ".join(f"{column} {'VARCHAR' if column == 'side' else 'INT'}" for column in columns)
        database.execute(f"CREATE TABLE shop.{name} ({types})")
        for number in range(rows):
            row: list[str | int | None] = [number, *(chance.choice([None, 1, 2, 3, 4]) for _ in columns[1:])]
            row = ["lr"[number % 2] if column == "side" else v for column, v in zip(columns, row, strict=True)]
            database.execute(f"INSERT INTO shop.{name} VALUES ({', '.join('?' * len(row))})", row)
    return database


@pytest.mark.parametrize("query", QUERIES)
def test_the_rewritten_query_means_the_same(query: str) -> None:
    """The laws compare the join with the rewritten text only."""
    compare_in_duckdb(query)


def history_of_rows() -> list[list[Any]]:
    """Return changes of both tables, with many NULLs and deletes."""
    chance, history = random.Random(2), list[list[Any]]()
    for _ in range(40):
        name = chance.choice("aab")
        columns = [column for column in TABLES[f"shop.{name}"] if column not in ("key", "id")]
        row: dict[str, Any] = {"id": chance.randrange(5)}
        if chance.random() < 0.2:
            history.append(["delete", f"shop.{name}", row])
            continue
        for column in columns:
            row[column] = chance.choice(["l", "r"]) if column == "side" else chance.choice([None, 1, 2, 3, 4])
        history += [["put", f"shop.{name}", row], *([["quiet"]] if chance.random() < 0.3 else [])]
    return history


@pytest.mark.parametrize("query", QUERIES)
def test_partitions_follow_their_rows(query: str) -> None:
    """Rows join, leave and change partitions, also that of NULL; the result equals DuckDB's at every step."""
    run_case(case(query, history=history_of_rows()), seed=1)


def test_a_column_that_is_never_null_has_one_lookup() -> None:
    """No query reads the partition of NULL of a column that is NOT NULL, unless an outer join may lack its row."""
    window = "count(*) OVER (PARTITION BY a.{}) AS n"
    assert grouped(case(f"SELECT a.id, {window.format('side')} FROM shop.a a").plan()) == 1
    assert grouped(case(f"SELECT a.id, {window.format('k')} FROM shop.a a").plan()) == 2
    outer = f"SELECT b.id, {window.format('side')} FROM shop.b b LEFT JOIN shop.a a ON a.id = b.k"
    assert grouped(case(outer).plan()) == 2
    assert grouped(case(outer.replace("LEFT ", "")).plan()) == 1


@pytest.mark.parametrize(
    ("window", "says"),
    [
        ("collect_list(x) OVER (PARTITION BY k)", "COLLECT_LIST(x) OVER (…) is not supported"),
        ("count(DISTINCT x) OVER (ORDER BY id)", "COUNT(DISTINCT x) OVER (…) is not supported"),
        ("rank() OVER (PARTITION BY k)", "RANK() without ORDER BY"),
        ("rank() OVER (ORDER BY id ROWS 1 PRECEDING)", "a frame of RANK()"),
        ("sum(x) OVER (ORDER BY id RANGE BETWEEN 3 PRECEDING AND CURRENT ROW)", "a range of values"),
        ("sum(x) OVER (ORDER BY id ROWS BETWEEN 1 FOLLOWING AND 1 PRECEDING)", "ends before it begins"),
        ("sum(x) OVER (ORDER BY id ROWS BETWEEN k PRECEDING AND CURRENT ROW)", "the limit k PRECEDING of a frame"),
        ("sum(rank() OVER (ORDER BY id)) OVER (ORDER BY id)", "a window function within another one"),
        ("lag(x, k) OVER (ORDER BY id)", "k in LAG(x, k)"),
        ("lag(x, 1, 'none') OVER (ORDER BY id)", "the default of LAG(a.x, 1, 'none') is string, not int"),
        ("nth_value(x, 0) OVER (ORDER BY id)", "0 in NTH_VALUE(x, 0)"),
        ("sum(x) IGNORE NULLS OVER (ORDER BY id)", "IGNORE NULLS of SUM(x)"),
        ("variance(x) OVER (ORDER BY id)", "is not supported"),
    ],
)
def test_other_windows_are_refused(window: str, says: str) -> None:
    """The error has the position of the window, and a form that works."""
    with pytest.raises(TopologyError, match=r"query line 1, column \d+") as caught:
        case(f"SELECT a.id, {window} AS n FROM shop.a").plan()
    assert says in str(caught.value)


def test_a_limit_after_distinct_is_refused() -> None:
    """The limit would count rows that DISTINCT removes."""
    with pytest.raises(TopologyError, match="ORDER BY … LIMIT"):
        case("SELECT DISTINCT k AS id FROM shop.a ORDER BY id LIMIT 3").plan()


def test_a_query_in_from_needs_no_name() -> None:
    """Its columns are named as they are."""
    history: list[list[Any]] = [["put", "shop.b", {"id": n, "y": n, "k": 1}] for n in range(3)]
    run_case(
        case("SELECT k AS id, n FROM (SELECT k, sum(y) AS n FROM shop.b GROUP BY k) WHERE n > 1", history=history), 1
    )
