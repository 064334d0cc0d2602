"""Each kind of query that people write is computed as DuckDB computes its text, or refused with another form."""

from __future__ import annotations

import random
import re
from datetime import datetime
from typing import Any

import pytest
import sqlglot

from cdc.model.errors import TopologyError
from joins.oracle.duckdb_query import moment_text
from joins.oracle.duckdb_types import duckdb_type, native
from joins.oracle.oracle import Rows, tables_after
from tests.joins import dialectkinds, querykinds
from tests.joins.evaluator import open_database
from tests.joins.joincase import CLOCK_MS, Case, events_of, prepared, run_case
from tests.joins.querykinds import Kind
from tests.joins.test_queries import TABLES, _history

KINDS = (*querykinds.KINDS, *dialectkinds.KINDS)
COMPILED = [kind for kind in KINDS if not kind.refused]
HISTORIES = 20
MUST = 63


def case_of(kind: Kind, seed: int = 0) -> Case:
    used = {name: columns for name, columns in TABLES.items() if re.search(rf"\b{re.escape(name)}\b", kind.query)}
    history = _history(used, random.Random(seed))
    return Case(tables=used, query=kind.query, row_key=kind.key.split(", "), history=history)


def test_how_many_kinds_compile() -> None:
    """No kind is lost."""
    assert len(COMPILED) >= MUST


@pytest.mark.parametrize("kind", COMPILED, ids=lambda kind: kind.name)
def test_a_rewritten_kind_means_the_same(kind: Kind) -> None:
    """DuckDB answers the rewritten query, with which the laws compare, as it answers the query itself."""
    case = case_of(kind)
    events = [event for some in events_of(case) for event in some]
    tables = tables_after(events, {table: schema.primary_key for table, schema in case.schemas().items()})
    found = [tuple(map(plain, row.values())) for row in prepared(case).answer(tables, CLOCK_MS).values()]
    assert sorted(found, key=repr) == sorted(answered(kind, case, tables), key=repr)


@pytest.mark.matrix
@pytest.mark.parametrize("kind", COMPILED, ids=lambda kind: kind.name)
def test_a_kind_is_its_select(kind: Kind) -> None:
    """The joined table equals DuckDB's answer after random changes."""
    for seed in range(HISTORIES):
        run_case(case_of(kind, seed), seed)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.refused], ids=lambda kind: kind.name)
def test_a_kind_is_refused_with_another_form(kind: Kind) -> None:
    """The error has the position, and the nearest form that works."""
    with pytest.raises(TopologyError) as error:
        case_of(kind).plan()
    assert kind.refused in str(error.value)
    assert re.search(r"query line \d+, column \d+|row_key", str(error.value))


def answered(kind: Kind, case: Case, tables: dict[Any, Rows]) -> list[tuple[Any, ...]]:
    """Return DuckDB's answer to the text of a query."""
    database = open_database()
    for table, schema in case.schemas().items():
        name = f"{table.source}.{table.table}"
        database.execute(f"CREATE SCHEMA IF NOT EXISTS {table.source}")
        database.execute(
            f"CREATE TABLE {name} ({', '.join(f'{c.name} {duckdb_type(c.type)}' for c in schema.columns)})"
        )
        for row in tables[table].values():
            values = [native(column.type, row[column.name]) for column in schema.columns]
            database.execute(f"INSERT INTO {name} VALUES ({', '.join('?' * len(values))})", values)
    said = re.sub(r"now\(\)|current_timestamp", f"TIMESTAMP'{moment_text(CLOCK_MS)}'", kind.query)
    said = said.replace("current_date", f"DATE'{moment_text(CLOCK_MS)[:10]}'")
    text = kind.answered or sqlglot.transpile(said, read="spark", write="duckdb")[0]
    return [tuple(map(plain, row)) for row in database.execute(text).fetchall()]


def plain(value: Any) -> Any:
    """Return a value of either system in a form that compares: numbers rounded, and times without a zone."""
    if isinstance(value, list):
        return [plain(one) for one in value]
    text = str(value).removesuffix("Z")
    if re.fullmatch(r"\d{4}-\d\d-\d\d([T ].*)?", text):
        return str(datetime.fromisoformat(text))
    try:
        return round(float(value), 9)
    except (TypeError, ValueError):
        return value
