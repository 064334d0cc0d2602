"""Ordinary queries of analysts compile, and are what DuckDB answers; the rest are refused with a remedy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import sqlglot

from cdc.model.errors import TopologyError
from joins.oracle.duckdb_types import duckdb_type, native
from joins.oracle.oracle import Rows, tables_after
from tests.joins.evaluator import open_database
from tests.joins.joincase import Case, events_of, prepared, run_case
from tests.joins.reports import SETS, Report, case_of
from tests.joins.test_query_kinds import plain

Asked = tuple[Report, Mapping[str, dict[str, Any]], Mapping[str, Sequence[Any]]]
ASKED: list[Asked] = [(one, part.tables, part.pool) for part in SETS for one in part.reports]
COMPILED = [one for one in ASKED if not one[0].refused]
MUST = 144  # of 159
HISTORIES = 10
# the simulation computes the expressions of these with DuckDB: its weekdays and quotients of decimals differ
OTHERWISE = ("spark date format", "on time share", "yield per hectare", "night share", "arpu")


def _name(asked: Any) -> str:
    return str(asked[0].name)


def test_how_many_reports_compile() -> None:
    """No query is lost."""
    assert len(ASKED) == 159
    assert len(COMPILED) >= MUST


@pytest.mark.parametrize("step", [pytest.param(3, id="some"), pytest.param(1, id="all", marks=pytest.mark.matrix)])
def test_reports_compile_or_are_refused_with_a_remedy(step: int) -> None:
    """Each query is compiled, or the error names the place, the fault and another form."""
    for report, tables, pool in ASKED[::step]:
        case = case_of(report, tables, pool, 0)
        if not report.refused:
            case.plan()
            continue
        with pytest.raises(TopologyError) as error:
            case.plan()
        assert report.refused in str(error.value), report.name
        assert ", expected " in str(error.value), report.name


@pytest.mark.matrix
@pytest.mark.parametrize("asked", COMPILED, ids=_name)
def test_a_report_is_its_select(asked: Asked) -> None:
    """After random changes the joined table equals DuckDB's answer to the query, also to its text as it is written."""
    report, tables, pool = asked
    for seed in range(HISTORIES):
        case = case_of(report, tables, pool, seed)
        events = [event for some in events_of(case) for event in some]
        rows = tables_after(events, {table: schema.primary_key for table, schema in case.schemas().items()})
        found = [tuple(map(_rounded, row.values())) for row in prepared(case).answer(rows).values()]
        assert sorted(found, key=repr) == sorted(_answered(report, case, rows), key=repr), f"seed {seed}"
        if report.name not in OTHERWISE:
            run_case(case, seed)


def _answered(report: Report, case: Case, tables: dict[Any, Rows]) -> list[tuple[Any, ...]]:
    database = open_database()
    for table, schema in case.schemas().items():
        name = f"{table.source}.{table.table}"
        database.execute(f"CREATE SCHEMA IF NOT EXISTS {table.source}")
        columns = ", ".join(f"{one.name} {duckdb_type(one.type)}" for one in schema.columns)
        database.execute(f"CREATE TABLE {name} ({columns})")
        for row in tables[table].values():
            values = [native(column.type, row[column.name]) for column in schema.columns]
            database.execute(f"INSERT INTO {name} VALUES ({', '.join('?' * len(values))})", values)
    text = report.answered or sqlglot.transpile(report.query, read="spark", write="duckdb")[0]
    return [tuple(map(_rounded, row)) for row in database.execute(text).fetchall()]


def _rounded(value: Any) -> Any:
    """Return a value that compares: DuckDB's averages and quotients have other digits."""
    found = plain(value)
    return float(f"{found:.6g}") if isinstance(found, float) else found
