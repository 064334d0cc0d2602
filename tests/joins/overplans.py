"""Plans with window functions over ordered partitions, compiled from a SELECT, for the conformance of the kernel."""

from __future__ import annotations

from functools import cache

from tests.joins.groupplans import TABLES, GroupPlan
from tests.joins.joincase import Case

_BY_DAY = "PARTITION BY kind ORDER BY day"
_BY_WEIGHT = "ORDER BY weight DESC NULLS FIRST, n"
_QUERIES = {
    "over_rows": (
        f"""SELECT id, customer_id, weight, seen, rank() OVER ({_BY_DAY}) AS r, dense_rank() OVER ({_BY_DAY}) AS d,
        percent_rank() OVER ({_BY_DAY}) AS p, cume_dist() OVER ({_BY_DAY}) AS c, ntile(3) OVER ({_BY_DAY}) AS t,
        row_number() OVER ({_BY_DAY}) AS o, lag(amount) OVER ({_BY_DAY}) AS lag, lead(n, 2, 7) OVER ({_BY_DAY}) AS lead,
        lag(weight, 2) IGNORE NULLS OVER ({_BY_DAY}) AS earlier, first_value(seen) OVER ({_BY_DAY}) AS first,
        last_value(amount) OVER ({_BY_DAY}) AS last, nth_value(n, 2) IGNORE NULLS OVER ({_BY_DAY}) AS second
        FROM shop.orders""",
        ["id"],
    ),
    "over_frames": (
        f"""SELECT id, sum(n) OVER ({_BY_WEIGHT}) AS running, avg(amount) OVER ({_BY_WEIGHT}) AS mean,
        sum(weight) OVER ({_BY_WEIGHT} ROWS BETWEEN 2 PRECEDING AND 1 PRECEDING) AS before,
        count(amount) OVER ({_BY_WEIGHT} RANGE BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING) AS after,
        min(day) OVER ({_BY_WEIGHT} ROWS BETWEEN 1 PRECEDING AND 2 FOLLOWING) AS least,
        max(kind) OVER ({_BY_WEIGHT} ROWS 1 PRECEDING) AS most, max_by(id, amount) OVER ({_BY_WEIGHT}) AS by,
        count(*) FILTER (WHERE n > 1) OVER ({_BY_WEIGHT} ROWS BETWEEN CURRENT ROW AND CURRENT ROW) AS own,
        first_value(n) OVER ({_BY_WEIGHT} ROWS BETWEEN 1 FOLLOWING AND 2 FOLLOWING) AS next
        FROM shop.orders""",
        ["id"],
    ),
    "over_join": (
        """SELECT o.id, c.name, o.amount - lag(o.amount) OVER (PARTITION BY c.name ORDER BY o.seen DESC) AS more,
        rank() OVER (PARTITION BY c.region_id ORDER BY o.n, o.day) AS place
        FROM shop.orders o LEFT JOIN shop.customers c ON c.id = o.customer_id""",
        ["id"],
    ),
    "over_groups": (
        """SELECT kind, customer_id, count(*) AS n, rank() OVER (PARTITION BY kind ORDER BY count(*) DESC) AS place,
        sum(sum(amount)) OVER (PARTITION BY kind ORDER BY customer_id) AS running
        FROM shop.orders GROUP BY kind, customer_id QUALIFY place < 4""",
        ["customer_id", "kind"],
    ),
}


@cache
def over_plans() -> dict[str, GroupPlan]:
    """Return window functions of every kind: over a table, over frames, over a join, and over groups."""
    return {
        name: GroupPlan(name=name, plan=Case(tables=TABLES, query=query, row_key=key, history=[]).plan(), answer="")
        for name, (query, key) in _QUERIES.items()
    }
