"""The fleet's page in Chromium, over a gateway, an agent, MySQL and Kafka: a click requests a table, the page shows the
progress of its snapshot, and its rows are in Kafka.
"""

from __future__ import annotations

import os
import signal
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.integration.pages.looking import serious
from tests.support.browser import OPEN, watched
from tests.support.commands import tailorbird
from tests.support.fleet_on_servers import FleetOnServers, policy, rows
from tests.support.ports import free_port

pytestmark = [pytest.mark.integration, pytest.mark.kafka("mysql-shop"), pytest.mark.timeout(600)]
ROWS = 20_000
HOSTILE = "<img src=x onerror=alert(1)>"
FOLDER = os.environ.get("TAILORBIRD_TESTS_SCREENSHOTS", "")


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


def fits(page: Page) -> None:
    """Nothing scrolls sideways on a laptop and on a phone, light and dark, and axe finds nothing serious."""
    for width, scheme in ((390, "dark"), (1280, "light")):
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]  # two of the schemes
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert serious(page) == []


def refused(address: str, path: str, **headers: str) -> int:
    """Return the status of a request that the page's server refuses."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    request = urllib.request.Request(address + path, data=b"{}", headers={"Content-Type": "application/json", **named})
    with pytest.raises(urllib.error.HTTPError) as caught:
        OPEN.open(request, timeout=20)
    caught.value.close()
    return caught.value.code


def test_a_table_is_synced_by_a_click(fleet: FleetOnServers, browser: Browser) -> None:
    """An operator's tasks: map, sync, progress, configuration and rollback, dump, positions, stop, drain."""
    captured = fleet.captured
    fleet.token = fleet.ask("token", "issue", "anna", "--role", "operate", "--topology", str(captured.file)).split()[0]
    fleet.gateway("g1")
    fleet.until(lambda: fleet.api("agents") is not None, "g1 does not serve")
    fleet.agent("paris", policy(captured, "shop"))
    address = fleet.page()
    fleet.until(lambda: fleet.api("map"), "nothing is mapped")

    with watched(browser.new_page(viewport={"width": 1280, "height": 1000}, locale="en-US"), address) as page:
        operate(fleet, page, address)
        refuse(page, address)
        fleet.kill("g1")
        expect(page.get_by_test_id("status")).to_have_text("Unavailable", timeout=60_000)
    assert fleet.kill("page", signal.SIGTERM) == 0


def operate(fleet: FleetOnServers, page: Page, address: str) -> None:
    """Do an operator's tasks by clicks."""
    captured = fleet.captured
    page.goto(address)
    page.get_by_test_id("token").fill("tb_0123456789abcdef_" + "x" * 43)
    page.get_by_test_id("enter").click()
    expect(page.get_by_test_id("banner")).to_contain_text("no such token")
    page.get_by_test_id("token").fill(fleet.token)
    page.get_by_test_id("enter").click()
    expect(page.get_by_test_id("status")).to_have_text("Live")

    place = f"{captured.name}.t"
    line = page.locator(f"[data-testid=table][data-key='{place}']")
    expect(line.get_by_test_id("captured")).to_have_text("no")
    line.get_by_test_id("sync").click()
    expect(line.get_by_test_id("progress")).to_be_visible(timeout=60_000)
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
    fits(page)
    if FOLDER:
        page.screenshot(path=Path(FOLDER) / "fleet.jpg", type="jpeg", quality=80, full_page=True)

    source.get_by_test_id("configure").click()
    dialog = page.get_by_test_id("dialog")
    expect(dialog.get_by_test_id("version")).to_have_count(2)
    dialog.get_by_test_id("rollback").click()
    expect(source.get_by_test_id("stop-table")).to_have_count(1)
    expect(source).to_contain_text("version 3")

    source.get_by_test_id("dump").click()
    page.get_by_test_id("dialog").get_by_test_id("dump-where").fill("id < 3")
    page.get_by_test_id("dialog").get_by_test_id("dump-read").click()
    fleet.until(lambda: [one["op"] for one in captured.events("t")].count("r") == ROWS + 3, "it was not read again")

    source.get_by_test_id("positions").click()
    expect(page.get_by_test_id("place").first).to_be_visible()
    page.get_by_test_id("set-back").last.click()
    expect(page.get_by_test_id("banner")).not_to_be_visible()

    source.get_by_test_id("run").click()
    expect(source.get_by_test_id("source-health")).to_have_text("idle")
    source.get_by_test_id("run").click()
    expect(source.get_by_test_id("source-health")).to_have_text("moving", timeout=60_000)
    expect(page.get_by_test_id("gateway-health")).to_have_text("moving")
    page.get_by_test_id("drain").click()
    expect(page.get_by_test_id("agent-health")).to_have_text("drained", timeout=60_000)


def refuse(page: Page, address: str) -> None:
    """The session is of this tab and the token is not in the browser; nothing is answered without the session, to pages
    of other sites, or for paths that the page does not use."""
    stored = page.evaluate("JSON.stringify([{...sessionStorage}, {...localStorage}, document.cookie])")
    assert "tb_" not in stored
    session = page.evaluate("sessionStorage.getItem('tailorbird fleet session')")
    assert session in stored
    page.reload()
    expect(page.get_by_test_id("status")).to_have_text("Live")
    assert refused(address, "api/sync") == 401
    assert refused(address, "api/ask/drain", X_Tailorbird_Session="x" * 43) == 401
    assert refused(address, "api/ask/tokens", X_Tailorbird_Session=session) == 400
    assert refused(address, "api/ask/drain", X_Tailorbird_Session=session, Origin="http://evil.example") == 403
    assert refused(address, "api/ask/drain", X_Tailorbird_Session=session, Sec_Fetch_Site="cross-site") == 403
    assert refused(address, "api/enter", Host="evil.example") == 400


def test_a_page_that_can_not_be_served() -> None:
    """It reports one line and exits with 2."""
    done = tailorbird(
        "fleet", "page", "--port", str(free_port()), "--api", "127.0.0.1:1", "--ca", "none.pem", environ={}
    )
    assert done.returncode == 2
    assert "none.pem" in done.stderr
