"""Compare the cost of `verify --stage index` for all rows with that of `--changed-since last` after few changes.

    make bench-verify-index
    make bench-verify-index ARGS="--rows 200000 --json"

The benchmark writes rows to HBase as the join does, and indexes them. It compares all rows, then what changed: nothing,
then some random rows. At the end it changes one document and deletes one row past the pipeline, and both kinds of
comparison must find the two. It needs the local stack. Exit code 1: a figure misses its target.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import requests

from benchmarks.decode.proc_peers import load, machine
from benchmarks.ending import end
from benchmarks.harness import report, warn_if_busy
from benchmarks.index.world import World, environment, row
from benchmarks.page import write_page
from benchmarks.verify_index_page import MUST, document, misses
from cdc.model.errors import TailorbirdError
from cdc.stored.cells import document_id
from tailorbird.verify.findings import Verdict
from tailorbird.verify.index.run_index_stage import verify_indexes
from tailorbird.verify.request import LAST, SilentTerminal, parse_request

_BATCH = 5000
_SEED = 37


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    parser = argparse.ArgumentParser(
        prog="make bench-verify-index", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of the table (default 1000000)")
    parser.add_argument("--changes", type=int, default=100, help="changed rows (default 100)")
    parser.add_argument("--json", action="store_true", help="print the figures as one JSON object")
    parser.add_argument("--output", type=Path, help="also write Markdown, e.g. docs/results/verify-index.md")
    options = parser.parse_args(arguments)
    os.environ.update(environment())
    warn_if_busy()
    busy = load()
    try:
        with tempfile.TemporaryDirectory(prefix="tailorbird-") as folder, World(buckets=4) as world:
            os.environ["TAILORBIRD_HOME"] = folder
            found = _run(world, options.rows, options.changes, Path(folder))
    except (TailorbirdError, TimeoutError) as error:
        print(f"bench-verify-index: {error}", file=sys.stderr)
        return 1
    if options.output:
        write_page(options.output, document(found, machine(), busy))
    if options.json:
        print(json.dumps({**found, "machine": machine()}))
    else:
        for name, value in found.items():
            how, limit = MUST.get(name, ("", 0.0))
            print(f"{name:16} {value:,.2f}{f'  (must be {how} {limit:g})' if how else ''}")
    return 1 if any(misses(name, value) for name, value in found.items()) else 0


def _run(world: World, rows: int, changes: int, folder: Path) -> dict[str, Any]:
    random = Random(_SEED)
    world.start()
    with world.sink() as sink:
        for start in range(0, rows, _BATCH):
            world.write(sink, [row(key) for key in range(start, min(start + _BATCH, rows))])
            if start % (20 * _BATCH) == 0:
                _shown(world)
                report(f"{start:,} rows are written and indexed")
        world.write(sink, [])
        _shown(world)
        world.flush()
        report("comparing all rows")
        full = _equal(_verdict(world))
        sample = _equal(_verdict(world, sample="1/64"))
        world.write(sink, [])  # a barrier: the rows are then older than what Solr is asked for
        _shown(world)
        _equal(_verdict(world, since=LAST))  # counts the rows of regions that HBase compacted after the flush
        idle = _equal(_verdict(world, since=LAST))
        changed = sorted(random.sample(range(rows), changes))
        world.write(sink, [row(key, 1) for key in changed])
        world.write(sink, [])
        _shown(world)
        after = _equal(_verdict(world, since=LAST))
        report("planting two faults")
        document_key, row_key = random.sample(range(rows), 2)
        _plant(world, document_key, row_key)
        world.write(sink, [])
        _shown(world)
        for found in (_verdict(world, since=LAST), _verdict(world)):
            if {one.key["id"] for one in found.findings} != {document_key, row_key}:
                raise TailorbirdError(f"expected differences of {document_key} and {row_key}: {found}")
    [stored] = (folder / "verify").iterdir()
    return {
        "rows": rows,
        "changes": changes,
        "full_s": full.seconds,
        "sample_s": sample.seconds,
        "idle_s": idle.seconds,
        "idle_read": idle.read,
        "changed_s": after.seconds,
        "changed_read": after.read,
        "read_per_change": after.read / changes,
        "time_ratio": full.seconds / after.seconds,
        "stored_kb": stored.stat().st_size / 1000,
    }


def _verdict(world: World, *, since: str = "", sample: str = "") -> Verdict:
    request = parse_request(world.topology, ["index"], None, since=since, sample=sample)
    [one] = verify_indexes(request, SilentTerminal())
    report(f"{one.verdict.outcome} after {one.verdict.seconds:.2f} s: {one.verdict.cut}")
    return one.verdict


def _equal(verdict: Verdict) -> Verdict:
    if verdict.outcome != "equal":
        raise TailorbirdError(f"not equal: {verdict}")
    return verdict


def _shown(world: World) -> None:
    """Wait until queries see the last batch."""
    solr, deadline = world.solr(), time.monotonic() + 600
    while world.visible_timestamp(solr) < world.timestamp:
        if time.monotonic() > deadline:
            raise TimeoutError("the index does not show the last batch")
        time.sleep(0.1)


def _plant(world: World, document_key: int, row_key: int) -> None:
    """Change a document under its own version, and delete a row without replication."""
    at = document_id(world.codec.row_key({"id": document_key}))
    found = dict(next(iter(world.solr().search(f"_id:{at}", rows=1))))
    changed = {name: value for name, value in found.items() if not name.startswith("_v")}
    url = f"{world.topology.solr.url}/{world.index.collection}/update?commit=true&update.chain=conditional"
    requests.post(url, json=[{**changed, "status": "planted"}], timeout=60).raise_for_status()
    with world.hbase() as connection:
        table = connection.table(f"{world.name}:wide")
        with table.batch(timestamp=time.time_ns() // 1_000_000, wal=False) as batch:
            batch.delete(world.codec.row_key({"id": row_key}))


if __name__ == "__main__":
    sys.exit(end(main))
