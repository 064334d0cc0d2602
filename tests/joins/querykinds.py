"""The kinds of queries that people write over a shop: TPC-H's, NEXMark's, dashboards, reports. One query for each.

`refused` is a part of the error's remedy if the kind is not supported. `answered` is DuckDB's form of a query that
DuckDB reads otherwise than Spark."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind of query: its name, an example over the tables of docs/queries.md, and the row key."""

    name: str
    query: str
    key: str
    refused: str = ""
    answered: str = ""


ORDERS, LINES = "shop.orders o", "shop.lines l"
KINDS = (
    Kind(
        name="interval of a literal date",
        query=f"SELECT o.id FROM {ORDERS} WHERE o.created_at <= DATE'2026-01-09' - INTERVAL '6' DAY",
        key="id",
    ),
    Kind(
        name="interval of a column",
        query=f"SELECT o.id, CAST(o.created_at AS DATE) + INTERVAL 1 MONTH AS due FROM {ORDERS}",
        key="id",
    ),
    Kind(
        name="scalar subquery in WHERE",
        query=f"SELECT o.id FROM {ORDERS} WHERE o.amount > (SELECT avg(amount) FROM shop.orders)",
        key="id",
    ),
    Kind(
        name="scalar subquery in HAVING",
        query=f"SELECT l.product_id, sum(l.price) AS v FROM {LINES} GROUP BY l.product_id "
        "HAVING sum(l.price) > (SELECT 0.2 * sum(price) FROM shop.lines)",
        key="product_id",
    ),
    Kind(
        name="the greatest of groups",
        query="WITH r AS (SELECT customer_id, sum(amount) AS total FROM shop.orders GROUP BY customer_id) "
        "SELECT r.customer_id, r.total FROM r WHERE r.total = (SELECT max(total) FROM r)",
        key="customer_id",
    ),
    Kind(
        name="correlated subquery in WHERE",
        query="SELECT l.order_id, l.nr FROM shop.lines l JOIN shop.products p ON p.id = l.product_id "
        "WHERE l.qty < (SELECT 0.9 * avg(x.qty) FROM shop.lines x WHERE x.product_id = p.id)",
        key="order_id, nr",
    ),
    Kind(
        name="correlated subquery in SELECT",
        query="SELECT c.id, (SELECT count(*) FROM shop.orders o WHERE o.customer_id = c.id) AS orders "
        "FROM crm.customers c",
        key="id",
    ),
    Kind(
        name="unqualified correlated columns",
        query="SELECT id, name FROM crm.nations WHERE EXISTS "
        "(SELECT 1 FROM crm.customers WHERE nation_id = nations.id)",
        key="id",
    ),
    Kind(
        name="NOT IN",
        query=f"SELECT o.id FROM {ORDERS} WHERE o.customer_id NOT IN (SELECT c.id FROM crm.customers c)",
        key="id",
    ),
    Kind(
        name="EXISTS with an inequality",
        query="SELECT l1.order_id, l1.nr FROM shop.lines l1 WHERE EXISTS (SELECT 1 FROM shop.lines l2 "
        "WHERE l2.order_id = l1.order_id AND l2.product_id <> l1.product_id)",
        key="order_id, nr",
    ),
    Kind(
        name="functional dependence",
        query="SELECT o.id, o.created_at, c.name, sum(l.price) AS v FROM shop.lines l JOIN shop.orders o "
        "ON o.id = l.order_id JOIN crm.customers c ON c.id = o.customer_id GROUP BY o.id, o.created_at, c.name",
        key="id",
    ),
    Kind(
        name="first rows of each group",
        query="SELECT o.customer_id, o.id, ROW_NUMBER() OVER (PARTITION BY o.customer_id ORDER BY o.amount DESC) "
        f"AS n FROM {ORDERS} QUALIFY n <= 2",
        key="customer_id, n",
    ),
    Kind(
        name="rank and dense_rank",
        query=f"SELECT o.id, rank() OVER (PARTITION BY o.customer_id ORDER BY o.amount) AS r, "
        f"dense_rank() OVER (PARTITION BY o.customer_id ORDER BY o.amount) AS d FROM {ORDERS}",
        key="id",
    ),
    Kind(
        name="lag and lead",
        query=f"SELECT o.id, lag(o.amount) OVER (PARTITION BY o.customer_id ORDER BY o.id) AS r, "
        f"lead(o.amount) OVER (PARTITION BY o.customer_id ORDER BY o.id) AS l FROM {ORDERS}",
        key="id",
    ),
    Kind(
        name="first_value",
        query=f"SELECT o.id, first_value(o.amount) OVER (PARTITION BY o.customer_id ORDER BY o.id) AS r FROM {ORDERS}",
        key="id",
    ),
    Kind(
        name="ntile",
        query=f"SELECT o.id, ntile(4) OVER (PARTITION BY o.customer_id ORDER BY o.id) AS r FROM {ORDERS}",
        key="id",
    ),
    Kind(
        name="running sum",
        query=f"SELECT o.id, sum(o.amount) OVER (PARTITION BY o.customer_id ORDER BY o.id) AS r FROM {ORDERS}",
        key="id",
    ),
    Kind(
        name="frame of rows",
        query=f"SELECT o.id, avg(o.amount) OVER (PARTITION BY o.customer_id ORDER BY o.id "
        f"ROWS BETWEEN 2 PRECEDING AND CURRENT ROW) AS r FROM {ORDERS}",
        key="id",
    ),
    Kind(
        name="aggregate of a partition",
        query=f"SELECT o.id, sum(o.amount) OVER (PARTITION BY o.customer_id) AS r FROM {ORDERS}",
        key="id",
    ),
    Kind(
        name="share of the total",
        query="SELECT status, sum(amount) AS v, CAST(sum(amount) AS DOUBLE) / sum(sum(amount)) OVER () AS share "
        "FROM shop.orders GROUP BY status",
        key="status",
    ),
    Kind(
        name="texts of a group in one",
        query=f"SELECT o.customer_id, string_agg(o.status, ', ') WITHIN GROUP (ORDER BY o.status) AS v FROM {ORDERS} "
        "GROUP BY o.customer_id",
        key="customer_id",
    ),
    Kind(
        name="GROUP_CONCAT with SEPARATOR",
        query="SELECT customer_id, GROUP_CONCAT(DISTINCT status ORDER BY status SEPARATOR ';') AS v FROM shop.orders "
        "GROUP BY customer_id",
        key="customer_id",
        answered="SELECT o.customer_id, string_agg(DISTINCT o.status, ';' ORDER BY o.status) AS v FROM shop.orders o "
        "GROUP BY o.customer_id",
    ),
    Kind(
        name="median and percentile",
        query="SELECT status, median(amount) AS m, percentile(amount, 0.25) AS p FROM shop.orders GROUP BY status",
        key="status",
        answered="SELECT status, median(amount), quantile_cont(CAST(amount AS DOUBLE), 0.25) FROM shop.orders "
        "GROUP BY status",
    ),
    Kind(
        name="stddev and variance",
        query=f"SELECT l.product_id, stddev(l.qty) AS s, var_pop(l.qty) AS v FROM {LINES} GROUP BY l.product_id",
        key="product_id",
    ),
    Kind(
        name="mode",
        query=f"SELECT o.customer_id, mode(o.status) AS m FROM {ORDERS} GROUP BY o.customer_id",
        key="customer_id",
        answered="SELECT customer_id, mode(status ORDER BY status) FROM shop.orders GROUP BY customer_id",
    ),
    Kind(
        name="approximate count, any value",
        query=f"SELECT o.customer_id, approx_count_distinct(o.status) AS n, any_value(o.status) AS s FROM {ORDERS} "
        "GROUP BY o.customer_id",
        key="customer_id",
        answered="SELECT customer_id, count(DISTINCT status), min(status) FROM shop.orders GROUP BY customer_id",
    ),
    Kind(
        name="sum of a condition",
        query=f"SELECT o.customer_id, sum(o.status = 'n1') AS n, count_if(o.amount > 2) AS m FROM {ORDERS} "
        "GROUP BY o.customer_id",
        key="customer_id",
        answered="SELECT customer_id, sum(status = 'n1'), count(*) FILTER (WHERE amount > 2) FROM shop.orders "
        "GROUP BY customer_id",
    ),
    Kind(
        name="ROLLUP",
        query=f"SELECT o.status, o.customer_id, sum(o.amount) AS v, grouping_id() AS g FROM {ORDERS} "
        "GROUP BY ROLLUP (o.status, o.customer_id)",
        key="g, status, customer_id",
        answered="SELECT status, customer_id, sum(amount), grouping(status, customer_id) FROM shop.orders "
        "GROUP BY ROLLUP (status, customer_id)",
    ),
    Kind(
        name="CUBE",
        query=f"SELECT o.status, o.customer_id, count(*) AS v, grouping(o.status) AS a, grouping(o.customer_id) AS b "
        f"FROM {ORDERS} GROUP BY o.status, o.customer_id WITH CUBE",
        key="a, b, status, customer_id",
        answered="SELECT status, customer_id, count(*), grouping(status), grouping(customer_id) FROM shop.orders "
        "GROUP BY CUBE (status, customer_id)",
    ),
    Kind(
        name="GROUPING SETS",
        query=f"SELECT o.status, o.customer_id, count(*) AS v, grouping(o.status) AS a FROM {ORDERS} "
        "GROUP BY GROUPING SETS ((o.status), (o.customer_id))",
        key="a, status, customer_id",
    ),
    Kind(
        name="EXCEPT and INTERSECT",
        query="SELECT customer_id FROM shop.orders INTERSECT SELECT id FROM crm.customers "
        "EXCEPT SELECT parent_id FROM shop.products",
        key="customer_id",
    ),
    Kind(
        name="EXCEPT ALL",
        query="SELECT customer_id FROM shop.orders EXCEPT ALL SELECT id FROM crm.customers",
        key="customer_id",
        refused="equal rows have one row_key",
    ),
    Kind(
        name="UNION of expressions",
        query="SELECT customer_id + 1 AS n FROM shop.orders UNION SELECT 2 * id FROM crm.customers",
        key="n",
    ),
    Kind(
        name="ORDER BY and LIMIT",
        query=f"SELECT o.id, o.amount FROM {ORDERS} ORDER BY o.amount DESC, o.id LIMIT 5",
        key="id",
    ),
    Kind(
        name="OFFSET",
        query=f"SELECT o.id, o.amount FROM {ORDERS} ORDER BY o.id LIMIT 3 OFFSET 2",
        key="id",
    ),
    Kind(
        name="hopping window",
        query=f"SELECT window(o.created_at, '1 day', '12 hours') AS w, count(*) AS n FROM {ORDERS} "
        "GROUP BY window(o.created_at, '1 day', '12 hours')",
        key="w",
        answered="SELECT hop, count(*) FROM (SELECT time_bucket(INTERVAL 12 HOUR, created_at) - i * INTERVAL 12 HOUR "
        "AS hop FROM shop.orders, range(2) r(i) WHERE created_at IS NOT NULL) GROUP BY hop",
    ),
    Kind(
        name="session window",
        query=f"SELECT session_window(o.created_at, '1 hour') AS w, count(*) AS n FROM {ORDERS} "
        "GROUP BY session_window(o.created_at, '1 hour')",
        key="w",
        refused="window(x, '30 minutes')",
    ),
    Kind(
        name="the last days",
        query=f"SELECT o.id FROM {ORDERS} WHERE o.created_at >= now() - INTERVAL 30 DAY",
        key="id",
    ),
    Kind(
        name="range join",
        query="SELECT o.id, p.id AS payment_id FROM shop.orders o JOIN shop.payments p "
        "ON p.amount BETWEEN o.amount AND o.amount + 1",
        key="id, payment_id",
    ),
    Kind(
        name="CROSS JOIN",
        query="SELECT c.id, n.id AS nation_id FROM crm.customers c CROSS JOIN crm.nations n",
        key="id, nation_id",
    ),
    Kind(
        name="FULL JOIN of groups",
        query="SELECT coalesce(a.k, e.k) AS k, a.n, e.m FROM (SELECT customer_id AS k, count(*) AS n FROM shop.orders "
        "WHERE customer_id IS NOT NULL GROUP BY customer_id) a FULL JOIN (SELECT nation_id AS k, count(*) AS m "
        "FROM crm.customers WHERE nation_id IS NOT NULL GROUP BY nation_id) e ON e.k = a.k",
        key="k",
    ),
    Kind(
        name="USING",
        query="SELECT order_id, nr, p.id, p.kind FROM shop.lines JOIN shop.payments p USING (order_id)",
        key="order_id, nr, id",
    ),
    Kind(
        name="NATURAL JOIN",
        query="SELECT order_id, x.nr, x.lines FROM shop.lines NATURAL JOIN "
        "(SELECT order_id, max(nr) AS nr, count(*) AS lines FROM shop.lines GROUP BY order_id) x",
        key="order_id",
    ),
    Kind(
        name="explode",
        query=f"SELECT w, count(*) AS n FROM {ORDERS} LATERAL VIEW explode(split(o.status, 'n')) t AS w GROUP BY 1",
        key="w",
        answered="SELECT unnest(string_split(status, 'n')) AS w, count(*) FROM shop.orders GROUP BY 1",
    ),
    Kind(
        name="GROUP BY number and alias",
        query="SELECT date_trunc('DAY', created_at) AS day, status AS s, count(*) AS n FROM shop.orders GROUP BY 1, s",
        key="day, s",
    ),
    Kind(
        name="PIVOT",
        query="SELECT * FROM (SELECT customer_id, status, amount FROM shop.orders) "
        "PIVOT (sum(amount) FOR status IN ('n1', 'n2'))",
        key="customer_id",
        answered="PIVOT (SELECT customer_id, status, amount FROM shop.orders) "
        "ON status IN ('n1', 'n2') USING sum(amount)",
    ),
    Kind(
        name="regular expressions",
        query=f"SELECT o.id, regexp_extract(o.status, '[0-9]+', 0) AS a, regexp_replace(o.status, 'n', 'm') AS b "
        f"FROM {ORDERS} WHERE o.status RLIKE '^n[12]$'",
        key="id",
    ),
    Kind(
        name="parts of texts",
        query=f"SELECT o.id, split_part(o.status, 'n', 2) AS a, repeat(o.status, 2) AS b, initcap(o.status) AS c, "
        f"translate(o.status, 'n1', 'm2') AS d FROM {ORDERS}",
        key="id",
    ),
    Kind(
        name="dates of a format",
        query="SELECT id, to_date(status, 'yyyyMMdd') AS a, date_format(created_at, 'yyyy-MM') AS b FROM shop.orders",
        key="id",
    ),
    Kind(
        name="digests",
        query=f"SELECT o.id, sha1(o.status) AS a, crc32(o.status) AS b, md5(o.status) AS c FROM {ORDERS}",
        key="id",
    ),
    Kind(
        name="key of two tables and a constant",
        query="SELECT o.id, l.qty FROM shop.orders o JOIN crm.customers c ON c.id = o.customer_id "
        "LEFT JOIN shop.lines l ON l.order_id = o.id AND l.nr = 1",
        key="id",
    ),
    Kind(
        name="unnamed query in FROM, names in another case",
        query="SELECT ID, Amount * 2 AS twice FROM (SELECT id, amount FROM shop.orders WHERE STATUS = 'n1')",
        key="ID",
    ),
    Kind(
        name="DISTINCT ON",
        query="SELECT DISTINCT ON (customer_id) customer_id, id, amount FROM shop.orders ORDER BY customer_id, id DESC",
        key="customer_id",
    ),
    Kind(
        name="RIGHT JOIN after another join",
        query="SELECT o.id, c.name AS customer, n.name AS nation FROM crm.nations n JOIN crm.customers c "
        "ON c.nation_id = n.id RIGHT JOIN shop.orders o ON o.customer_id = c.id",
        key="id",
    ),
    Kind(
        name="rows of the last hours",
        query=f"SELECT o.id, o.amount FROM {ORDERS} WHERE o.created_at >= now() - INTERVAL 36 HOURS",
        key="id",
    ),
    Kind(
        name="sums of the last days",
        query=f"SELECT o.status, sum(o.amount) AS revenue FROM {ORDERS} JOIN crm.customers c ON c.id = o.customer_id "
        "WHERE o.created_at >= current_date - INTERVAL 1 DAY GROUP BY o.status",
        key="status",
    ),
    Kind(
        name="silent since",
        query=f"SELECT o.customer_id, max(o.created_at) AS last FROM {ORDERS} WHERE o.created_at < current_timestamp "
        "GROUP BY o.customer_id HAVING max(o.created_at) < now() - INTERVAL 1 DAY",
        key="customer_id",
    ),
    Kind(
        name="this month and the last",
        query=f"SELECT o.id FROM {ORDERS} WHERE o.created_at BETWEEN date_trunc('MONTH', now()) - INTERVAL 1 MONTH "
        "AND now()",
        key="id",
    ),
    Kind(
        name="the time as a column",
        query=f"SELECT o.id, datediff(now(), o.created_at) AS age FROM {ORDERS}",
        key="id",
        refused="WHERE x >= now() - INTERVAL 5 MINUTE",
    ),
)
