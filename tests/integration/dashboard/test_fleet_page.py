"""The fleet's page in Chromium, over a gateway, an agent, MySQL and Kafka: a click requests a table, the page shows the
progress of its snapshot, and its rows are in Kafka.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.support.fleet_on_servers import FleetOnServers, policy, rows
from tests.support.ports import free_port

pytestmark = [pytest.mark.integration, pytest.mark.kafka("mysql-shop"), pytest.mark.timeout(600)]
ROWS = 20_000
HOSTILE = "<img src=x onerror=alert(1)>"
SHOTS = os.environ.get("TAILORBIRD_TESTS_SCREENSHOTS", "")  # a folder for screenshots


@pytest.fixture
def fleet(capture: Callable[..., Any], tmp_path: Path) -> Iterator[FleetOnServers]:
    captured = capture("t", "u")
    captured.sql(
        "CREATE TABLE t (id BIGINT PRIMARY KEY, v BIGINT, mail VARCHAR(50))",
        f"CREATE TABLE u (id BIGINT PRIMARY KEY, `{HOSTILE}` BIGINT)",
        *(
            "INSERT INTO t VALUES " + ",".join(f"({n}, {n}, 'm{n}@x')" for n in range(low, low + 5000))
            for low in range(0, ROWS, 5000)
        ),
        "INSERT INTO u VALUES (1, 1), (2, 2)",
        "ANALYZE TABLE t, u",
    )
    made = FleetOnServers(captured, tmp_path)
    yield made
    made.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    page = browser.new_page(viewport={"width": 1400, "height": 1000})
    failed: list[str] = []
    page.on("pageerror", lambda error: failed.append(str(error)))
    page.on("dialog", lambda dialog: failed.append(dialog.message))
    yield page
    page.close()
    assert not failed


def shot(page: Page, name: str) -> None:
    if SHOTS:
        page.screenshot(path=f"{SHOTS}/{name}.png", full_page=True)


def test_a_table_is_synced_by_a_click(fleet: FleetOnServers, page: Page) -> None:
    """An operator's tasks: map, sync, progress, configuration and rollback, dump, positions, stop, drain."""
    captured = fleet.captured
    fleet.token = fleet.ask("token", "issue", "anna", "--role", "operate", "--topology", str(captured.file)).split()[0]
    fleet.gateway("g1")
    fleet.until(lambda: fleet.api("agents") is not None, "g1 does not serve")
    fleet.agent("paris", policy(captured, "shop"))
    address = fleet.page()
    fleet.until(lambda: fleet.api("map"), "nothing is mapped")

    page.goto(address)
    page.get_by_test_id("token").fill("tb_0123456789abcdef_" + "x" * 43)
    page.get_by_test_id("enter").click()
    expect(page.get_by_test_id("banner")).to_contain_text("no such token")
    page.get_by_test_id("token").fill(fleet.token)
    page.get_by_test_id("enter").click()
    expect(page.get_by_test_id("status")).to_have_text("Live")
    shot(page, "1-map")

    place = f"{captured.name}.t"
    line = page.locator(f"[data-testid=table][data-key='{place}']")
    expect(line.get_by_test_id("captured")).to_have_text("no")
    line.get_by_test_id("sync").click()
    expect(line.get_by_test_id("progress")).to_be_visible(timeout=60_000)
    shot(page, "2-progress")
    expect(line.get_by_test_id("captured")).to_contain_text("snapshot done", timeout=90_000)
    assert len(rows(captured, "t")) == ROWS
    expect(page.locator("[data-testid=agent][data-key=paris]").get_by_test_id("agent-health")).to_have_text("moving")

    page.get_by_test_id("search").fill("onerror")
    expect(page.get_by_test_id("table")).to_have_count(1)
    page.get_by_test_id("table").locator("summary").click()
    expect(page.get_by_test_id("table")).to_contain_text(HOSTILE)
    page.get_by_test_id("table").get_by_test_id("sync").click()
    expect(page.get_by_test_id("table").get_by_test_id("captured")).to_contain_text("by shop", timeout=60_000)
    page.get_by_test_id("search").fill("")

    source = page.locator("[data-testid=source][data-key=shop]")
    expect(source.get_by_test_id("source-health")).to_have_text("moving", timeout=60_000)
    expect(source.get_by_test_id("position")).to_contain_text("binlog", timeout=60_000)
    shot(page, "3-moving")

    source.get_by_test_id("configure").click()
    dialog = page.get_by_test_id("dialog")
    expect(dialog.get_by_test_id("version")).to_have_count(2)
    shot(page, "4-configure")
    dialog.get_by_test_id("rollback").click()
    expect(source.get_by_test_id("stop-table")).to_have_count(1)
    expect(source).to_contain_text("version 3")

    source.get_by_test_id("dump").click()
    page.get_by_test_id("dialog").get_by_test_id("dump-where").fill("id < 3")
    page.get_by_test_id("dialog").get_by_test_id("dump-read").click()
    fleet.until(lambda: [one["op"] for one in captured.events("t")].count("r") == ROWS + 3, "it was not read again")

    source.get_by_test_id("positions").click()
    expect(page.get_by_test_id("place").first).to_be_visible()
    shot(page, "5-positions")
    page.get_by_test_id("set-back").last.click()
    expect(page.get_by_test_id("banner")).not_to_be_visible()

    source.get_by_test_id("run").click()
    expect(source.get_by_test_id("source-health")).to_have_text("idle")
    source.get_by_test_id("run").click()
    expect(source.get_by_test_id("source-health")).to_have_text("moving", timeout=60_000)
    expect(page.get_by_test_id("gateway-health")).to_have_text("moving")
    page.get_by_test_id("drain").click()
    expect(page.get_by_test_id("agent-health")).to_have_text("drained", timeout=60_000)
    shot(page, "6-drained")

    fleet.kill("g1")
    expect(page.get_by_test_id("status")).to_have_text("Unavailable", timeout=60_000)
    assert fleet.kill("page", signal.SIGTERM) == 0


def test_a_page_that_can_not_be_served(fleet: FleetOnServers) -> None:
    """It reports one line and exits with 2."""
    said = fleet.ask("page", "--port", str(free_port()), ca="none.pem", code=2)
    assert "none.pem" in said
