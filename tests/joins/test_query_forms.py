"""Forms of rewritten queries that were once computed wrongly, or ended in an error of Python."""

from __future__ import annotations

import random
from typing import Any

import pytest
from sqlglot import exp

from cdc.model.errors import TopologyError
from joins.oracle.oracle import tables_after
from joins.select.tokens import statements_of
from tests.joins.joincase import Case, events_of, prepared, run_case
from tests.joins.querykinds import ORDERS, Kind
from tests.joins.test_queries import _history
from tests.joins.test_query_kinds import answered, case_of, plain

COUNTED = (
    "(SELECT customer_id AS k, status AS s, count(*) AS n FROM shop.orders "
    "WHERE customer_id > 0 AND status IN ('n1', 'n2') GROUP BY customer_id, status) a "
    "FULL JOIN (SELECT DISTINCT nation_id AS k, country AS s FROM crm.customers) b USING (k, s) "
    "LEFT JOIN crm.nations x ON x.id = b.k WHERE a.n > 1 OR a.n IS NULL"
)
GROUPS = (
    "(SELECT customer_id AS k, count(*) AS n FROM shop.orders WHERE customer_id IS NOT NULL GROUP BY customer_id) a "
    "FULL JOIN (SELECT nation_id AS k, count(*) AS m FROM crm.customers GROUP BY nation_id) b ON b.k = a.k"
)
# for each query its row key, and whether the key needs the rewritten FULL JOIN
FULL = {
    f"SELECT coalesce(a.k, b.k) AS k, a.n, b.m FROM {GROUPS}": ("k", True),
    f"SELECT coalesce(a.k, b.k) AS k, a.n, b.m FROM {GROUPS} ORDER BY n": ("k", True),
    f"SELECT q.k, q.n FROM (SELECT coalesce(a.k, b.k) AS k, a.n FROM {GROUPS}) q": ("k", True),
    f"SELECT a.k, b.k AS j, coalesce(a.k, b.k) AS i FROM {GROUPS}": ("k, j", False),
    f"SELECT coalesce(a.k, b.k) AS k, sum(b.m) AS m FROM {GROUPS} GROUP BY 1": ("k", False),
    f"SELECT 'a' AS k, coalesce(max(a.k), 0) AS v FROM {GROUPS}": ("k", False),
    f"SELECT DISTINCT coalesce(a.k, b.k) AS k FROM {GROUPS}": ("k", False),
    f"SELECT k, max(n) AS n FROM (SELECT coalesce(a.k, b.k) AS k, a.n FROM {GROUPS}) q GROUP BY k": ("k", False),
    f"WITH q AS (SELECT coalesce(a.k, b.k) AS k FROM {GROUPS}) SELECT k, count(*) AS n FROM q GROUP BY k": ("k", False),
    f"SELECT id FROM shop.orders WHERE id IN (SELECT coalesce(a.k, b.k) FROM {GROUPS})": ("id", False),
    f"SELECT coalesce(a.k, b.k) AS k FROM {GROUPS} UNION SELECT id FROM shop.orders": ("k", False),
    "SELECT k, r FROM (SELECT coalesce(a.k, b.k) AS k, row_number() OVER (ORDER BY a.n DESC) AS r "
    f"FROM {GROUPS}) q WHERE r <= 3": ("r", False),
    "SELECT k, n FROM (SELECT coalesce(a.k, b.k) AS k, a.n, row_number() OVER (PARTITION BY a.n ORDER BY a.k) AS r "
    f"FROM {GROUPS}) q WHERE r = 1": ("n", False),
}
FORMS = (
    Kind(
        name="texts in the order of a name in another case, and a sum of RLIKE",
        query="SELECT customer_id AS id, GROUP_CONCAT(DISTINCT o.status ORDER BY STATUS DESC SEPARATOR ';') AS v, "
        f"sum(status RLIKE '^n[12]') AS n FROM {ORDERS} GROUP BY customer_id",
        key="id",
        answered="SELECT customer_id, string_agg(DISTINCT status, ';' ORDER BY status DESC), "
        "count(*) FILTER (WHERE regexp_matches(status, '^n[12]')) FROM shop.orders GROUP BY customer_id",
    ),
    Kind(
        name="values of subqueries in FILTER, and DISTINCT of one value",
        query="SELECT o.status, count(*) FILTER (WHERE o.amount >= (SELECT DISTINCT avg(amount) FROM shop.orders)) n "
        f"FROM {ORDERS} GROUP BY o.status",
        key="status",
    ),
    Kind(
        name="columns of the outer query without its name",
        query="SELECT id, (SELECT count(*) FROM shop.lines WHERE order_id = customer_id) AS n FROM shop.orders "
        "WHERE EXISTS (SELECT * FROM shop.lines WHERE order_id = customer_id AND qty > 0) AND customer_id NOT IN "
        "(SELECT nation_id FROM crm.customers WHERE country = 'n1' AND nation_id IS NOT NULL)",
        key="id",
    ),
    Kind(
        name="values of single rows, in a many-to-many join",
        query="SELECT o.id, p.id AS pid, (SELECT c.name || '!' FROM crm.customers c WHERE c.id = o.customer_id) AS n, "
        "(SELECT n.name FROM crm.customers c JOIN crm.nations n ON n.id = c.nation_id WHERE p.order_id = c.id) AS m "
        "FROM shop.orders o JOIN shop.payments p ON p.kind = o.status WHERE p.kind <> "
        "(SELECT coalesce(c.country, 'n1') FROM crm.customers c WHERE c.id = o.customer_id) ORDER BY 1",
        key="id, pid",
    ),
    Kind(
        name="LEFT ANTI and LEFT SEMI JOIN",
        query=f"SELECT o.id FROM {ORDERS} LEFT ANTI JOIN shop.lines l ON l.order_id = o.id AND l.qty > 1 "
        "LEFT SEMI JOIN crm.customers c ON c.id = o.customer_id WHERE o.status <> 'n3' ORDER BY o.id DESC",
        key="id",
        answered="SELECT o.id FROM shop.orders o WHERE NOT EXISTS (SELECT 1 FROM shop.lines l WHERE l.order_id = o.id "
        "AND l.qty > 1) AND o.customer_id IN (SELECT id FROM crm.customers) AND o.status <> 'n3'",
    ),
    Kind(
        name="LEFT ANTI JOIN before a RIGHT JOIN",
        query=f"SELECT p.id, o.status FROM {ORDERS} LEFT ANTI JOIN shop.lines l ON l.order_id = o.id "
        "RIGHT JOIN shop.payments p ON p.order_id = o.id",
        key="id",
        answered="SELECT p.id, o.status FROM shop.payments p LEFT JOIN shop.orders o ON p.order_id = o.id "
        "AND o.id NOT IN (SELECT order_id FROM shop.lines)",
    ),
    Kind(
        name="LEFT SEMI and LEFT ANTI JOIN before a FULL JOIN",
        query=f"SELECT o.id, p.id AS pid FROM {ORDERS} LEFT ANTI JOIN shop.lines l ON l.order_id = o.id "
        "SEMI JOIN crm.customers c ON c.id = o.customer_id FULL JOIN shop.payments p ON p.order_id = o.id",
        key="id, pid",
        answered="SELECT o.id, p.id FROM (SELECT * FROM shop.orders WHERE id NOT IN (SELECT order_id FROM shop.lines) "
        "AND customer_id IN (SELECT id FROM crm.customers)) o FULL JOIN shop.payments p ON p.order_id = o.id",
    ),
    Kind(
        name="LEFT SEMI JOIN of a joined table before a RIGHT JOIN",
        query=f"SELECT p.id, c.name FROM {ORDERS} JOIN crm.customers c ON c.id = o.customer_id "
        "LEFT SEMI JOIN crm.nations n ON n.id = c.nation_id RIGHT JOIN shop.payments p ON p.order_id = o.id",
        key="id",
        answered="SELECT p.id, q.name FROM shop.payments p LEFT JOIN (SELECT o.id, c.name FROM shop.orders o JOIN "
        "crm.customers c ON c.id = o.customer_id WHERE EXISTS (SELECT 1 FROM crm.nations n "
        "WHERE n.id = c.nation_id)) q ON p.order_id = q.id",
    ),
    Kind(
        name="FULL JOIN of groups by the name of a result column",
        query="SELECT coalesce(a.k, b.k) AS k, a.n, b.n AS m FROM (SELECT date_trunc('DAY', created_at) AS k, "
        "count(*) AS n FROM shop.orders WHERE created_at IS NOT NULL GROUP BY k) a FULL JOIN (SELECT created_at AS k, "
        "count(*) AS n FROM shop.orders GROUP BY created_at) b ON b.k = a.k",
        key="k",
    ),
    Kind(
        name="calls within calls of the same name",
        query="SELECT id, nvl2(amount, nvl2(customer_id, 1, 2), 3) AS a, decode(customer_id, 1, 'p', "
        "decode(customer_id, 2, 'q', 'r')) AS b, isnull(isnull(amount)) AS c, "
        "split(split(status, '1')[0], 'n')[1] AS d FROM shop.orders",
        key="id",
        answered="SELECT id, CASE WHEN amount IS NULL THEN 3 WHEN customer_id IS NULL THEN 2 ELSE 1 END, "
        "CASE customer_id WHEN 1 THEN 'p' WHEN 2 THEN 'q' ELSE 'r' END, FALSE, "
        "string_split(string_split(status, '1')[1], 'n')[2] FROM shop.orders",
    ),
    Kind(
        name="columns that a key of one side of pairs determines",
        query="SELECT o.id, o.status, p.kind, count(*) AS n FROM shop.payments p LEFT JOIN shop.orders o "
        "ON o.status = p.kind GROUP BY o.id, o.status, p.kind",
        key="id, kind",
    ),
    Kind(
        name="FULL JOIN of groups by USING, and its sides in a condition",
        query=f"SELECT k, s, a.n, x.id, a.k IS NULL AS alone FROM {COUNTED}",
        key="k, s",
    ),
    Kind(
        name="NULL in the first query of a UNION",
        query="SELECT 'o' AS kind, id, NULL AS name, created_at AS at FROM shop.orders UNION ALL "
        "SELECT 'c', id, name, NULL FROM crm.customers",
        key="kind, id",
    ),
    Kind(
        name="windows with names, one of another",
        query=f"SELECT o.id, sum(o.amount) OVER w AS s, count(*) OVER (V ROWS 1 PRECEDING) AS n FROM {ORDERS} "
        "WINDOW w AS (PARTITION BY o.status), v AS (w ORDER BY o.id)",
        key="id",
    ),
    Kind(
        name="FILTER reads all rows of a subtotal",
        query=f"SELECT o.status, count(*) FILTER (WHERE o.status = 'n1') AS n, grouping(o.status) AS g FROM {ORDERS} "
        "GROUP BY ROLLUP (o.status)",
        key="g, status",
    ),
    Kind(
        name="bits of GROUPING_ID in the order of the text",
        query=f"SELECT o.status, o.customer_id, count(*) AS n, grouping_id() AS g FROM {ORDERS} "
        "GROUP BY ROLLUP (o.status), o.customer_id",
        key="g, status, customer_id",
        answered="SELECT status, customer_id, count(*), grouping(status, customer_id) FROM shop.orders "
        "GROUP BY ROLLUP (status), customer_id",
    ),
    Kind(
        name="GROUPING of a column with and without its table",
        query=f"SELECT o.status, count(*) AS n, grouping(o.status) AS g FROM {ORDERS} GROUP BY ROLLUP (status)",
        key="g, status",
    ),
    Kind(
        name="HAVING with the name of a result column in each set",
        query=f"SELECT o.status, count(*) AS n, grouping(o.status) AS g FROM {ORDERS} GROUP BY ROLLUP (o.status) "
        "HAVING n > 1",
        key="g, status",
    ),
    Kind(
        name="OFFSET of a subquery and of its query",
        query=f"SELECT q.id FROM (SELECT o.id FROM {ORDERS} ORDER BY o.id DESC LIMIT 3) q "
        "ORDER BY q.id LIMIT 2 OFFSET 1",
        key="id",
    ),
    Kind(
        name="a column within OVER in QUALIFY",
        query="SELECT o.id, -o.customer_id AS customer_id, rank() OVER (ORDER BY customer_id) AS r FROM shop.orders o "
        "QUALIFY rank() OVER (ORDER BY customer_id) <= 2",
        key="id",
    ),
    Kind(
        name="a column within OVER in QUALIFY with a limit",
        query="SELECT o.id, -o.customer_id AS customer_id FROM shop.orders o "
        "QUALIFY row_number() OVER (ORDER BY customer_id, o.id) <= 2",
        key="id",
    ),
    Kind(
        name="last without NULLs",
        query="SELECT o.id, last(o.amount) IGNORE NULLS OVER (ORDER BY o.amount NULLS LAST "
        "ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) AS v FROM shop.orders o",
        key="id",
    ),
    Kind(
        name="WITH hides a table only after itself",
        query="WITH Totals AS (SELECT id, amount FROM shop.orders), more AS (SELECT id, amount FROM TOTALS) "
        "SELECT id, amount FROM more",
        key="id",
    ),
)

REFUSED = {
    "the name is a column of the table, too": (
        f"SELECT o.status AS customer_id, o.customer_id AS status, count(*) AS n, grouping_id() AS g FROM {ORDERS} "
        "GROUP BY ROLLUP (status, customer_id)",
        "another name than status for the result column",
    ),
    "an aggregate in a set": (
        f"SELECT count(*) AS AMOUNT, grouping(o.status) AS g, o.status FROM {ORDERS} "
        "GROUP BY ROLLUP (o.status, amount)",
        "",
    ),
    "GROUPING of another column": (
        f"SELECT o.status, grouping(o.amount) AS g, count(*) AS n FROM {ORDERS} GROUP BY ROLLUP (o.status)",
        "GROUPING(o.amount)",
    ),
    "QUALIFY with an aggregate of a partition": (
        f"SELECT o.id FROM {ORDERS} QUALIFY count(*) OVER (PARTITION BY status) = 1",
        "them as columns of a query in FROM, and WHERE",
    ),
    "a LEFT ANTI JOIN of two tables before a RIGHT JOIN": (
        f"SELECT p.id FROM {ORDERS} JOIN crm.customers c ON c.id = o.customer_id LEFT ANTI JOIN shop.lines l "
        "ON l.order_id = o.id AND l.qty > c.nation_id RIGHT JOIN shop.payments p ON p.order_id = o.id",
        "before a RIGHT or FULL JOIN in FROM (SELECT …) name",
    ),
    "a LEFT SEMI JOIN by a name without its table": (
        f"SELECT o.id FROM {ORDERS} LEFT SEMI JOIN shop.payments p ON p.order_id = o.id AND p.amount = amount",
        "a table's name before each column",
    ),
    "FULL JOIN of groups by the name of a result column and of a table's": (
        "SELECT coalesce(a.created_at, b.created_at) AS id, a.n FROM (SELECT date_trunc('DAY', created_at) AS "
        "created_at, count(*) AS n FROM shop.orders WHERE created_at IS NOT NULL GROUP BY created_at) a FULL JOIN "
        "(SELECT DISTINCT created_at FROM shop.orders) b ON b.created_at = a.created_at",
        "another name than created_at for the result column",
    ),
    "a list in a FULL JOIN with one key": (
        "SELECT coalesce(a.k, b.k) AS id, a.v FROM (SELECT customer_id AS k, collect_list(status) AS v FROM shop.orders"
        " WHERE customer_id IS NOT NULL GROUP BY 1) a FULL JOIN (SELECT DISTINCT nation_id AS k FROM crm.customers) b"
        " ON b.k = a.k",
        "of a list array_join(x, ',')",
    ),
    "WITH in a circle around a FULL JOIN": (
        f"WITH q AS (SELECT k FROM q UNION ALL SELECT coalesce(a.k, b.k) AS k FROM {GROUPS}) "
        "SELECT k AS id, count(*) AS n FROM q GROUP BY k",
        "one of shop.orders",
    ),
    "DISTINCT ON a number": (f"SELECT DISTINCT ON (5) o.id FROM {ORDERS} ORDER BY o.id", "DISTINCT ON (o.x)"),
    "DISTINCT ON a text": (f"SELECT DISTINCT ON ('x') o.id FROM {ORDERS}", "DISTINCT ON (o.x)"),
    "NATURAL after a RIGHT JOIN": (
        f"SELECT o.id FROM {ORDERS} JOIN crm.customers c ON c.id = o.customer_id "
        "RIGHT JOIN shop.products p ON p.id = o.id NATURAL JOIN shop.lines",
        "RIGHT JOIN",
    ),
}

ODD: dict[str, Any] = {
    "shop.a": {"key": ["ID"], "ID": "int", "v": "int?"},
    "shop.b": {"key": ["id"], "id": "int", "w": "int?"},
}


@pytest.mark.parametrize("kind", FORMS, ids=lambda kind: kind.name)
def test_a_form_is_its_select(kind: Kind) -> None:
    """DuckDB answers the text and the rewritten query alike, and the joined table equals both after random changes."""
    case = case_of(kind)
    events = [event for some in events_of(case) for event in some]
    tables = tables_after(events, {table: schema.primary_key for table, schema in case.schemas().items()})
    found = [tuple(map(plain, row.values())) for row in prepared(case).answer(tables).values()]
    assert sorted(found, key=repr) == sorted(answered(kind, case, tables), key=repr)
    assert found
    run_case(case, 0)


@pytest.mark.parametrize(("query", "remedy"), REFUSED.values(), ids=REFUSED)
def test_a_form_without_a_meaning_is_refused(query: str, remedy: str) -> None:
    with pytest.raises(TopologyError) as error:
        case_of(Kind(name="refused", query=query, key="id")).plan()
    assert remedy in str(error.value)


@pytest.mark.parametrize(("query", "form"), FULL.items(), ids=range(len(FULL)))
def test_a_full_join_is_rewritten_only_for_the_row_key(query: str, form: tuple[str, bool]) -> None:
    """Queries whose result needs no key of the joined rows keep their plans."""
    key, rewritten = form
    statement = statements_of(query, key.split(", "))[0]
    assert statement is not None
    assert any(join.side == "FULL" for join in statement.find_all(exp.Join)) is not rewritten
    case_of(Kind(name="FULL JOIN", query=query, key=key)).plan()


def test_a_full_join_before_using_is_left() -> None:
    """A later USING reads the key by its name, which the rewritten rows do not have."""
    query = f"SELECT k, a.n, o.id FROM {GROUPS.replace('ON b.k = a.k', 'USING (k)')} LEFT JOIN shop.orders o USING (k)"
    statement = statements_of(query, ["k"])[0]
    assert statement is not None
    assert [join.side for join in statement.find_all(exp.Join)] == ["FULL", "LEFT"]


@pytest.mark.parametrize(("items", "key"), [("id, v, w", "id"), ("ID, id + 0 AS z, w", "ID"), ("*", "ID")])
def test_a_column_shared_in_another_case_is_the_first_tables(items: str, key: str) -> None:
    """In a LEFT JOIN … USING (id), the second table's column is NULL for rows without a match."""
    for seed in range(3):
        run_case(odd_case(f"SELECT {items} FROM shop.a LEFT JOIN shop.b USING (id)", key, seed), seed)


def test_a_limit_is_on_the_number_only() -> None:
    """A column whose name differs from the number's in case only is filtered as any other."""
    numbered = "SELECT a.ID, a.v AS RN, ROW_NUMBER() OVER (ORDER BY a.ID) AS rn FROM shop.a a"
    plans = [
        odd_case(f"SELECT q.ID FROM ({numbered}) q WHERE q.RN <= 1 AND q.rn <= {most}", "ID").plan() for most in (2, 3)
    ]
    assert plans[0] != plans[1]


def odd_case(query: str, key: str, seed: int = 0) -> Case:
    return Case(tables=ODD, query=query, row_key=[key], history=_history(ODD, random.Random(seed)))
