"""TPC-H and NEXMark: each query compiles, and its joined table is its SELECT after inserts, updates and deletes."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.joins import nexmark, tpch
from tests.joins.joincase import Case, run_case
from tests.joins.tpch import Query

CHANGES = 200
QUERIES = [*((query, tpch.TABLES) for query in tpch.QUERIES), *((query, nexmark.TABLES) for query in nexmark.QUERIES)]
NAMES = [*(f"tpch-{query.name}" for query in tpch.QUERIES), *(f"nexmark-{query.name}" for query in nexmark.QUERIES)]


def history(query: Query, tables: dict[str, dict[str, Any]]) -> list[list[Any]]:
    chance = random.Random(query.name)
    if tables is not nexmark.TABLES:
        return list(tpch.history(query.of(tables), CHANGES, chance))
    found: list[list[Any]] = []
    for name, before, after in nexmark.changes(query.of(tables), CHANGES, chance):
        key = {column: (before or {}).get(column) for column in tables[name]["key"]}
        found.append(["delete", name, key] if after is None else ["put", name, after])
    return [*found[:100], ["quiet"], *found[100:]]


def test_all_are_there() -> None:
    """None is left out, but q10, q11 and q12 of NEXMark (see its module)."""
    assert [query.name for query in tpch.QUERIES] == [f"q{number}" for number in range(1, 23)]
    wanted = [f"q{number}" for number in range(23) if number not in (10, 11, 12)]
    assert [query.name for query in nexmark.QUERIES] == wanted


@pytest.mark.parametrize(("query", "tables"), QUERIES, ids=NAMES)
def test_a_query_is_its_select(query: Query, tables: dict[str, dict[str, Any]]) -> None:
    """Two hundred changes; test_spark_shapes has a hundred thousand."""
    made = history(query, tables)
    run_case(Case(tables=query.of(tables), query=query.text, row_key=query.key.split(", "), history=made), 0)
