"""Text columns that the source compares by a collation are found wherever a query compares them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from joins.query.loose_keys import loose_keys
from joins.select.compiler import compile_plan
from tests.joins.joincase import Case

TABLES = {
    "shop.a": {"key": ["id"], "id": "int", "word": "varchar(9)?", "n": "int?"},
    "shop.b": {"key": ["id"], "id": "int", "word": "varchar(9)?"},
}
GROUPS = "is a key of GROUP BY, DISTINCT, EXISTS or IN"
CONDITION = "is compared in a condition"
SORTED = "is compared by min, max, DISTINCT or ORDER BY"


def found(query: str, *row_key: str, collation: str | None = "utf8mb4_general_ci") -> dict[str, str]:
    """Return how the query uses the text columns with a collation, by column."""
    case = Case(tables=TABLES, query=query, row_key=list(row_key), history=[])
    schemas = {
        table: replace(
            schema,
            columns=tuple(
                replace(column, collation=collation) if column.name == "word" else column for column in schema.columns
            ),
        )
        for table, schema in case.schemas().items()
    }
    topology = case.topology()
    keys = loose_keys(compile_plan(topology, topology.tables["wide"], schemas), schemas)
    assert all(key.use in key.found and key.remedy for key in keys)
    return {f"{key.table_id.table}.{key.column}": key.use for key in keys}


@pytest.mark.parametrize(
    ("query", "row_key", "use"),
    [
        ("SELECT word, count(*) AS c FROM shop.a GROUP BY word", ["word"], GROUPS),
        ("SELECT DISTINCT word FROM shop.a", ["word"], GROUPS),
        ("SELECT n, max(word) AS most FROM shop.a GROUP BY n", ["n"], SORTED),
        ("SELECT n, count(DISTINCT word) AS c FROM shop.a GROUP BY n", ["n"], SORTED),
        ("SELECT id FROM shop.a WHERE word = 'x'", ["id"], CONDITION),
        ("SELECT id FROM shop.a WHERE 'x' < word", ["id"], CONDITION),
        ("SELECT id FROM shop.a WHERE word IN ('x', 'y')", ["id"], CONDITION),
        ("SELECT id, CASE WHEN word LIKE 'x%' THEN 1 END AS x FROM shop.a", ["id"], CONDITION),
        ("SELECT id, ROW_NUMBER() OVER (ORDER BY word) AS k FROM shop.a QUALIFY k <= 3", ["id"], SORTED),
    ],
)
def test_groups_orders_and_conditions_compare_by_bytes(query: str, row_key: list[str], use: str) -> None:
    """Each use of a column is reported once, and none if the collation compares bytes."""
    assert found(query, *row_key) == {"a.word": use}
    assert found(query, *row_key, collation="utf8mb4_0900_bin") == {}
    assert found(query, *row_key, collation=None) == {}


def test_many_to_many_joins_compare_by_bytes() -> None:
    """Both columns are reported, as for lookups."""
    query = "SELECT a.id AS i, b.id AS j FROM shop.a a JOIN shop.b b ON b.word = a.word"
    assert found(query, "i", "j") == {"a.word": "joins shop.shop.b.word", "b.word": "joins shop.shop.a.word"}


@pytest.mark.parametrize(
    "query", ["SELECT id, word FROM shop.a WHERE word IS NOT NULL", "SELECT id FROM shop.a WHERE upper(word) = 'X'"]
)
def test_other_uses_are_not_reported(query: str) -> None:
    """A plain column is not compared, and who writes upper() has thought of it."""
    assert found(query, "id") == {}
