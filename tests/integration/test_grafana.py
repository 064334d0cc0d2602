"""Grafana's queries over the demo's table in PostgreSQL, while the databases of that table change.

Grafana itself does not run: it is not available where the tests run. The test does what Grafana's documentation
describes: it logs in as the provisioned data source does, expands the macros of each panel, and runs the query.
"""

from __future__ import annotations

import datetime as dt
import os
import re
import time
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pymysql
import pytest

from tailorbird.cli.cli_demo_steps import background_traffic
from tailorbird.devtools.stack.proc_stack import Stack
from tailorbird.devtools.stack.settings import LOAD_LOGIN
from tests.support.changing_topology import ChangingTopology, loaded_shop
from tests.support.grafana import ROOT, expanded, provisioned, queries
from tests.support.join_faults import equal
from tests.support.pg_servers import PgServer
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1200)]
PASSWORD = "pw-of-grafana"
HOURS = 6


@pytest.fixture
def postgres(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PgServer]:
    server = PgServer(tmp_path / "postgres")
    server.start()
    monkeypatch.setenv("TAILORBIRD_PORT_POSTGRES", str(server.port))
    monkeypatch.setenv("TAILORBIRD_HOME", str(tmp_path))
    yield server
    server.kill()


@pytest.mark.matrix
def test_the_dashboard_shows_what_the_sources_contain(stack: Stack, postgres: PgServer, tmp_path: Path) -> None:
    """As docs/sql.md describes it: the demo's topology, the role that may only read, the provisioned data source and
    dashboard. Each panel shows what the SELECT over the sources gives, also after more changes.
    """
    evolving = ChangingTopology(tmp_path)
    text = (ROOT / "topologies" / "postgres.yml").read_text()
    evolving.file.write_text(text.replace("name: postgres\n", f"name: {evolving.name}\n", 1))
    with loaded_shop(evolving.topology) as (servers, generator), evolving.run():
        wait_for(lambda: _stored(postgres) > 900, "the first rows do not come", 400)
        with postgres.session() as connected:
            for statement in _documented():
                connected.execute(statement.replace("…", PASSWORD).encode())
        assert equal(evolving)
        begin, end = _middle(_joined())
        seen = [_compared(postgres, begin, end)]
        with background_traffic(generator, servers, rate=20.0):
            time.sleep(5)
        assert equal(evolving)
        end = dt.datetime.now(dt.UTC) + dt.timedelta(hours=1)
        seen.append(_compared(postgres, begin, end))
        assert seen[0]["Revenue by category"] != seen[1]["Revenue by category"]
        _refused(postgres)


@pytest.mark.kafka
@pytest.mark.parametrize("column", ["instant", "utc", "berlin AT TIME ZONE 'Europe/Berlin'"])
@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_times_with_and_without_zone(postgres_server: PgServer, column: str, zone: str) -> None:
    """Both types of a time column, and local time with its zone as docs/sql.md shows it, are found and grouped by the
    same instants, whatever zone the session has.
    """
    table = (
        "WITH t (instant, utc, berlin) AS (VALUES"
        " (timestamptz '2026-07-01 11:59:59+02', timestamp '2026-07-01 09:59:59', timestamp '2026-07-01 11:59:59'),"
        " (timestamptz '2026-07-01 12:00:01+02', timestamp '2026-07-01 10:00:01', timestamp '2026-07-01 12:00:01'))"
    )
    sql = f"{table} SELECT $__timeGroupAlias({column}, $__interval), count(*) FROM t"
    sql += f" WHERE $__timeFilter({column}) GROUP BY 1"
    ten, hour = dt.datetime(2026, 7, 1, 10, tzinfo=dt.UTC), dt.timedelta(hours=1)
    with postgres_server.session() as connected:
        connected.execute(f"SET TimeZone = '{zone}'".encode())
        for begin, at in ((ten - hour, ten - hour), (ten, ten)):
            found = connected.execute(expanded(sql, begin, begin + hour, "1h").encode()).fetchall()
            assert found == [(at.timestamp(), 1)]


def _documented() -> list[str]:
    """Return the statements of docs/sql.md that create the login."""
    found = re.findall(
        r"^    ((?:CREATE ROLE|ALTER ROLE|GRANT) .*reporting.*;)$", (ROOT / "docs/sql.md").read_text(), re.M
    )
    assert len(found) == 5
    return found


def _login(server: PgServer) -> psycopg.Connection[Any]:
    """Log in as the provisioned data source does, to the test's server."""
    source = provisioned("datasources")
    return psycopg.connect(
        host="127.0.0.1", port=server.port, user=source["user"], password=PASSWORD,
        dbname=source["jsonData"]["database"], sslmode=source["jsonData"]["sslmode"], autocommit=True,
    )  # fmt: skip


def _stored(server: PgServer) -> int:
    try:
        with server.session() as connected:
            row = connected.execute("SELECT count(*) FROM shop.orders_sql").fetchone()
            return int(row[0]) if row else 0
    except psycopg.Error:
        return 0


def _joined() -> list[dict[str, Any]]:
    """Return the rows of the topology's SELECT, from the sources, joined here."""
    orders = _rows("SHOP", "SELECT * FROM shop.orders")
    products = {one["id"]: one for one in _rows("SHOP", "SELECT * FROM shop.products")}
    customers = {one["id"]: one for one in _rows("CRM", "SELECT * FROM crm.customers")}
    for order in orders:
        product, customer = products.get(order["product_id"], {}), customers.get(order["customer_id"], {})
        order |= {"product": product.get("title"), "category": product.get("category")}
        order |= {"customer": customer.get("name"), "country": customer.get("country")}
    return orders


def _rows(server: str, sql: str) -> list[dict[str, Any]]:
    with pymysql.connect(
        host="127.0.0.1", port=int(os.environ[f"TAILORBIRD_PORT_MYSQL_{server}"]), user=LOAD_LOGIN.user,
        password=LOAD_LOGIN.password, ssl_disabled=True, charset="utf8mb4", cursorclass=pymysql.cursors.DictCursor,
    ) as connected, connected.cursor() as cursor:  # fmt: skip
        cursor.execute(sql)
        return list(cursor.fetchall())


def _middle(rows: list[dict[str, Any]]) -> tuple[dt.datetime, dt.datetime]:
    """Return a range of time in which a half of the rows is."""
    times = sorted(row["created_at"].replace(tzinfo=dt.UTC, microsecond=0) for row in rows)
    return times[len(times) // 4], times[3 * len(times) // 4]


def _compared(server: PgServer, begin: dt.datetime, end: dt.datetime) -> dict[str, list[tuple[Any, ...]]]:
    """Run the query of each panel, check it against the rows of the sources, and return the results by title."""
    shown: dict[str, list[tuple[Any, ...]]] = {}
    with _login(server) as connected:
        for title, sql in queries():
            shown[title] = connected.execute(expanded(sql, begin, end, f"{HOURS}h").encode()).fetchall()
    first, last = begin.replace(tzinfo=None), end.replace(tzinfo=None, microsecond=0)
    rows = [row for row in _joined() if first <= row["created_at"] <= last]
    assert len(rows) > 400
    by_time, by_product, number = Counter[Any](), Counter[Any](), Counter[Any]()
    for row in rows:
        seconds = int(row["created_at"].replace(tzinfo=dt.UTC).timestamp()) // (HOURS * 3600) * HOURS * 3600
        by_time[Decimal(seconds), row["category"] or "unknown"] += row["amount"]
        by_product[row["product"] or "unknown"] += row["amount"]
        number[row["product"] or "unknown"] += 1
    columns = ("created_at", "id", "customer", "country", "product", "quantity", "amount", "status")
    newest = sorted(rows, key=lambda row: (row["created_at"], row["id"]), reverse=True)[:50]
    products = sorted(by_product, key=lambda one: (-by_product[one], one))[:20]
    wanted = {
        "Revenue": [(sum(row["amount"] for row in rows),)],
        "Orders": [(len(rows),)],
        "Rows that could not be stored": [(0,)],
        "Revenue by category": [(*key, by_time[key]) for key in sorted(by_time)],
        "Newest orders": [tuple(row[one] for one in columns) for row in newest],
        "Products": [(one, number[one], by_product[one]) for one in products],
    }
    ((age,),) = shown.pop("Seconds since the newest barrier")
    assert 0 <= age < 600
    for title, found in wanted.items():
        assert shown[title] == found, title
    assert shown.keys() == wanted.keys()
    return shown


def _refused(server: PgServer) -> None:
    """Check that the login may only read."""
    with _login(server) as connected:
        for statement in (
            "DELETE FROM shop.orders_sql",
            "CREATE TABLE shop.mine (id int)",
            "SELECT * FROM shop_rows._tables",
        ):
            with pytest.raises((psycopg.errors.InsufficientPrivilege, psycopg.errors.ReadOnlySqlTransaction)):
                connected.execute(statement.encode())
