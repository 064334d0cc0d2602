"""Fixtures for the dashboard: the real command, a real Solr core filled by the indexer's own mapping, and a browser."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.request import Request

import pytest
from playwright.sync_api import Browser, Page, expect

from cdc.model.types import Canonical, parse_type
from cdc.stored.cells import Barrier, RowCodec
from cdc.stored.layout import Layout, LayoutColumn
from cdc.topology.topology import Solr
from indexer.index.collapse import RowChange
from indexer.index.mapping import Mapper, barrier_document, tombstone
from indexer.solr.solr_collection import SolrCollection
from tailorbird.devtools.stack.proc_stack import Stack
from tailorbird.operate.probes.tcp_probe import port_is_free
from tailorbird.provision.file_configset import install_configset
from tailorbird.provision.solr_admin import SolrAdmin
from tests.support.browser import OPEN, answers, headless, watched

COLUMNS = {
    "id": "int64",
    "title": "string",
    "mood": "string",
    "urgent": "bool",
    "cost": "decimal(10,2)",
    "opened_on": "datetime",
    "remark": "string",
    "tags": "string",
}
SEARCH = ("title", "remark")
LAYOUT = Layout(
    topology="t",
    table="tickets",
    id=1,
    family="d",
    columns=tuple(LayoutColumn(name=n, type=parse_type(t), origin="", members=n == "tags") for n, t in COLUMNS.items()),
    row_key=("id",),
    salt_buckets=1,
)
TAGS = ["hot,new", "new", "", None]
LONG = f"{'x' * 90} {'ever longer ' * 30}"
MOODS = ['say "hi"', "grün & süß", "", None]
HOSTILE = ["<img src=x onerror=\"document.title='taken'\">", "<b>bold</b>", "{{ 7*7 }}", "</td></tr><script>1</script>"]
TOPOLOGY = """\
name: tickets
sources:
  s: {{type: mysql, hostname: h, username: u, password: p, database: d, tables: [tickets], server_id: 1}}
solr: {{url: "http://127.0.0.1:{port}/solr"}}
log: {{bootstrap_servers: "127.0.0.1:1"}}  # no broker runs: the barriers count missing rows
tables:
  tickets: {{query: "SELECT * FROM s.tickets", row_key: [id]}}
indexes:
  tickets: {{table: tickets, collection: {collection}, search: [title, remark]}}
dashboards:
  desk:
    index: tickets
    title: Help <desk>
    facets: [mood, urgent, tags]
    time: opened_on
    columns: [id, opened_on, title, mood, urgent, cost, remark, tags]
    refresh: 300ms
  moods: {{index: tickets, title: Moods & more, facets: [mood], columns: [mood, cost], refresh: 300ms}}
"""


def eventually(condition: Callable[[], bool], *, seconds: float = 20.0) -> bool:
    """Return whether the condition becomes true before the deadline."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


@dataclass
class SolrProxy:
    """A proxy between page and Solr that counts the queries and can cut the connection, since other tests need Solr
    itself.
    """

    solr: str
    queries: list[str] = field(default_factory=list)
    port: int = 0
    server: ThreadingHTTPServer | None = None

    def repair(self) -> None:
        line = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.forward(None)

            def do_POST(self) -> None:
                self.forward(self.rfile.read(int(self.headers["Content-Length"])))

            def forward(self, body: bytes | None) -> None:
                if "/select" in self.path:
                    line.queries.append(self.path)
                headers = {"Content-Type": self.headers["Content-Type"]} if body else {}
                address = line.solr.removesuffix("/solr") + self.path
                with OPEN.open(Request(address, data=body, headers=headers), timeout=10) as answer:
                    content = answer.read()
                    self.send_response(answer.status)
                    self.send_header("Content-Type", answer.headers["Content-Type"])
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, format: str, *args: object) -> None:
                """Suppress log lines, since tests print nothing of their own."""

        self.server = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        self.port = self.server.server_port
        Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def cut(self) -> None:
        if self.server:
            self.server.shutdown()
            self.server.server_close()
            self.server = None


@dataclass
class IndexedTable:
    """A served dashboard, the connection to its index, and the proxy between them."""

    url: str
    topology: Path
    process: subprocess.Popen[str]
    line: SolrProxy
    collection: SolrCollection
    fence: int = 100

    def put(self, number: int, **values: Canonical) -> None:
        """Index a row as the indexer does: decoded from cells, mapped with the layout, with a version fence."""
        row: dict[str, Canonical] = {**dict.fromkeys(COLUMNS), "id": number, **values}
        codec = RowCodec(LAYOUT)
        self.fence += 2
        now = time.time_ns() // 1_000_000
        cells = codec.cells(row, batch=1, ts_ms=now - 200)
        change = RowChange(row=codec.row_key(row), version=self.fence, cells=cells, deleted=False)
        assert self.collection.post([Mapper(LAYOUT, SEARCH).document(change, now_ms=now)]) == []

    def refuse(self, dead_letters: int) -> None:
        """Write the barrier of a join that has refused a number of rows."""
        self.fence += 2
        barrier = Barrier(bucket=0, buckets=1, batch=1, timestamp=1, positions={}, incomplete=dead_letters)
        assert self.collection.post([barrier_document(barrier, self.fence, now_ms=1)]) == []

    def delete(self, number: int) -> None:
        self.fence += 2
        key = RowCodec(LAYOUT).row_key({"id": number})
        change = RowChange(row=key, version=self.fence + 1, cells={}, deleted=True)
        assert self.collection.post([tombstone(change)]) == []


def fill(indexed: IndexedTable) -> None:
    """Index 120 tickets of 120 days with every mood, one of them deleted, and a barrier."""
    for i in range(121):
        indexed.put(
            i,
            title=f"Ticket {i} of Müller's" + (f" {LONG}" if i == 118 else ""),
            tags=TAGS[i % 4],
            mood=MOODS[i % 4],
            urgent=i % 3 == 0,
            cost=f"{i}.50",
            opened_on=f"2026-{i // 30 + 1:02}-{i % 28 + 1:02}T10:00:{i % 60:02}.25Z",
            remark=HOSTILE[i % 4] if i >= 110 else None,
        )
    indexed.delete(120)
    barrier = Barrier(bucket=0, buckets=1, batch=1, timestamp=1, positions={})
    assert indexed.collection.post([barrier_document(barrier, 3, now_ms=1)]) == []


@pytest.fixture(scope="module")
def indexed(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[IndexedTable]:
    """Run `tailorbird dashboard` over an index of 120 rows."""
    url = stack.addresses()["solr"]
    name = f"desk_{time.time_ns():x}"
    admin = SolrAdmin(url, install=install_configset)
    admin.create(name)
    collection = SolrCollection(Solr(url=url), name, commit_within=0.1)
    collection.ensure_fields(Mapper(LAYOUT, SEARCH).fields)
    line = SolrProxy(solr=url)
    line.repair()
    port = next(port for port in range(18_480, 18_580) if port_is_free("127.0.0.1", port))
    topology = tmp_path_factory.mktemp("desk") / "tickets.yml"
    topology.write_text(TOPOLOGY.format(port=line.port, collection=name))
    process = serve(topology, port)
    indexed = IndexedTable(f"http://127.0.0.1:{port}/", topology, process, line, collection)
    try:
        fill(indexed)
        assert eventually(lambda: answers(indexed.url)), "the page is not served"
        yield indexed
    finally:
        collection.close()
        if process.poll() is None:
            process.terminate()
        process.communicate(timeout=20)
        line.cut()
        admin.remove(name)


def serve(topology: Path, port: int, *options: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tailorbird", "dashboard", str(topology), "--port", str(port), *options]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=topology.parent)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Start this machine's headless Chromium."""
    with headless() as browser:
        yield browser


@pytest.fixture
def page(browser: Browser, indexed: IndexedTable) -> Iterator[Page]:
    """Open the page and wait until it is live; at the end no other host was contacted and no script failed."""
    with watched(browser.new_page(viewport={"width": 1400, "height": 900}), indexed.url) as page:
        page.goto(indexed.url)
        expect(page.get_by_test_id("status")).to_have_text("Live")
        yield page
