"""Runs groups and a join of many to many through this engine and through Flink SQL 2.3, from the same files, and prints
the ratios: revenue of a customer over a join, one group of all, a group with nine tenths of the rows, count(DISTINCT),
twenty partners a row, the average of the highest bids of a category (NEXMark's q4).

    make bench-aggregates
    make bench-aggregates ARGS="--scale 0.1 --shapes revenue,q4"

`--scale 1` is two million changes per shape. A full run, and no other, writes docs/results/aggregates.md. Flink has
RocksDB, mini-batches and aggregation in two phases, and runs twice: with what the ratios are judged by, its own guard
against changes that come twice (`table.exec.source.cdc-events-duplicate`), which ours always has; and without it, as it
is by default. Exit code 1 when a ratio that must be reached is not.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.bench_joins import per_batch
from benchmarks.ending import end
from benchmarks.joins.aggregates import aggregate_shapes
from benchmarks.joins.proc_takes import ROOT, flink_python, run
from benchmarks.joins.report import document, line_of, misses, trusting_line
from benchmarks.joins.workload import write_log
from joins.kernel.proc_kernel import build

WHAT = """# Groups and joins of many to many beside Flink SQL

Written by `make bench-aggregates`; the same Debezium JSON files, the same machine, one sitting, both into nowhere;
start of the query to its end. Flink has RocksDB, mini-batches and aggregation in two phases.

Ours counts a change that comes twice once (a chunk's row behind its stream, a log that is read again; ADR 30), and
keeps each row for that. So does Flink with `table.exec.source.cdc-events-duplicate`: by that one the ratios are judged.
By default Flink trusts its source and keeps no row where it only counts; that figure stands beside."""


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    parser = argparse.ArgumentParser(
        prog="make bench-aggregates", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    known = list(aggregate_shapes(1.0))
    parser.add_argument("--scale", type=float, default=1.0, help="1 = two million changes per shape")
    parser.add_argument("--shapes", default=",".join(known), help="which, in order")
    parser.add_argument("--no-write", action="store_true", help="leave docs/results/aggregates.md as it is")
    options = parser.parse_args(arguments)
    names = [name for name in options.shapes.split(",") if name]
    if unknown := sorted(set(names) - set(known)):
        parser.error(f"--shapes: no shape {', '.join(unknown)}; there are {', '.join(known)}")
    build()
    flink = flink_python()
    lines, missed = [], []
    with tempfile.TemporaryDirectory(dir=os.environ.get("TAILORBIRD_BENCH_FOLDER")) as folder:
        for name in names:
            shape, data = aggregate_shapes(options.scale)[name], Path(folder) / name
            changes = write_log(shape, data, per_batch=per_batch(shape))
            theirs = run([flink], "engine_flink", name, options.scale, data, changes, "guarded")
            trusting = run([flink], "engine_flink", name, options.scale, data, changes)
            # a log that several steps read counts once, as it does for Flink
            ours = run([sys.executable], "engine_tailorbird", name, options.scale, data, changes)
            ours = replace(ours, changes=changes)
            shutil.rmtree(data)
            lines.append(f"{line_of(name, ours, theirs)}\n{trusting_line(ours, trusting)}")
            missed += misses(name, ours, theirs)
            print(lines[-1], flush=True)
    if options.scale == 1 and set(names) == set(known) and not options.no_write:
        facts = {
            "command": f"make bench-aggregates ARGS='--scale {options.scale:g} --shapes {options.shapes}'",
            "date": datetime.now(UTC).strftime("%Y-%m-%d"),
            "machine": f"{os.cpu_count()} cores, Python {sys.version.split()[0]}",
        }
        (ROOT / "docs" / "results").mkdir(parents=True, exist_ok=True)
        written = document(lines + [f"MISSED {m}" for m in missed], facts, WHAT)
        (ROOT / "docs" / "results" / "aggregates.md").write_text(written)
    for miss in missed:
        print(f"missed: {miss}", file=sys.stderr)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(end(main))
