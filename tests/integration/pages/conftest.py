"""Fixtures for the pages: the real command over a real Solr, and a browser. All tests here share one server, which
serves two tables: sales, whose rows are in DuckDB, too, and tickets."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pytest
from playwright.sync_api import Browser, Page, expect

from tailorbird.devtools.stack.proc_stack import Stack
from tailorbird.operate.probes.tcp_probe import port_is_free
from tailorbird.provision.file_configset import install_configset
from tailorbird.provision.solr_admin import SolrAdmin
from tests.support.browser import answers, headless, watched
from tests.support.sales import SalesIndex, in_duckdb, sales
from tests.support.solr_proxy import SolrProxy
from tests.support.tickets import TicketIndex
from tests.support.waiting import wait_for

TOPOLOGY = """\
name: sales
sources:
  s: {{type: mysql, hostname: h, username: u, password: p, database: d, tables: [sales, tickets], server_id: 1}}
solr: {{url: "{url}"}}
log: {{bootstrap_servers: "127.0.0.1:1"}}  # no broker runs: the barriers count missing rows
tables:
  sales: {{query: "SELECT * FROM s.sales", row_key: [id]}}
  tickets: {{query: "SELECT * FROM s.tickets", row_key: [id]}}
indexes:
  sales: {{table: sales, collection: sales_{run}, search: [product, note]}}
  tickets: {{table: tickets, collection: tickets_{run}, search: [title, remark]}}
dashboards:
  sales:
    index: sales
    title: Sales <now>
    time: sold_at
    range: last 30 days
    facets: [country, paid]
    columns: [id, sold_at, country, product, amount, note]
    refresh: 200ms
    panels:
      - {{number: sum(amount), title: Revenue, format: "0,0.00 €"}}
      - {{number: count, title: Orders}}
      - {{number: unique(country), title: Countries}}
      - {{number: avg(amount), title: Paid on average, where: paid = true, format: "0,0.00 €"}}
      - {{timeseries: sum(amount), by: country, title: Revenue over time, interval: day, format: "0,0 €"}}
      - {{terms: product, measure: sum(amount), title: Top products, top: 8, format: "0,0 €"}}
      - {{histogram: amount, title: Order values}}
      - {{heatmap: country, title: Orders by country and day, top: 6}}
      - {{table: [country], measures: [sum(amount), count], title: By country}}
      - {{table: [id, sold_at, product, note], title: Newest, top: 6, width: 8}}
      - {{text: "<b>Plain</b> words.", width: 4}}
  desk:
    index: tickets
    title: Help <desk>
    facets: [mood, urgent, tags]
    time: opened_on
    columns: [id, opened_on, title, mood, urgent, cost, remark, tags]
    refresh: 200ms
  moods: {{index: tickets, title: Moods & more, facets: [mood], columns: [mood, cost], refresh: 200ms}}
"""


@dataclass
class ServedPages:
    """The served pages: their address, their topology, and the proxy between them and Solr."""

    url: str
    topology: Path
    line: SolrProxy
    index: SalesIndex
    tickets: TicketIndex
    rows: duckdb.DuckDBPyConnection

    def one(self, sql: str) -> Any:
        row = self.rows.execute(sql).fetchone()
        assert row is not None
        return row[0]


@pytest.fixture(scope="session")
def served(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedPages]:
    """Run `tailorbird dashboard` over 600 sales of the last 60 days and 120 tickets."""
    url, run = stack.addresses()["solr"], f"{time.time_ns():x}"
    admin = SolrAdmin(url, install=install_configset)
    for name in ("sales", "tickets"):
        admin.create(f"{name}_{run}")
    index, tickets = SalesIndex(url, f"sales_{run}"), TicketIndex(url, f"tickets_{run}")
    line = SolrProxy(solr=url)
    line.repair()
    port = next(port for port in range(18_700, 18_780) if port_is_free("127.0.0.1", port))
    topology = tmp_path_factory.mktemp("sales") / "sales.yml"
    topology.write_text(TOPOLOGY.format(url=line.url, run=run))
    command = [sys.executable, "-m", "tailorbird", "dashboard", str(topology), "--port", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    rows = sales(600, seed=11, until_ms=time.time_ns() // 1_000_000)
    pages = ServedPages(f"http://127.0.0.1:{port}/", topology, line, index, tickets, in_duckdb(rows))
    try:
        index.put(rows)
        tickets.fill()
        wait_for(lambda: process.poll() is not None or answers(pages.url), "the pages are not served", 60)
        yield pages
    finally:
        if process.poll() is None:
            process.terminate()
        output, _ = process.communicate(timeout=20)
        line.cut()
        index.close()
        tickets.close()
        for name in ("sales", "tickets"):
            admin.remove(f"{name}_{run}")
    assert "Traceback" not in output, output


# not for the session: the driver runs an event loop in this thread, and later tests start their own
@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Start this machine's headless Chromium."""
    with headless() as browser:
        yield browser


@pytest.fixture
def panels_page(browser: Browser, served: ServedPages) -> Iterator[Page]:
    """Open and render the page of panels at 1,280 pixels; at the end no other host was contacted, no script failed, and
    the page's own policy refused nothing.
    """
    made = browser.new_page(viewport={"width": 1280, "height": 900}, locale="en-US")
    with watched(made, served.url) as page:
        page.goto(served.url)
        drawn(page)
        yield page


@pytest.fixture
def rows_page(browser: Browser, served: ServedPages) -> Iterator[Page]:
    """Open the page of tickets, which has no panels, and wait until it is live; checked at the end as above."""
    made = browser.new_page(viewport={"width": 1400, "height": 900}, locale="en-US")
    with watched(made, served.url) as page:
        page.goto(f"{served.url}dashboard/desk")
        expect(page.get_by_test_id("status")).to_have_text("Live")
        expect(page.get_by_test_id("row")).to_have_count(50)
        yield page


def drawn(page: Page) -> None:
    """Wait until every panel shows the selection and the index's position; panels are pushed one by one."""
    expect(page.get_by_test_id("status")).to_have_text("Live")
    expect(page.locator("[data-testid=panel][aria-busy=true]")).to_have_count(0)
    expect(page.get_by_test_id("age").filter(has_not_text="current")).to_have_count(0)
