"""Index a backlog from HBase's write-ahead log, and post the same documents with pysolr, in one session.

    make bench-index
    make bench-index ARGS="--rounds 1 --rows 20000 --json"

Tailorbird runs the whole path: HBase reads and ships its log; the indexer decodes, maps, posts and acknowledges. pysolr
posts prepared documents from memory to a collection with the same configuration, fields, commits and batch size. Both
are timed until the last document is visible to queries; so is a reindex of the same table while the live feed runs.
Then the benchmark measures the time from a put's return to a query that shows the row, at 500 rows/s. Exit code 1: a
required figure is not reached.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import requests

from benchmarks.decode.proc_peers import machine
from benchmarks.ending import end
from benchmarks.index.pages import index_page, missed_figures
from benchmarks.index.world import World, environment, row
from benchmarks.page import write_page
from cdc.model.errors import TailorbirdError
from indexer.index.mapping import fields_of
from indexer.index.processor import CHUNK_DOCUMENTS
from indexer.solr.solr_collection import SolrCollection
from tailorbird.operate.probes.proc_steal import CpuSteal
from tailorbird.provision.file_configset import install_configset
from tailorbird.provision.solr_admin import SolrAdmin

# the commit interval that the indexer uses for a backlog, so that both become visible with the same delay
BACKLOG_COMMIT_MS = 1000


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    parser = argparse.ArgumentParser(
        prog="make bench-index", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3, help="rounds, Tailorbird and pysolr in turn (default 3)")
    parser.add_argument("--rows", type=int, default=60_000, help="rows of the backlog (default 60000)")
    parser.add_argument(
        "--seconds", type=float, default=20.0, help="duration of the latency run, 0 = none (default 20)"
    )
    parser.add_argument("--rate", type=int, default=500, help="rows/s of the latency run (default 500)")
    parser.add_argument("--json", action="store_true", help="print the result as JSON, progress on standard error")
    parser.add_argument("--output", type=Path, help="also write Markdown, e.g. docs/results/index.md")
    options = parser.parse_args(arguments)
    os.environ.update(environment())
    try:
        result = _run(options)
    except (TailorbirdError, TimeoutError) as error:
        print(f"bench-index: {error}", file=sys.stderr)
        return 1
    print(json.dumps(result, indent=2) if options.json else _report(result))
    if options.output:
        write_page(options.output, index_page(result))
    return 0 if not result["missed"] else 1


def _run(options: argparse.Namespace) -> dict[str, Any]:
    ours: list[float] = []
    used: list[float] = []
    peers: list[float] = []
    rebuilt: list[float] = []
    latency: dict[str, float] = {}
    cpu_steal, withheld = CpuSteal(), dict.fromkeys(("ours", "pysolr", "reindex", "latency"), 0.0)
    for number in range(options.rounds):
        with World() as world:
            _progress(f"round {number + 1}: writing {options.rows} rows to HBase")
            _fill(world, options.rows)
            cpu_steal.lap()
            processor = _processor_of_children()
            ours.append(_index_backlog(world, options.rows))
            used.append((_processor_of_children() - processor) / options.rows)
            withheld["ours"] = max(withheld["ours"], cpu_steal.lap())
            _progress(f"Tailorbird {ours[-1]:,.0f} docs/s; pysolr …")
            peers.append(_post_directly(world, options.rows))
            withheld["pysolr"] = max(withheld["pysolr"], cpu_steal.lap())
            _progress(f"pysolr {peers[-1]:,.0f} docs/s; reindex …")
            world.start()
            cpu_steal.lap()
            rebuilt.append(_reindex(world, options.rows))
            withheld["reindex"] = max(withheld["reindex"], cpu_steal.lap())
            _progress(f"reindex {rebuilt[-1]:,.0f} docs/s")
            if number == options.rounds - 1 and options.seconds:
                _progress(f"latency at {options.rate} rows/s")
                latency = _latency(world, rate=options.rate, seconds=options.seconds)
                withheld["latency"] = cpu_steal.lap()
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "machine": machine(),
        "rows": options.rows,
        "rate": options.rate,
        "ours_docs_per_second": ours,
        "indexer_cpu_seconds_per_doc": used,
        "pysolr_docs_per_second": peers,
        "reindex_docs_per_second": rebuilt,
        "ratio": statistics.median(ours) / statistics.median(peers),
        "latency_seconds": latency,
        "withheld": withheld,
        "missed": missed_figures(ours, peers, rebuilt, latency),
    }


def _fill(world: World, rows: int, *, per_batch: int = 2000) -> None:
    with world.sink() as sink:
        for start in range(0, rows, per_batch):
            world.write(sink, [row(n) for n in range(start, min(start + per_batch, rows))], barrier=False)
        world.write_barriers(sink)


def _index_backlog(world: World, rows: int) -> float:
    """Return documents per second from the first one mapped to the last one visible."""
    process = world.start()
    solr = world.solr()
    # polled rarely, because queries take resources that Solr needs for documents; the delay counts against Tailorbird
    ended = world.wait_visible(solr, seconds=300, pause=0.1)
    found = solr.search("*:*", fq="_kind:row", rows=1, sort="_indexed_at asc", fl="_indexed_at")
    if found.hits != rows:
        raise TimeoutError(f"{found.hits} documents for {rows} rows")
    world.kill(process)
    began: int = next(iter(found))["_indexed_at"]
    return rows / (ended - began / 1000)


def _processor_of_children() -> float:
    """Return the CPU seconds of child processes that have ended: here, the indexer."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _post_directly(world: World, rows: int) -> float:
    """Return documents per second of pysolr, from the first post to the last document visible."""
    collection = f"{world.name}_direct"
    admin = SolrAdmin(world.topology.solr.url, install=install_configset)
    admin.create(collection)
    try:
        made = SolrCollection(world.topology.solr, collection, commit_within=1.0)
        made.ensure_fields(fields_of(world.codec.layout, world.index.search))
        made.close()
        # the same documents that the indexer posted, with all fields
        documents = [
            {name: value for name, value in document.items() if name != "_version_"}
            for document in _with_query_fields(world)
        ]
        solr = world.solr(collection)
        began = time.time()
        for start in range(0, rows, CHUNK_DOCUMENTS):
            solr.add(documents[start : start + CHUNK_DOCUMENTS], commitWithin=BACKLOG_COMMIT_MS)
        while solr.search("*:*", rows=0).hits < rows:
            time.sleep(0.1)
        return rows / (time.time() - began)
    finally:
        admin.remove(collection)


def _reindex(world: World, rows: int) -> float:
    """Return documents per second of `index reindex`, from the first one mapped to the last one visible.

    When it returns, the swap is done and the old collection is dropped.
    """
    live, cores = world.index.collection, f"{world.topology.solr.url}/admin/cores?wt=json"
    command = [sys.executable, "-m", "tailorbird", "index", "reindex", str(world.file), "--index", "wide"]
    process = subprocess.Popen([*command, "--json"], stdout=subprocess.DEVNULL)
    try:
        return _reindexed(world, rows, process, command, live, cores)
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait(60)


def _reindexed(
    world: World, rows: int, process: subprocess.Popen[bytes], command: list[str], live: str, cores: str
) -> float:
    made: list[str] = []
    while not made:
        time.sleep(0.05)
        made = [name for name in requests.get(cores, timeout=30).json()["status"] if name.startswith(f"{live}_r")]
        _living(process)
    solr, began = world.solr(made[0]), time.time()
    while True:
        found = solr.search("*:*", fq="_kind:row", rows=1, sort="_indexed_at asc", fl="_indexed_at")
        if found.hits == rows:  # after the swap this may be the old collection
            break
        began = min([began, *(float(each["_indexed_at"]) / 1000 for each in found)])
        time.sleep(0.1)
        _living(process)
    ended = time.time()
    if process.wait(120) or subprocess.run([*command, "--finish"], stdout=subprocess.DEVNULL, check=False).returncode:
        raise TimeoutError("`index reindex` failed")
    return rows / (ended - began)


def _living(process: subprocess.Popen[bytes]) -> None:
    if process.poll():
        raise TimeoutError("`index reindex` failed")


def _with_query_fields(world: World) -> Iterator[dict[str, Any]]:
    """Yield the documents of the collection as posted; they are mapped again, because query fields are not stored."""
    from indexer.index.collapse import RowChange
    from indexer.index.mapping import Mapper

    mapper = Mapper(world.codec.layout, world.index.search)
    for number in range(world_rows(world)):
        values = row(number)
        cells = world.codec.cells(values, batch=1, ts_ms=world.timestamp)
        change = RowChange(world.codec.row_key(values), 2 * world.timestamp, cells, False)
        yield mapper.document(change, now_ms=world.timestamp)


def world_rows(world: World) -> int:
    """Return the number of rows in the collection."""
    return int(world.solr().search("*:*", fq="_kind:row", rows=0).hits)


def _latency(world: World, *, rate: int, seconds: float) -> dict[str, float]:
    """Return quantiles, in seconds, of the time from a put's return to the first query that shows the row.

    An indexer must be running.
    """
    put: dict[int, float] = {}
    seen: dict[int, float] = {}
    first = 10_000_000
    stopped = threading.Event()

    def poll() -> None:
        solr = world.solr()
        while not stopped.is_set() or len(seen) < len(put):
            newest = [n for n in list(put) if n not in seen]
            if newest:
                found = solr.search("*:*", fq=f"id:[{min(newest)} TO *]", fl="id", rows=20_000)
                now = time.time()
                for document in found:
                    seen.setdefault(document["id"], now)
            time.sleep(0.01)

    poller = threading.Thread(target=poll, daemon=True)
    poller.start()
    size, period = max(1, rate // 50), max(1, rate // 50) / rate
    with world.sink() as sink:
        world.write(sink, [row(first - 1)])  # warms up the connection, the layout and the code
        world.wait_visible(world.solr(), seconds=60)
        began = time.time()
        for number in range(round(seconds / period)):
            pause = began + number * period - time.time()
            if pause > 0:
                time.sleep(pause)
            keys = range(first + number * size, first + (number + 1) * size)
            world.write(sink, [row(key) for key in keys], barrier=False)
            now = time.time()
            put.update(dict.fromkeys(keys, now))
    reached = len(put) / (time.time() - began)
    stopped.set()
    poller.join(60)
    if len(seen) < len(put):
        raise TimeoutError(f"{len(put) - len(seen)} rows are not visible after 60 s")
    delays = sorted(max(0.0, seen[n] - put[n]) for n in put)
    at = {name: delays[int(len(delays) * share)] for name, share in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99))}
    return {"rows_per_second": reached, **at, "max": delays[-1]}


def _report(result: dict[str, Any]) -> str:
    """Return the page and the figures that it leaves out."""
    used = ", ".join(f"{seconds * 1e6:.1f}" for seconds in result["indexer_cpu_seconds_per_doc"])
    withheld = ", ".join(f"{name} {share:.1%}" for name, share in result["withheld"].items())
    return (
        f"{index_page(result)}\nCPU time of the indexer, including its start: {used} µs per document."
        f"\nLargest CPU steal in a round: {withheld}."
    )


def _progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(end(main))
