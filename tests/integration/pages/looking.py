"""Read a dashboard's page in the browser and compare it with DuckDB's answer over the same rows."""

from __future__ import annotations

import http.client
import math
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Locator, Page

from tests.integration.pages.conftest import drawn

if TYPE_CHECKING:
    from tests.integration.pages.conftest import ServedPages

REVENUE, ORDERS, COUNTRIES, AVERAGE, SERIES, TERMS, HISTOGRAM, HEATMAP, GROUPS, NEWEST, TEXT = range(11)
DAY = 86_400_000


def panel(page: Page, number: int) -> Locator:
    return page.locator(f"[data-testid=panel][data-panel='{number}']")


def figure(page: Page, number: int) -> float:
    return float(panel(page, number).get_by_test_id("value").get_attribute("data-y") or 0)


def near(found: Any, expected: Any) -> bool:
    return math.isclose(float(found or 0), float(expected or 0), rel_tol=1e-9, abs_tol=1e-6)


def span_of(page: Page, served: ServedPages) -> str:
    """Return the selected time range for DuckDB; by default 30 days up to the next ten minutes."""
    said = parse_qs(urlsplit(page.url).query)
    if "from" in said:
        return f"sold_at >= '{said['from'][0][:-1]}' AND sold_at < '{said['to'][0][:-1]}'"
    end = -(-(time.time_ns() // 1_000_000) // 600_000) * 600_000
    return f"epoch_ms(sold_at) >= {end - 30 * DAY} AND epoch_ms(sold_at) < {end}"


def check(page: Page, served: ServedPages, more: str = "true") -> None:
    """Compare every panel's figures with DuckDB's."""
    drawn(page)
    where = f"{span_of(page, served)} AND {more}"
    assert near(figure(page, REVENUE), served.one(f"SELECT sum(amount) FROM sales WHERE {where}"))
    assert figure(page, ORDERS) == served.one(f"SELECT count(*) FROM sales WHERE {where}")
    assert figure(page, COUNTRIES) == served.one(f"SELECT count(DISTINCT country) FROM sales WHERE {where}")
    average = served.one(f"SELECT avg(amount) FROM sales WHERE {where} AND paid")
    assert near(figure(page, AVERAGE), average)
    bars = panel(page, TERMS).get_by_test_id("bar-figure").evaluate_all("all => all.map(b => +b.dataset.y)")
    assert near(math.fsum(bars), served.one(f"SELECT sum(amount) FROM sales WHERE {where}"))
    cells = panel(page, SERIES).locator("td").evaluate_all("all => all.map(c => +c.dataset.y)")
    assert near(math.fsum(cells), served.one(f"SELECT sum(amount) FROM sales WHERE {where}"))
    heat = panel(page, HEATMAP).locator(".heat").evaluate_all("all => all.map(c => +c.dataset.y)")
    assert sum(heat) == served.one(f"SELECT count(*) FROM sales WHERE {where}")
    histogram = panel(page, HISTOGRAM).locator("td").evaluate_all("all => all.map(c => +c.dataset.y)")
    assert sum(histogram) == served.one(f"SELECT count(amount) FROM sales WHERE {where}")
    rows = panel(page, GROUPS).get_by_test_id("table-row").count()
    assert rows == served.one(f"SELECT count(*) FROM (SELECT DISTINCT country FROM sales WHERE {where})")


def serious(page: Page) -> list[str]:
    """Return Axe's serious and critical violations: the rule and the place."""
    reported = Axe().run(page).response["violations"]
    grave = [one for one in reported if one["impact"] in ("serious", "critical")]
    return [f"{one['id']}: {node['html'][:200]}" for one in grave for node in one["nodes"][:3]]


def ask(served: ServedPages, path: str, method: str = "GET", **headers: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", urlsplit(served.url).port or 0, timeout=20)
    connection.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
    answer = connection.getresponse()
    text = answer.read().decode(errors="replace")
    connection.close()
    return answer.status, text
