"""Post the same documents to Solr with one, two and four threads: throughput, and Solr's CPU time per document.

    python -m benchmarks.index.posting

The local stack must run (`tailorbird stack up`). Each run posts to a new collection, with the batches and commits of a
backlog, and ends when queries see all documents. It shows why an indexer makes one post at a time (ADR 121).
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import requests

from benchmarks.index.world import World, environment, row
from indexer.index.collapse import RowChange
from indexer.index.mapping import Document, Mapper
from indexer.index.processor import CHUNK_DOCUMENTS
from indexer.solr.solr_collection import SolrCollection
from tailorbird.provision.file_configset import install_configset
from tailorbird.provision.solr_admin import SolrAdmin

THREADS = (1, 2, 4)


def _cpu_seconds(url: str) -> float:
    """Return the CPU seconds that Solr's process has used, as its metrics or /proc report them."""
    process = requests.get(f"{url}/admin/info/system?wt=json", timeout=30).json()["jvm"]["jmx"]["commandLineArgs"]
    wanted = next(one for one in process if one.startswith("-Djetty.port="))
    for command in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if wanted in command.read_text(errors="replace").split("\0"):
                used = (command.parent / "stat").read_text().rpartition(")")[2].split()
                return (int(used[11]) + int(used[12])) / os.sysconf("SC_CLK_TCK")
    raise SystemExit(f"no process with {wanted} on this machine: start the local stack here")


def _documents(world: World, mapper: Mapper, rows: int) -> list[Document]:
    now = time.time_ns() // 1_000_000
    found: list[Document] = []
    for values in map(row, range(rows)):
        cells = world.codec.cells(values, batch=1, ts_ms=now)
        change = RowChange(world.codec.row_key(values), 2 * now, cells, False)
        found.append(mapper.document(change, now_ms=now))
    return found


def _post(world: World, mapper: Mapper, documents: list[Document], threads: int) -> tuple[float, float]:
    """Return documents per second until all are visible, and Solr's CPU time in µs per document."""
    url, name = world.topology.solr.url, f"{world.name}_posting"
    admin = SolrAdmin(url, install=install_configset)
    admin.create(name)
    # a client per thread, because a client makes one post at a time
    clients = [SolrCollection(world.topology.solr, name, commit_within=1.0) for _ in range(threads)]
    try:
        clients[0].ensure_fields(mapper.fields)
        chunks = [documents[at : at + CHUNK_DOCUMENTS] for at in range(0, len(documents), CHUNK_DOCUMENTS)]
        used, began = _cpu_seconds(url), time.monotonic()
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(lambda one: clients[one[0] % threads].post(one[1], backlog=True), enumerate(chunks)))
        solr = world.solr(name)
        while solr.search("*:*", rows=0).hits < len(documents):
            time.sleep(0.1)
        rate = len(documents) / (time.monotonic() - began)
        return rate, (_cpu_seconds(url) - used) / len(documents) * 1e6
    finally:
        for client in clients:
            client.close()
        admin.remove(name)


def main() -> None:
    """Print a row per number of threads: medians of all rounds."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.index.posting", description=__doc__)
    parser.add_argument("--rows", type=int, default=20_000, help="documents of a run (default 20000)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds, each with every number of threads (default 3)")
    options = parser.parse_args()
    os.environ.update(environment())
    found: dict[int, list[tuple[float, float]]] = {threads: [] for threads in THREADS}
    with World() as world:
        mapper = Mapper(world.codec.layout, world.index.search)
        documents = _documents(world, mapper, options.rows)
        _post(world, mapper, documents, 1)  # warms Solr up
        for _ in range(options.rounds):
            for threads in THREADS:
                found[threads].append(_post(world, mapper, documents, threads))
    print("| posts at a time | documents/s | Solr's CPU, µs per document |\n|--:|--:|--:|")
    for threads, runs in found.items():
        rate, cpu = (statistics.median(one) for one in zip(*runs, strict=True))
        print(f"| {threads} | {rate:,.0f} | {cpu:.0f} |")


if __name__ == "__main__":
    main()
