"""Plans that keep the first rows of each group, compiled from a SELECT; `answer` is the same in DuckDB's SQL."""

from __future__ import annotations

from functools import cache

from tests.joins.groupplans import TABLES, GroupPlan
from tests.joins.joincase import Case


@cache
def top_plans() -> dict[str, GroupPlan]:
    """Return the first rows of groups: of a table with values of all types, of a join, and of groups with lists."""
    of = "id, customer_id, kind, n, amount, weight, day, seen"
    top = _first(
        "top", f"SELECT {of}, ROW_NUMBER() OVER (PARTITION BY kind ORDER BY weight DESC, seen) AS place "
        "FROM shop.orders",
        "place <= 2", ["id"],
        f"SELECT {of}, row_number() OVER (PARTITION BY kind ORDER BY weight DESC NULLS LAST, seen NULLS FIRST, id) "
        "AS place FROM orders QUALIFY place <= 2",
    )  # fmt: skip
    lookup = _first(
        "top_hop", "SELECT o.id, c.name, o.amount, ROW_NUMBER() OVER (PARTITION BY c.name ORDER BY o.amount) AS place "
        "FROM shop.orders o LEFT JOIN shop.customers c ON c.id = o.customer_id", "place < 4", ["name", "place"],
        "SELECT o.id, c.name, o.amount, row_number() OVER (PARTITION BY c.name ORDER BY o.amount NULLS FIRST, o.id) "
        "AS place FROM orders o LEFT JOIN customers c ON c.id = o.customer_id QUALIFY place <= 3",
    )  # fmt: skip
    groups = _first(
        "top_groups", "SELECT kind, customer_id, collect_list(day) AS days, ROW_NUMBER() OVER (PARTITION BY kind "
        "ORDER BY count(*) DESC, max(amount)) AS place FROM shop.orders GROUP BY kind, customer_id",
        "place = 1", ["kind"],
        "SELECT kind, customer_id, coalesce(list(day ORDER BY day) FILTER (day IS NOT NULL), []), row_number() OVER "
        "(PARTITION BY kind ORDER BY count(*) DESC, max(amount) NULLS FIRST, kind, customer_id NULLS FIRST) AS place "
        "FROM orders GROUP BY kind, customer_id QUALIFY place = 1",
    )  # fmt: skip
    return {plan.name: plan for plan in (top, lookup, groups)}


def _first(name: str, numbered: str, limit: str, row_key: list[str], answer: str) -> GroupPlan:
    query = f"SELECT t.* FROM ({numbered}) t WHERE t.{limit}"
    plan = Case(tables=TABLES, query=query, row_key=row_key, history=[], name=name).plan()
    return GroupPlan(name=name, plan=plan, answer=answer)
