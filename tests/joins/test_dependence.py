"""Row keys of groups that omit columns which the others determine."""

from __future__ import annotations

from typing import Any

import pytest

from cdc.model.errors import TopologyError
from joins.query.plan import Plan
from tests.joins.joincase import Case, run_case

TABLES = {
    "shop.lines": {"key": ["order_id", "nr"], "order_id": "int", "nr": "int", "qty": "int", "ship": "varchar(9)?"},
    "shop.orders": {"key": ["id"], "id": "int", "customer_id": "int?", "status": "varchar(9)?", "rate": "int?"},
    "crm.customers": {"key": ["id"], "id": "int", "name": "varchar(9)?", "nation_id": "int?"},
    "crm.nations": {"key": ["id"], "id": "int", "name": "varchar(9)?"},
}
JOINED = """FROM shop.lines l JOIN shop.orders o ON o.id = l.order_id LEFT JOIN crm.customers c ON c.id = o.customer_id
LEFT JOIN crm.nations n ON n.id = c.nation_id"""


def plan(columns: str, row_key: str, text: str = JOINED) -> Plan:
    query = f"SELECT {columns}, sum(l.qty) AS qty {text}"
    return Case(tables=TABLES, query=query, row_key=row_key.split(), history=[]).plan()


@pytest.mark.parametrize(
    ("columns", "group", "row_key"),
    [
        ("o.id, o.status", "o.id, o.status", "id"),
        ("l.order_id, o.status, c.name", "l.order_id, o.status, c.name", "order_id"),  # equal by an inner join
        ("o.id, n.name", "o.id, n.name", "id"),  # by two joins along keys
        ("c.id, c.name, n.name AS nation", "n.name, c.name, c.id", "id"),  # of a LEFT JOIN: NULL determines NULL
        ("o.id, upper(c.name) AS name", "o.id, upper(c.name)", "id"),
        ("o.id, o.status, o.rate % 2 AS odd", "o.id, o.status, o.rate % 2", "id"),
        ("o.id, o.status, 'x' AS kind", "o.id, o.status, 'x'", "id"),
    ],
)
def test_a_primary_key_determines_the_columns_of_its_row(columns: str, group: str, row_key: str) -> None:
    """The groups have one key column, and the others are computed from equal values."""
    found = plan(columns, row_key, f"{JOINED} GROUP BY {group}")
    grouping = found.fragments[0].group
    assert grouping is not None
    assert len(grouping.keys) == 1
    assert list(found.sink.row_key) == [row_key]


def test_a_condition_determines_a_column() -> None:
    """`status = 'n1'` leaves one status."""
    plan("c.name, o.status", "name", f"{JOINED} WHERE o.status = 'n1' GROUP BY c.name, o.status")
    with pytest.raises(TopologyError, match=r"o\.status is not in it|status is not in it"):
        plan("c.name, o.status", "name", f"{JOINED} WHERE o.status > 'n1' GROUP BY c.name, o.status")


def test_a_double_determines_no_integer() -> None:
    """`9007199254740992e0` equals two integers, whose rows would become one group."""
    columns, group = "c.name, o.rate", "GROUP BY c.name, o.rate"
    plan(columns, "name", f"{JOINED} WHERE o.rate = 5 {group}")
    with pytest.raises(TopologyError, match="rate is not in it"):
        plan(columns, "name", f"{JOINED} WHERE o.rate = 9007199254740992e0 {group}")


@pytest.mark.parametrize(
    ("columns", "group", "row_key"),
    [
        ("o.status, o.id", "o.status, o.id", "status"),
        ("l.order_id, l.ship", "l.order_id, l.ship", "order_id"),  # a part of the key of lines
        ("c.name, c.nation_id", "c.name, c.nation_id", "name"),  # no key
        ("n.id, c.name", "n.id, c.name", "id"),  # against the direction of the join
    ],
)
def test_other_columns_do_not(columns: str, group: str, row_key: str) -> None:
    """The error names the missing column of GROUP BY."""
    with pytest.raises(TopologyError, match="no key of the groups"):
        plan(columns, row_key, f"{JOINED} GROUP BY {group}")


def test_a_complete_row_key_keeps_its_plan() -> None:
    """If the row key contains all columns of GROUP BY, the groups have them all, as before."""
    grouping = plan("o.id, o.status", "id status", f"{JOINED} GROUP BY o.id, o.status").fragments[0].group
    assert grouping is not None
    assert len(grouping.keys) == 2


def test_more_rows_of_one_key_are_wanted() -> None:
    """The key columns that the row key names stay, also if another one determines them."""
    grouping = (
        plan("o.id, o.status, c.name", "id status", f"{JOINED} GROUP BY o.id, o.status, c.name").fragments[0].group
    )
    assert grouping is not None
    assert len(grouping.keys) == 2


@pytest.mark.parametrize(
    ("query", "row_key"),
    [
        # more columns than the key, which may be NULL as those of the key
        (
            "SELECT t.a, t.b, t.c, t.n FROM (SELECT status AS a, status AS b, rate AS c, count(*) AS n, row_number() "
            "OVER (PARTITION BY status ORDER BY rate) AS place FROM shop.orders GROUP BY status, rate) t "
            "WHERE t.place = 1",
            "b a c",
        ),
        ("SELECT status, rate, max(customer_id) AS most FROM shop.orders GROUP BY status, rate", "most status rate"),
        (
            "SELECT o.status AS s, o.id, p.id AS other FROM shop.orders o LEFT JOIN shop.orders p ON p.rate = o.rate",
            "s id other",
        ),
        # the second key of the rows that a UNION ALL reads
        *(
            (
                "WITH t AS (SELECT id, customer_id, n FROM (SELECT id, customer_id, row_number() OVER (PARTITION BY "
                "customer_id ORDER BY rate) AS n FROM shop.orders) q WHERE n <= 2) "
                "SELECT 'x' AS kind, t.id, t.n, t.customer_id AS c FROM t UNION ALL "
                "SELECT 'y', t.id, t.n, t.customer_id FROM t",
                key,
            )
            for key in ("kind id", "kind n c", "id kind n")
        ),
    ],
)
def test_row_keys_with_more_columns_and_other_keys_are_kept(query: str, row_key: str) -> None:
    """The rows are right when columns of the key become NULL, and when rows move."""
    history: list[list[Any]] = []
    for number in range(24):
        row = {
            "id": number % 7,
            "customer_id": number % 3,
            "status": [None, "x"][number % 2],
            "rate": number % 4 or None,
        }
        history.append(["put", "shop.orders", row])
        history += [["delete", "shop.orders", {"id": number % 5}]] * (number % 4 == 3)
        history += [["quiet"]] * (number % 6 == 5)
    tables = {"shop.orders": TABLES["shop.orders"]}
    for seed in range(3):
        run_case(Case(tables=tables, query=query, row_key=row_key.split(), history=history), seed)
