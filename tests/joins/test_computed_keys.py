"""Joins by the value of an expression: the joined table is the SELECT after random changes, and what is refused."""

from __future__ import annotations

import random
from typing import Any

import pytest

from cdc.model.errors import TopologyError
from joins.query.describe import text_of_plan
from tests.joins.joincase import Case, run_case

TABLES: dict[str, dict[str, Any]] = {
    "s.a": {"key": ["id"], "id": "int", "x": "int?", "word": "varchar(9)?", "at": "datetime(3)?"},
    "s.b": {"key": ["id"], "id": "int", "y": "int?", "word": "varchar(9)?", "at": "datetime(3)?"},
    "s.c": {"key": ["id"], "id": "int", "z": "int", "word": "varchar(9)?"},
    "s.d": {"key": ["id", "nr"], "id": "int", "nr": "int", "word": "varchar(9)?"},
}
QUERIES = {
    "INNER, of a text": ("SELECT a.id, b.id AS b, b.y FROM s.a a JOIN s.b b ON lower(b.word) = lower(a.word)", "id, b"),
    "LEFT, of a text": ("SELECT a.id, b.id AS b FROM s.a a LEFT JOIN s.b b ON upper(b.word) = a.word", "id, b"),
    "by a key": ("SELECT a.id, b.y FROM s.a a JOIN s.b b ON b.id = a.x % 4", "id"),
    "LEFT, by a key": ("SELECT a.id, b.y FROM s.a a LEFT JOIN s.b b ON b.id = a.x + 1", "id"),
    "comma": ("SELECT a.id, b.y FROM s.a a, s.b b WHERE a.x - 1 = b.id AND a.word <> b.word", "id"),
    "FULL": ("SELECT a.id, b.id AS b FROM s.a a FULL JOIN s.b b ON lower(b.word) = lower(a.word)", "id, b"),
    "two equalities": (
        "SELECT a.id, b.id AS b FROM s.a a JOIN s.b b ON b.y + 1 = a.x AND lower(a.word) = b.word",
        "id, b",
    ),
    "an expression and a column": (
        "SELECT a.id, b.id AS b FROM s.a a JOIN s.b b ON lower(b.word) = a.word AND b.y = a.x",
        "id, b",
    ),
    "LEFT, an expression and a column": (
        "SELECT a.id, b.id AS b FROM s.a a LEFT JOIN s.b b ON lower(b.word) = lower(a.word) AND b.y = a.x AND b.id > 1",
        "id, b",
    ),
    "FULL, an expression and a column": (
        "SELECT a.id, b.id AS b FROM s.a a FULL JOIN s.b b ON b.y = a.x AND lower(b.word) = a.word",
        "id, b",
    ),
    "LEFT, a key by an expression and a column": (
        "SELECT a.id, d.word FROM s.a a LEFT JOIN s.d d ON d.id = a.x AND d.nr = a.id % 4",
        "id",
    ),
    "three tables": (
        "SELECT a.id, b.y, c.id AS c FROM s.a a JOIN s.b b ON b.id = a.x + 1 JOIN s.c c ON c.z = b.y * 2",
        "id, c",
    ),
    "a value without a row": (
        "SELECT a.id, c.id AS c FROM s.a a LEFT JOIN s.b b ON b.id = a.x JOIN s.c c ON c.z = coalesce(b.y, 0)",
        "id, c",
    ),
    "LEFT, a value without a row": (
        "SELECT a.id, c.id AS c FROM s.a a LEFT JOIN s.b b ON b.id = a.x"
        " LEFT JOIN s.c c ON c.z = CASE WHEN b.id IS NULL THEN 0 ELSE 3 END",
        "id, c",
    ),
    "by a key, a value without a row": (
        "SELECT a.id, c.word FROM s.a a LEFT JOIN s.b b ON b.id = a.x, s.c c WHERE c.id = coalesce(b.y, 2)",
        "id",
    ),
    "a value without a row in a query": (
        "WITH q AS (SELECT a.id, coalesce(b.y, 0) AS k FROM s.a a LEFT JOIN s.b b ON b.id = a.x)"
        " SELECT q.id, c.id AS c FROM q JOIN s.c c ON c.z = q.k",
        "id, c",
    ),
    "NULL without a row": (
        "SELECT a.id, c.id AS c FROM s.a a LEFT JOIN s.b b ON b.id = a.x LEFT JOIN s.c c ON c.z = b.y + 1",
        "id, c",
    ),
    "several tables": (
        "SELECT a.id, b.id AS b, c.id AS c FROM s.a a JOIN s.b b ON b.id = a.x JOIN s.c c ON c.z = a.x + b.y",
        "id, c",
    ),
    "ranks of rows with a value without a row": (
        "SELECT a.id, rank() OVER (ORDER BY a.x) AS r, row_number() OVER (ORDER BY c.z) AS n FROM s.a a"
        " LEFT JOIN s.b b ON b.id = a.x JOIN s.c c ON c.id = coalesce(b.y, 2)",
        "id",
    ),
    "after FULL": (
        "SELECT a.id, b.id AS b, c.z FROM s.a a FULL JOIN s.b b ON lower(b.word) = lower(a.word)"
        " LEFT JOIN s.c c ON c.id = coalesce(a.x, b.y)",
        "id, b",
    ),
    "a column of a query": (
        "SELECT q.id, c.z FROM (SELECT id, x % 3 AS k FROM s.a WHERE word IS NOT NULL) q JOIN s.c c ON c.id = q.k",
        "id",
    ),
    "a group": (
        "SELECT a.id, g.n FROM s.a a LEFT JOIN (SELECT y, count(*) AS n FROM s.b GROUP BY y) g ON g.y = a.x + 1",
        "id",
    ),
    "groups of it": (
        "SELECT CAST(a.at AS DATE) AS day, count(*) AS n FROM s.a a"
        " JOIN s.b b ON CAST(b.at AS DATE) = CAST(a.at AS DATE) GROUP BY 1",
        "day",
    ),
}  # fmt: skip


def case(query: str, key: str, history: list[list[Any]] | None = None) -> Case:
    used = {name: columns for name, columns in TABLES.items() if name in query}
    return Case(tables=used, query=query, row_key=key.split(", "), history=history or [])


def history(tables: dict[str, dict[str, Any]], chance: random.Random) -> list[list[Any]]:
    found: list[list[Any]] = []
    domains: dict[str, list[Any]] = {
        "varchar(9)?": ["a", "A", "b", "B", None, ""], "int?": [None, 0, 1, 2, 3, 4], "int": [0, 1, 2, 3, 4],
        "datetime(3)?": [None, "2026-01-01T00:00:00Z", "2026-01-01T23:00:00Z", "2026-01-02T00:00:00Z"],
    }  # fmt: skip
    for _ in range(60):
        name = chance.choice(list(tables))
        row = {column: chance.choice(domains[kind]) for column, kind in tables[name].items() if column != "key"}
        dice = chance.random()
        if dice < 0.2:
            found.append(["delete", name, {column: row[column] for column in tables[name]["key"]}])
        elif dice < 0.25:
            found.append(["quiet"])
        elif dice < 0.27:
            found.append(["truncate", name])
        else:
            found.append(["put", name, row])
    return found


@pytest.mark.parametrize("name", QUERIES)
@pytest.mark.parametrize(
    "seeds", [range(2), pytest.param(range(2, 100), marks=pytest.mark.matrix)], ids=["few", "many"]
)
def test_the_joined_table_is_the_select(name: str, seeds: range) -> None:
    """After random inserts, updates and deletes, with NULLs and texts that differ in case only."""
    for seed in seeds:
        made = case(*QUERIES[name])
        run_case(case(*QUERIES[name], history(made.tables, random.Random(seed))), seed)


def test_unused_columns_are_not_kept() -> None:
    """The query that computes a key selects what the query uses."""
    text = text_of_plan(case("SELECT a.id, b.y FROM s.a a JOIN s.b b ON b.id = a.x % 4", "id").plan())
    assert "a  s.s.a (id, x)" in text


@pytest.mark.parametrize(
    ("on", "why"),
    [
        ("b.id = a.word || 'x'", "= a.word || 'x' (string)"),  # types differ
        ("b.y = rand()", "RAND()"),
        ("a.x + 1 = a.id", "no equality joins b"),
        ("a.x + b.y = 4", "no equality joins b"),
        ("a.x = b.y + a.id", "no equality joins b"),
    ],
)
def test_refusals(on: str, why: str) -> None:
    """An equality must have one table on each side, and equal types."""
    with pytest.raises(TopologyError) as error:
        case(f"SELECT a.id, b.id AS b FROM s.a a JOIN s.b b ON {on}", "id, b").plan()
    assert why in str(error.value).replace("`", "")
