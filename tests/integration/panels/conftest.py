"""Fixtures for a dashboard with panels: the real command, a real Solr, DuckDB with the same rows, and a browser; all
tests here share one server.
"""

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
from tests.support.waiting import wait_for

TOPOLOGY = """\
name: sales
sources:
  s: {{type: mysql, hostname: h, username: u, password: p, database: d, tables: [sales], server_id: 1}}
solr: {{url: "{url}"}}
log: {{bootstrap_servers: "127.0.0.1:1"}}  # no broker runs: the barriers count missing rows
tables:
  sales: {{query: "SELECT * FROM s.sales", row_key: [id]}}
indexes:
  sales: {{table: sales, collection: {collection}, search: [product, note]}}
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
  plain: {{index: sales, title: Rows alone, columns: [id, product]}}
"""


@dataclass
class SalesPage:
    """A served page and the expected rows; `now_ms` is the time at which the rows end."""

    url: str
    index: SalesIndex
    rows: duckdb.DuckDBPyConnection
    topology: Path
    process: subprocess.Popen[str]

    def one(self, sql: str) -> Any:
        row = self.rows.execute(sql).fetchone()
        assert row is not None
        return row[0]


@pytest.fixture(scope="module")
def shop_page(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SalesPage]:
    """Run `tailorbird dashboard` over 600 sales of the last 60 days."""
    url = stack.addresses()["solr"]
    name = f"sales_{time.time_ns():x}"
    admin = SolrAdmin(url, install=install_configset)
    admin.create(name)
    index = SalesIndex(url, name)
    port = next(port for port in range(18_700, 18_780) if port_is_free("127.0.0.1", port))
    topology = tmp_path_factory.mktemp("sales") / "sales.yml"
    topology.write_text(TOPOLOGY.format(url=url, collection=name))
    command = [sys.executable, "-m", "tailorbird", "dashboard", str(topology), "--port", str(port)]
    rows = sales(600, seed=11, until_ms=time.time_ns() // 1_000_000)
    index.put(rows)
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    page = SalesPage(f"http://127.0.0.1:{port}/", index, in_duckdb(rows), topology, process)
    try:
        wait_for(lambda: process.poll() is not None or answers(page.url), "the page is not served", 60)
        yield page
    finally:
        if process.poll() is None:
            process.terminate()
        output, _ = process.communicate(timeout=20)
        index.close()
        admin.remove(name)
    assert "Traceback" not in output, output


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """Start this machine's headless Chromium."""
    with headless() as browser:
        yield browser


@pytest.fixture
def panels_page(chromium: Browser, shop_page: SalesPage) -> Iterator[Page]:
    """Open and render a page of 1,280 pixels; at the end no other host was contacted, no script failed, and the page's
    own policy refused nothing.
    """
    made = chromium.new_page(viewport={"width": 1280, "height": 900}, locale="en-US")
    with watched(made, shop_page.url) as page:
        page.goto(shop_page.url)
        drawn(page)
        yield page


def drawn(page: Page) -> None:
    """Wait until every panel shows the selection and the index's position; panels are pushed one by one."""
    expect(page.get_by_test_id("status")).to_have_text("Live")
    expect(page.locator("[data-testid=panel][aria-busy=true]")).to_have_count(0)
    expect(page.get_by_test_id("age").filter(has_not_text="current")).to_have_count(0)
