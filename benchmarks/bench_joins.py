"""Run four shapes of joins through Tailorbird and Flink SQL 2.3, from the same files, and print the ratios.

    make bench-joins
    make bench-joins ARGS="--scale 0.1 --shapes n1,star"
    make bench-joins ARGS="--scale 0.25 --beside v1.0"      # compare with another commit instead of Flink

`--scale 1` is two million changes per shape. Only a full run writes docs/results/joins.md. Exit code 1: a required
ratio is not reached.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from benchmarks.ending import end
from benchmarks.joins.compare_commits import compare_commits, is_commit
from benchmarks.joins.pages import JOINS, write
from benchmarks.joins.proc_takes import flink_python, run
from benchmarks.joins.report import (
    MOST_GROWTH,
    Reading,
    growth,
    growth_line,
    half_misses,
    line_of,
    misses,
    steady_line,
)
from benchmarks.joins.workload import Shape, shapes, write_log
from joins.kernel.proc_kernel import build

FIRST, MOST = 20_000, 200_000  # changes of a batch: the first, and the default of `max_changes_per_batch`
SHAPES = ("n1", "star", "snowflake", "hot")
ROOT = Path(__file__).parent.parent


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    parser = argparse.ArgumentParser(
        prog="make bench-joins", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--scale", type=float, default=1.0, help="1 = two million changes per shape")
    parser.add_argument("--shapes", default=",".join(SHAPES), help="shapes to run, in order")
    parser.add_argument("--no-steady", action="store_true", help="skip the star whose facts all exist at the start")
    parser.add_argument("--no-growth", action="store_true", help="skip the tables that are ten times larger")
    parser.add_argument("--no-write", action="store_true", help="do not write docs/results/joins.md")
    parser.add_argument("--beside", metavar="COMMIT", help="compare with Tailorbird at that commit, not with Flink")
    options = parser.parse_args(arguments)
    names = [name for name in options.shapes.split(",") if name]
    if unknown := sorted(set(names) - set(shapes(options.scale))):
        parser.error(f"--shapes: no shape {', '.join(unknown)}; there are {', '.join(shapes(options.scale))}")
    if options.beside and not is_commit(options.beside):
        parser.error(f"--beside: no commit {options.beside}; name one of `git log --oneline`")
    build()
    if options.beside:
        compared = [*names, *([] if options.no_steady else ["steady"])]
        return compare_commits(options.beside, compared, options.scale, partial(_log_of, scale=options.scale))
    flink = flink_python()
    lines, ratios, missed = [], [], []
    with tempfile.TemporaryDirectory(dir=os.environ.get("TAILORBIRD_BENCH_FOLDER")) as folder:
        for name in names:
            shape = _shape(name, options.scale)
            data = Path(folder) / name
            changes = write_log(shape, data, per_batch=paced(shape))
            theirs = run([flink], "engine_flink", name, options.scale, data, changes)
            ours = run([sys.executable], "engine_tailorbird", name, options.scale, data, changes)
            shutil.rmtree(data)
            lines.append(line_of(name, ours, theirs))
            ratios.append(ours.rate / theirs.rate)
            missed += misses(name, ours, theirs)
            print(lines[-1], flush=True)
        if not options.no_steady:
            steady = _warm("steady", options.scale, Path(folder))
            lines.append(steady_line(steady))
            missed += half_misses("steady", steady)
            print(lines[-1], flush=True)
        if not options.no_growth:
            small, large = _growth(options.scale, Path(folder))
            factor = growth(small, large)
            lines.append(growth_line(small, large))
            print(lines[-1], flush=True)
            if factor > MOST_GROWTH:
                missed.append(
                    f"{factor:.2f}× the cost per change in tables ten times larger; at most {MOST_GROWTH}× is allowed"
                )
    # published results come from one complete run; a partial run never replaces them
    whole = options.scale == 1 and set(names) == set(SHAPES) and not options.no_steady and not options.no_growth
    if whole and not options.no_write:
        command = f"make bench-joins ARGS='--scale {options.scale:g} --shapes {options.shapes}'"
        write(ROOT, JOINS, lines, ratios, missed, command)
    elif not options.no_write:
        print("docs/results/joins.md is unchanged: this was not a full run", file=sys.stderr)
    for miss in missed:
        print(f"missed: {miss}", file=sys.stderr)
    return 1 if missed else 0


def _log_of(name: str, data: Path, *, scale: float) -> int:
    shape = _shape(name, scale)
    return write_log(shape, data, per_batch=paced(shape))


def paced(shape: Shape) -> Callable[[int], int]:
    """Return the changes of batch n, as a join that is far behind reads them from Kafka (`Pace.java`).

    Such batches take less than 4 s. So they grow fourfold, the first one less because its code is not compiled yet,
    up to the default of `max_changes_per_batch`. In a short run they are smaller, as its halves are compared."""
    most = max(1000, min(MOST, shape.changes // 10))
    return lambda batch: min(most, (FIRST, 2 * FIRST, 8 * FIRST, MOST)[min(batch, 3)])


def _growth(scale: float, folder: Path) -> tuple[list[Reading], list[Reading]]:
    """Run uniform updates of two tables with 200,000 rows each and with two million, with equally many changes.

    The speed of a shared machine varies, so the small tables run before and after the large ones.
    """
    readings: dict[int, list[Reading]] = {1: [], 10: []}
    for factor in (1, 10, 1):
        readings[factor].append(_warm(f"growth{factor}", scale, folder))
    return readings[1], readings[10]


def _warm(name: str, scale: float, folder: Path) -> Reading:
    """Run Tailorbird; return the reading without the batches that only fill the tables."""
    shape = _shape(name, scale)
    data, per_batch = folder / name, max(1000, int(50_000 * scale))
    changes = write_log(shape, data, per_batch=lambda batch: per_batch)
    filled = sum(1 for _ in range(0, shape.filling(), per_batch))
    reading = run([sys.executable], "engine_tailorbird", name, scale, data, changes)
    shutil.rmtree(data)
    return replace(reading, batches=reading.batches[filled:])


def _shape(name: str, scale: float) -> Shape:
    return next(shape for found, shape in shapes(scale).items() if found == name)


if __name__ == "__main__":
    sys.exit(end(main))
