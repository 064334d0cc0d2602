"""Measure panels over a million documents: time in Solr, overhead of the page, first paint, many viewers, memory.

    make bench-dashboard
    make bench-dashboard ARGS="--rows 100000 --seconds 20"

Each panel is queried with selections that no Solr cache contains: another time range and another filter each time. The
overhead is the time from a selection sent over the page's websocket until its answer arrives, minus the time in Solr.
Viewers are websockets of the served page, while barriers move twice a second. Exit code 1: a required figure is not
reached.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from urllib.parse import urlencode

import requests
from websockets.sync.client import ClientConnection, connect

from benchmarks.dashboard_page import DRAWN, MEMORY, PAINT, PANEL, QUERIES, SERVER, Figure, Run, document, table
from benchmarks.decode.proc_peers import load, machine
from benchmarks.ending import end
from benchmarks.page import write_page
from cdc.stored.cells import Barrier
from cdc.topology.reader import read_topology
from cdc.topology.topology import Solr, Topology
from indexer.index.mapping import Document, Field, barrier_document
from indexer.solr.solr_collection import SolrCollection
from tailorbird.operate.probes.tcp_probe import port_is_free
from tailorbird.provision.file_configset import install_configset
from tailorbird.provision.solr_admin import SolrAdmin
from tailorbird.web.dashboard.board import Board
from tailorbird.web.dashboard.pages.http_hub import FACETS, Hub, Viewer, ask_panel
from tailorbird.web.dashboard.panels.state import Selection, chosen_of, stretch

MUST_SOLR_MS, MUST_OVERHEAD_MS, MUST_PAINT_MS, MUST_TIMES, MUST_GROWTH = 200.0, 100.0, 1000.0, 2.0, 1.15
DAY = 86_400_000
FIELDS = [
    Field(name="id", type="plong", stored=True),
    Field(name="country", type="exact", stored=True),
    Field(name="product", type="exact", stored=True),
    Field(name="amount", type="string", stored=True),
    Field(name="_q_amount", type="pdouble", stored=False),
    Field(name="created_at", type="string", stored=True),
    Field(name="_q_created_at", type="pdate", stored=False),
]
TOPOLOGY = """\
name: bench
sources:
  s: {{type: mysql, hostname: h, username: u, password: p, database: d, tables: [orders], server_id: 1}}
solr: {{url: "{url}"}}
log: {{bootstrap_servers: "127.0.0.1:1"}}
tables:
  orders: {{query: "SELECT * FROM s.orders", row_key: [id]}}
indexes:
  orders: {{table: orders, collection: {collection}}}
dashboards:
  sales:
    index: orders
    title: Sales
    time: created_at
    range: last 12 months
    facets: [country]
    columns: [id, created_at, country, product, amount]
    refresh: 500ms
    panels:
      - {{number: sum(amount)}}
      - {{number: unique(product)}}
      - {{number: "percentile(amount, 95)"}}
      - {{timeseries: sum(amount), by: country}}
      - {{terms: product, measure: sum(amount)}}
      - {{histogram: amount}}
      - {{heatmap: country}}
      - {{table: [country, product], measures: [sum(amount), count]}}
      - {{table: [id, created_at, product]}}
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    parser = argparse.ArgumentParser(
        prog="make bench-dashboard", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=1_000_000, help="number of documents (default 1000000)")
    parser.add_argument("--rounds", type=int, default=40, help="queries per panel (default 40)")
    parser.add_argument(
        "--seconds", type=float, default=600.0, help="duration of the memory test with fifty viewers (default 600)"
    )
    parser.add_argument("--solr", help="URL of Solr; default: the local stack")
    parser.add_argument("--output", type=Path, help="also write the figures as Markdown")
    options = parser.parse_args(arguments)
    busy = load()
    url = options.solr or f"http://127.0.0.1:{os.environ.get('TAILORBIRD_PORT_SOLR', '8983')}/solr"
    name, admin = f"bench_dashboard_{time.time_ns():x}", SolrAdmin(url, install=install_configset)
    admin.create(name)
    collection = SolrCollection(Solr(url=url), name, commit_within=1.0)
    try:
        collection.ensure_fields(FIELDS)
        fill(collection, options.rows, f"{url}/{name}")
        lines = measured(url, name, collection, options)
    finally:
        collection.close()
        admin.remove(name)
    print(table(lines))
    if options.output:
        run = Run(rows=options.rows, rounds=options.rounds, machine=machine(), load=busy)
        write_page(options.output, document(lines, run))
    return 0 if all(figure.holds for figure in lines) else 1


def measured(url: str, name: str, collection: SolrCollection, options: argparse.Namespace) -> list[Figure]:
    """Measure every figure."""
    said = TOPOLOGY.format(url=url, collection=name)
    topology = read_topology(said, file="bench.yml", environ={})
    lines = list(solr_times(topology, options.rounds))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "bench.yml"
        file.write_text(said, encoding="utf-8")
        port = next(port for port in range(18_900, 18_990) if port_is_free("127.0.0.1", port))
        command = [sys.executable, "-m", "tailorbird", "dashboard", str(file), "--port", str(port)]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            page = f"http://127.0.0.1:{port}/"
            wait_for(lambda: answers(page))
            lines.append(Figure(SERVER, overhead(page, options.rounds), MUST_OVERHEAD_MS))
            paint, drawn = painted(page)
            lines += [Figure(PAINT, paint, MUST_PAINT_MS), Figure(DRAWN, drawn, None)]
            growth = memory(page, process.pid, collection, options.seconds)
            lines.append(Figure(MEMORY.format(all=options.seconds, start=options.seconds / 10), growth, MUST_GROWTH))
        finally:
            process.terminate()
            process.wait(20)
    return [*lines, Figure(QUERIES, asyncio.run(viewers(topology, collection)), MUST_TIMES)]


def documents(count: int) -> Iterator[list[Document]]:
    random, now = Random(1), time.time_ns() // 1_000_000
    countries = [f"C{i}" for i in range(30)]
    for start in range(0, count, 1000):
        batch: list[Document] = []
        for i in range(start, min(start + 1000, count)):
            amount = random.randrange(100, 100_000) / 100
            at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime((now - random.randrange(365 * DAY)) // 1000))
            batch.append(
                {
                    "_id": f"{i:x}", "_kind": "row", "_fence": 2, "_ts": now, "_indexed_at": now, "id": i,
                    "country": random.choice(countries), "product": f"Product {int(random.paretovariate(0.8)) % 5000}",
                    "amount": f"{amount:.2f}", "_q_amount": amount, "created_at": at, "_q_created_at": at,
                }
            )  # fmt: skip
        yield batch


def fill(collection: SolrCollection, count: int, url: str) -> None:
    """Post `count` documents and a barrier, and wait until all are visible."""
    with ThreadPoolExecutor(2) as threads:
        for refused in threads.map(collection.post, documents(count)):
            assert refused == []
    barrier(collection, 10)

    def visible() -> bool:
        answer = requests.get(f"{url}/select", params={"q": "_kind:row", "rows": "0"}, timeout=60).json()
        return bool(answer["response"]["numFound"] == count)

    wait_for(visible)


def barrier(collection: SolrCollection, fence: int) -> None:
    made = Barrier(bucket=0, buckets=1, batch=1, timestamp=1, positions={})
    assert collection.post([barrier_document(made, fence, now_ms=1)]) == []


def solr_times(topology: Topology, rounds: int) -> Iterator[Figure]:
    """Measure the time in Solr for each panel with selections that are not cached."""
    board = Board(topology, topology.dashboards["sales"])
    fit = board.fit()
    assert fit is not None
    random = Random(2)
    for panel in fit.panels:
        times = []
        for i in range(rounds + 3):
            chosen = fresh(random)
            now = time.time_ns() // 1_000_000 - random.randrange(30 * DAY)
            began = time.perf_counter()
            ask_panel(fit, panel, chosen, stretch(chosen, board.dashboard.range, now), board.solr.select)
            if i >= 3:
                times.append((time.perf_counter() - began) * 1000)
        yield Figure(PANEL.format(type=panel.panel.type, title=panel.panel.title), p95(times), MUST_SOLR_MS)


def fresh(random: Random) -> Selection:
    """Return a random selection; half of them filter by countries."""
    some = random.sample(range(30), random.randrange(1, 10)) if random.random() < 0.5 else []
    return chosen_of(urlencode([("f.country", f"C{i}") for i in some]))


def p95(times: Sequence[float]) -> float:
    return sorted(times)[int(len(times) * 0.95)]


def live(page: str) -> ClientConnection:
    own = {"Origin": page.rstrip("/")}
    return connect(page.replace("http", "ws") + "live/sales", additional_headers=own, proxy=None, legacy=True)


def overhead(page: str, rounds: int) -> float:
    """Return the p95 of the time from a selection to a panel's answer, minus the time in Solr; one panel at a time."""
    random, times = Random(3), []
    socket = live(page)
    for number in range(1, rounds + 1):
        some = random.sample(range(30), 3)
        query = urlencode([("f.country", f"C{i}") for i in some])
        began = time.perf_counter()
        socket.send(json.dumps({"state": number, "query": query, "panels": [3]}))
        while "panel" not in (message := json.loads(socket.recv(30))) or message["state"] != number:
            pass
        times.append((time.perf_counter() - began - message["seconds"]) * 1000)
    socket.close()
    return p95(times)


def painted(page: str) -> tuple[float, float]:
    """Return the first contentful paint and the time when every panel is drawn (ms), uncached; medians of 5."""
    from playwright.sync_api import expect, sync_playwright

    paints, drawn = [], []
    with sync_playwright() as driver:
        arguments = ["--no-sandbox", "--disable-gpu"]
        browser = driver.chromium.launch(executable_path="/usr/bin/chromium", args=arguments)
        for _ in range(5):
            context = browser.new_context()
            tab = context.new_page()
            tab.goto(page)
            tab.wait_for_selector("[data-testid=panel][aria-busy=false]")
            expect(tab.locator("[data-testid=panel][aria-busy=true]")).to_have_count(0)
            drawn.append(float(tab.evaluate("performance.now()")))
            script = "performance.getEntriesByName('first-contentful-paint')[0].startTime"
            paints.append(float(tab.evaluate(script)))
            context.close()
        browser.close()
    return sorted(paints)[2], sorted(drawn)[2]


def memory(page: str, pid: int, collection: SolrCollection, seconds: float) -> float:
    """Return the ratio of memory at the end to memory after a tenth of the time, with fifty active viewers."""
    over = threading.Event()

    def look(number: int) -> None:
        random, socket, state = Random(number), live(page), 0
        while not over.is_set():
            state += 1
            query = urlencode([("f.country", f"C{random.randrange(30)}")])
            socket.send(json.dumps({"state": state, "query": query, "panels": [FACETS, *range(9)]}))
            until = time.monotonic() + 10
            while time.monotonic() < until and not over.is_set():
                try:
                    socket.recv(0.5)
                except TimeoutError:
                    continue
        socket.close()

    threads = [threading.Thread(target=look, args=(number,), daemon=True) for number in range(50)]
    for thread in threads:
        thread.start()
    began, first, fence = time.monotonic(), 0, 20
    while (passed := time.monotonic() - began) < seconds:
        barrier(collection, fence := fence + 2)
        time.sleep(0.5)
        if passed > seconds / 10 and not first:
            first = resident(pid)
    last = resident(pid)
    over.set()
    for thread in threads:
        thread.join(15)
    return last / first


def resident(pid: int) -> int:
    """Return the resident memory of a process in KiB."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    return next(int(text.split()[1]) for text in lines if text.startswith("VmRSS:"))


async def viewers(topology: Topology, collection: SolrCollection) -> float:
    """Return the ratio of queries of fifty viewers to those of one, while the barrier moves five times."""
    counts = []
    for many in (1, 50):
        hub = Hub(Board(topology, topology.dashboards["sales"]))
        for _ in range(many):
            hub.viewers.add(Viewer(report=discard, panels=(FACETS, *range(9))))
        for _ in range(5):
            before = hub.status()["token"]
            barrier(collection, time.time_ns() // 1_000_000)
            while hub.status()["token"] == before:
                await hub.round()
        counts.append(hub.queries)
    return counts[1] / counts[0]


async def discard(message: object) -> None:
    """Ignore a message."""


def answers(url: str) -> bool:
    try:
        return requests.get(url, timeout=5).ok
    except requests.ConnectionError:
        return False


def wait_for(condition: Callable[[], bool], seconds: float = 300.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


if __name__ == "__main__":
    sys.exit(end(main))
