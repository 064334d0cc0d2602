"""Run groups and a many-to-many join through Tailorbird and Flink SQL 2.3, from the same files, and print the ratios.

The shapes are: revenue per customer over a join, one group of all rows, a group with nine tenths of the rows,
count(DISTINCT), twenty partners per row, the average of the highest bids per category (NEXMark's q4), running sums, a
correlated average, and the last minute of 20,000 changes per second. Flink has no query for the last: its rows stay, so
only the rate is required.

    make bench-aggregates
    make bench-aggregates ARGS="--scale 0.1 --shapes revenue,q4"
    make bench-aggregates ARGS="--scale 0.25 --beside v1.0"      # compare with another commit instead of Flink

`--scale 1` is two million changes per shape. Only a full run writes docs/results/aggregates.md. Flink uses RocksDB,
mini-batches and two-phase aggregation, and runs twice: with its protection against repeated changes
(`table.exec.source.cdc-events-duplicate`), which Tailorbird always has, and without it, as by default. The ratios are
judged by the first. Exit code 1: a required ratio is not reached.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.bench_joins import paced
from benchmarks.ending import end
from benchmarks.joins.aggregates import aggregate_shapes
from benchmarks.joins.compare_commits import compare_commits, is_commit
from benchmarks.joins.pages import AGGREGATES, write
from benchmarks.joins.proc_takes import ROOT, flink_python, run
from benchmarks.joins.report import line_of, live_misses, misses, trusting_line
from benchmarks.joins.workload import Shape, write_log
from joins.kernel.proc_kernel import build


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    parser = argparse.ArgumentParser(
        prog="make bench-aggregates", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    known = list(aggregate_shapes(1.0))
    parser.add_argument("--scale", type=float, default=1.0, help="1 = two million changes per shape")
    parser.add_argument("--shapes", default=",".join(known), help="shapes to run, in order")
    parser.add_argument("--no-write", action="store_true", help="do not write docs/results/aggregates.md")
    parser.add_argument("--beside", metavar="COMMIT", help="compare with Tailorbird at that commit, not with Flink")
    options = parser.parse_args(arguments)
    names = [name for name in options.shapes.split(",") if name]
    if unknown := sorted(set(names) - set(known)):
        parser.error(f"--shapes: no shape {', '.join(unknown)}; there are {', '.join(known)}")
    if options.beside and not is_commit(options.beside):
        parser.error(f"--beside: no commit {options.beside}; name one of `git log --oneline`")
    build()
    if options.beside:
        found = aggregate_shapes(options.scale)
        lasting = [name for name in names if not found[name].timed]  # the time of other rows would run out
        return compare_commits(options.beside, lasting, options.scale, lambda name, data: _written(found[name], data))
    flink = flink_python()
    lines, ratios, missed = [], [], []
    with tempfile.TemporaryDirectory(dir=os.environ.get("TAILORBIRD_BENCH_FOLDER")) as folder:
        for name in names:
            shape, data = aggregate_shapes(options.scale)[name], Path(folder) / name
            changes = _written(shape, data)
            theirs = run([flink], "engine_flink", name, options.scale, data, changes, "guarded")
            trusting = run([flink], "engine_flink", name, options.scale, _renewed(shape, data), changes)
            # a log that several steps read counts once, as it does for Flink
            ours = run([sys.executable], "engine_tailorbird", name, options.scale, _renewed(shape, data), changes)
            ours = replace(ours, changes=changes)
            shutil.rmtree(data)
            lines.append(f"{line_of(name, ours, theirs)}\n{trusting_line(ours, trusting)}")
            if shape.flink:
                lines[-1] += "\n           Flink cannot express it: its rows are compared with the clock once, and stay"
                missed += live_misses(name, ours)
            else:
                ratios.append(ours.rate / theirs.rate)
                missed += misses(name, ours, theirs)
            print(lines[-1], flush=True)
    if options.scale == 1 and set(names) == set(known) and not options.no_write:
        command = f"make bench-aggregates ARGS='--scale {options.scale:g} --shapes {options.shapes}'"
        write(ROOT, AGGREGATES, lines, ratios, missed, command)
    for miss in missed:
        print(f"missed: {miss}", file=sys.stderr)
    return 1 if missed else 0


def _written(shape: Shape, data: Path) -> int:
    """Write a shape's log, and return the number of changes. The times of its rows begin half a minute ago."""
    return write_log(shape, data, per_batch=paced(shape), start_ms=time.time_ns() // 1_000_000 - 30_000)


def _renewed(shape: Shape, data: Path) -> Path:
    """Write the log of a shape again if its rows must have times near the present."""
    if shape.timed:
        shutil.rmtree(data)
        _written(shape, data)
    return data


if __name__ == "__main__":
    sys.exit(end(main))
