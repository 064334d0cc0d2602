"""Each example of docs/queries.md compiles, and its result equals its SELECT."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any

import pytest

from tests.joins import timedrandom
from tests.joins.joincase import Case, run_case
from tests.joins.joinrandom import value_of
from tests.joins.test_by_time import check_timed

TEXT = (Path(__file__).parents[2] / "docs" / "queries.md").read_text()
BY_TIME = re.findall(r"```sql\n((?:(?!```).)*?)-- row_key: \[([^]]*)\], by time\n```", TEXT, re.DOTALL)
EXAMPLES = re.findall(r"```sql\n((?:(?!```).)*?)-- row_key: \[([^]]*)\]\n```", TEXT, re.DOTALL)
TABLES: dict[str, dict[str, Any]] = {
    "shop.orders": {
        "key": ["id"], "id": "int", "customer_id": "int?", "status": "varchar(9)", "amount": "decimal(6,2)?",
        "created_at": "datetime(3)?",
    },
    "shop.lines": {
        "key": ["order_id", "nr"], "order_id": "int", "nr": "int", "product_id": "int?", "qty": "int",
        "price": "decimal(6,2)?",
    },
    "shop.payments": {"key": ["id"], "id": "int", "order_id": "int?", "kind": "varchar(9)", "amount": "decimal(6,2)"},
    "shop.products": {"key": ["id"], "id": "int", "title": "varchar(9)", "parent_id": "int?"},
    "crm.customers": {
        "key": ["id"], "id": "int", "name": "varchar(9)", "country": "varchar(9)?", "nation_id": "int?",
    },
    "crm.nations": {"key": ["id"], "id": "int", "name": "varchar(9)"},
    **{name: columns for name, columns in timedrandom.TABLES.items() if name in timedrandom.TIMED},
}  # fmt: skip
HISTORIES = 4
NOW = re.compile(r"now\(\)|current_date|current_timestamp")


def test_the_tables_are_those_of_the_page() -> None:
    """The page's list of tables is the one that its examples are compiled with."""
    for name, columns in TABLES.items():
        key = ", ".join(columns["key"])
        rest = ", ".join(
            column + "?" * type_.endswith("?")
            for column, type_ in columns.items()
            if column != "key" and column not in columns["key"]
        )
        assert re.search(rf"{re.escape(name)} +{re.escape(key)} \| {re.escape(rest)}", TEXT), name


@pytest.mark.parametrize(("query", "key"), EXAMPLES, ids=range(len(EXAMPLES)))
def test_example_is_its_select(query: str, key: str) -> None:
    """Rows are inserted, changed, moved, deleted and re-read: the table equals DuckDB's answer at every quiet
    moment."""
    used = {name: columns for name, columns in TABLES.items() if re.search(rf"\b{re.escape(name)}\b", query)}
    for seed in range(HISTORIES):
        chance = random.Random(seed)
        history = _history(used, chance)
        if NOW.search(query):
            history = [word for one in history for word in (one, *([["time", 1800]] if chance.random() < 0.4 else []))]
        run_case(Case(tables=used, query=query, row_key=key.split(", "), history=history), seed)


@pytest.mark.parametrize(("query", "key"), BY_TIME, ids=range(len(BY_TIME)))
def test_example_by_time_is_its_select(query: str, key: str) -> None:
    """Rows arrive out of order, late, repeatedly, with faults: those in time are joined as DuckDB joins them."""
    used = {name: columns for name, columns in TABLES.items() if re.search(rf"\b{re.escape(name)}\b", query)}
    for seed in range(10 * HISTORIES):
        case = Case(
            tables=used,
            query=query,
            row_key=key.split(", "),
            history=[],
            watermarks=dict.fromkeys(timedrandom.TIMED, "10m"),
        )
        check_timed(timedrandom.timed_of(case, random.Random(seed)), seed)


def test_every_construct_has_an_example() -> None:
    """Every construct that the page promises occurs in one of its examples."""
    text = " ".join(query for query, _ in (*EXAMPLES, *BY_TIME))
    words = (
        "WITH|ROW_NUMBER|QUALIFY|RIGHT JOIN|LEFT JOIN|FULL JOIN|GROUP BY|HAVING|DISTINCT|UNION ALL|EXISTS|"
        "NOT EXISTS|IN \\(SELECT|FILTER|BETWEEN|INTERVAL|window|now|current_date"
    )
    for word in [*words.split("|"), "count", "sum", "avg", "min", "max_by", "count_if", "bool_and", "collect_set"]:
        assert re.search(rf"\b{word}", text), word


def _history(tables: dict[str, dict[str, Any]], chance: random.Random) -> list[list[Any]]:
    history: list[list[Any]] = []
    for _ in range(60):
        name = chance.choice(list(tables))
        columns = {column: type_ for column, type_ in tables[name].items() if column != "key"}
        row = {column: value_of(type_, chance) for column, type_ in columns.items()}
        dice = chance.random()
        if dice < 0.2:
            history.append(["delete", name, {column: row[column] for column in tables[name]["key"]}])
        elif dice < 0.25:
            history.append(["quiet"])
        elif dice < 0.27:
            history.append([chance.choice(["truncate", "snapshot"]), name])
        else:
            history.append(["put", name, row])
    return [one if one[0] != "snapshot" else [*one, []] for one in history]
