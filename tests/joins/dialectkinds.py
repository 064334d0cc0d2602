"""Kinds of queries in the SQL of MySQL and PostgreSQL, and with lists and subqueries in FROM."""

from __future__ import annotations

from tests.joins.querykinds import ORDERS, Kind

KINDS = (
    Kind(
        name="elapsed time",
        query="SELECT o.id, timestampdiff(HOUR, o.created_at, TIMESTAMP'2026-01-03 12:00:00') AS hours, "
        "datediff(MONTH, TIMESTAMP'2025-11-02 00:00:00', o.created_at) AS months, "
        "unix_timestamp(o.created_at) AS unix, "
        "EXTRACT(EPOCH FROM o.created_at) AS epoch, months_between(o.created_at, DATE'2025-12-03') AS part "
        f"FROM {ORDERS}",
        key="id",
        answered="SELECT id, datesub('hour', created_at, TIMESTAMP'2026-01-03 12:00:00'), "
        "datesub('month', TIMESTAMP'2025-11-02 00:00:00', created_at), CAST(floor(epoch(created_at)) AS BIGINT), "
        "epoch(created_at), round(1 + (day(created_at) - 3) / 31, 8) FROM shop.orders",
    ),
    Kind(
        name="calls of MySQL and PostgreSQL",
        query="SELECT o.id, DATE_FORMAT(o.created_at, '%Y-%m-%d') AS day, to_char(o.created_at, 'YYYYMM') AS month, "
        "date_add(o.created_at, INTERVAL 2 DAY) AS due, timestampadd(HOUR, -3, o.created_at) AS before, "
        f"substring_index(o.status, '1', 1) AS begins, size(split(o.status, 'n')) AS parts FROM {ORDERS}",
        key="id",
        answered="SELECT id, strftime(created_at, '%Y-%m-%d'), strftime(created_at, '%Y%m'), "
        "created_at + INTERVAL 2 DAY, created_at - INTERVAL 3 HOUR, split_part(status, '1', 1), "
        "len(string_split(status, 'n')) FROM shop.orders",
    ),
    Kind(
        name="LATERAL with LIMIT",
        query=f"SELECT o.id, x.id AS payment, x.kind FROM {ORDERS} LEFT JOIN LATERAL (SELECT p.id, p.kind "
        "FROM shop.payments p WHERE p.order_id = o.id ORDER BY p.amount DESC, p.id LIMIT 1) x ON TRUE",
        key="id",
    ),
    Kind(
        name="first row as a value",
        query="SELECT o.id, (SELECT l.qty FROM shop.lines l WHERE l.order_id = o.id ORDER BY l.nr LIMIT 1) AS qty "
        f"FROM {ORDERS}",
        key="id",
    ),
    Kind(
        name="IN of a UNION",
        query=f"SELECT o.id FROM {ORDERS} WHERE o.customer_id IN "
        "(SELECT nation_id FROM crm.customers UNION SELECT id FROM crm.nations)",
        key="id",
    ),
    Kind(
        name="lists as rows",
        query="SELECT o.id, place, part FROM shop.orders o "
        "CROSS JOIN UNNEST(string_to_array(o.status, 'n')) WITH ORDINALITY AS t(part, place)",
        key="id, place",
        answered="SELECT id, unnest(range(1, len(string_split(status, 'n')) + 1)), unnest(string_split(status, 'n')) "
        "FROM shop.orders",
    ),
    Kind(
        name="a key of two tables, and a literal",
        query="SELECT p.id, l.price FROM shop.payments p JOIN shop.orders o ON o.id = p.order_id "
        "LEFT JOIN shop.lines l ON l.order_id = o.id AND l.nr = p.order_id",
        key="id",
    ),
    Kind(
        name="ranks over an unnamed query",
        query="SELECT customer_id, ntile(2) OVER (ORDER BY total DESC) AS half FROM "
        "(SELECT customer_id, sum(amount) AS total FROM shop.orders WHERE amount IS NOT NULL GROUP BY customer_id)",
        key="customer_id",
        answered="SELECT customer_id, ntile(2) OVER (ORDER BY total DESC, customer_id NULLS FIRST) FROM (SELECT "
        "customer_id, sum(amount) AS total FROM shop.orders WHERE amount IS NOT NULL GROUP BY customer_id)",
    ),
)
