"""Conditions on the time: a table equals its SELECT at the clock of its last batch, also if no change comes."""

from __future__ import annotations

from typing import Any

import pytest

from cdc.model.errors import TopologyError
from joins.query.describe import json_of_plan, text_of_plan
from joins.query.drawing import svg_of_plan
from tests.joins.joincase import Case, run_case
from tests.joins.temporalrandom import TABLES, TemporalGenerator

ROUNDS = 4
ORDERS = "SELECT o.id FROM shop.orders o WHERE "
REFUSED = {
    "a column": ("SELECT o.id, now() AS at FROM shop.orders o", "now() as a value", "WHERE x >= now() - INTERVAL"),
    "an expression": (
        "SELECT o.id, o.created_at < now() AS old FROM shop.orders o", "now() in o.created_at < now()", "x >= now()"
    ),
    "OR": (f"{ORDERS}o.id > 1 OR o.created_at < now()", "now() within OR", "UNION of queries"),
    "NOT": (f"{ORDERS}NOT o.created_at < now()", "now() within OR, NOT", "AND of such conditions"),
    "a month": (
        f"{ORDERS}o.created_at >= now() - INTERVAL 1 MONTH", "which has no fixed length",
        "x + INTERVAL '1' MONTH >= now()",
    ),
    "two moments": (f"{ORDERS}current_date = date_trunc('DAY', now())", "current_date in", "an expression of columns"),
    "no comparison": (f"{ORDERS}year(o.created_at) = year(now())", "now() in YEAR(", "x >= now() - INTERVAL 5 MINUTE"),
    "another operator": (f"{ORDERS}o.created_at <> now()", "now() in o.created_at <> now()", "BETWEEN"),
    "a number": (
        f"{ORDERS}o.id >= now()", "shop.shop.orders.id, a int32, is compared with the time", "CAST(x AS TIMESTAMP)"
    ),
    "the other table": (
        "SELECT o.id FROM shop.orders o LEFT JOIN crm.customers c ON c.id = o.customer_id AND o.created_at > now()",
        "in a LEFT JOIN", "a condition on c alone",
    ),
    "digits": (f"{ORDERS}o.created_at > current_timestamp(3)", "now() in o.created_at", "x >= now()"),
    "FILTER": (
        "SELECT 'a' AS id, count(*) FILTER (WHERE o.created_at > now()) AS n FROM shop.orders o", "CASE or FILTER",
        "AND of such conditions",
    ),
    "an interval": (f"{ORDERS}now() - o.created_at < INTERVAL 5 MINUTE", "now() in", "x >= now() - INTERVAL"),
}  # fmt: skip


def case_of(query: str, **changed: Any) -> Case:
    tables = {name: columns for name, columns in TABLES.items() if name in query}
    return Case(tables=tables, query=query, row_key=["id"], history=changed.get("history", []))


def test_random_queries() -> None:
    """Rows enter and leave as time passes, in every kind of query, also when batches run again."""
    for seed in range(ROUNDS):
        run_case(TemporalGenerator(seed).case(), seed)


@pytest.mark.matrix
def test_very_many_random_queries() -> None:
    """The same, six hundred times."""
    for seed in range(1000, 1600):
        run_case(TemporalGenerator(seed).case(), seed)


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name: str) -> None:
    """now() is refused where it is no condition on the time, with its position and the nearest form."""
    query, what, expected = REFUSED[name]
    with pytest.raises(TopologyError) as refused:
        case_of(query).plan()
    assert what in refused.value.what
    assert "query line 1, column " in refused.value.what
    assert expected in refused.value.expected


def test_explained() -> None:
    """The plan has the conditions, what the step stores, and what a batch reads."""
    plan = case_of(f"{ORDERS}o.created_at >= now() - INTERVAL 5 MINUTE AND o.status = 'n1'").plan()
    text = text_of_plan(plan)
    assert "rows while o.created_at >= now() - INTERVAL '5' MINUTE; keeps each row until its time is over" in text
    assert "reads the rows whose time begins or ends, and no others" in text
    assert "only rows with" in text, "rows that another condition excludes are not stored"
    assert json_of_plan(plan)["below"][0]["while"]
    assert "while" in svg_of_plan(plan)


def test_the_conditions_are_part_of_the_state() -> None:
    """A checkpoint cannot be continued with another condition; a query without one keeps its fingerprint."""
    plans = [case_of(f"{ORDERS}o.created_at >= now() - INTERVAL {n} DAY").plan() for n in (1, 1, 2)]
    prints = [plan.fingerprint() for plan in plans]
    assert prints[0] == prints[1] != prints[2]
    assert not case_of(f"{ORDERS}o.created_at >= DATE'2026-01-03'").plan().by_clock


def test_the_state_of_a_join_has_live_rows_only() -> None:
    """A condition on one table is below the join, so what it excludes passes no other step."""
    query = "SELECT o.id FROM shop.orders o JOIN crm.customers c ON c.id = o.customer_id WHERE o.created_at > now()"
    plan = case_of(query).plan()
    assert [one.temporal is not None for one in plan.fragments] == [True, False]
    assert plan.fragments[0].steps == ()
    assert len(plan.last.steps) == 1


def test_a_table_has_the_columns_of_all_conditions() -> None:
    """Of several conditions on the time, one is below a join, and another needs the rows of both tables."""
    query = (
        "SELECT o.id, c.name FROM shop.orders o JOIN crm.customers c ON c.id = o.customer_id AND c.until > now()"
        " WHERE greatest(o.created_at, c.since) < now()"
    )
    plan = case_of(query).plan()
    assert [len(one.temporal.bounds) for one in plan.fragments if one.temporal is not None] == [1, 1]
