"""Index for half an hour at half of the maximum rate; memory, write-ahead logs, tombstones and lag must not grow.

    make soak-index
    make soak-index ARGS="--minutes 5 --rate 500"

The rate is half of the measured maximum of the whole path, including the loader. Rows are inserted, updated and deleted
in a fixed range of keys. Writes docs/results/index-soak.svg and index-soak.md. Exit code 1: the collection differs from
what was written, or one of the four quantities grew.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.decode.proc_peers import machine
from benchmarks.ending import end
from benchmarks.index.chart import charts, growth
from benchmarks.index.load import Load, differences
from benchmarks.index.pages import LAG, LOGS, MAY_GROW, MEMORY, TOMBSTONES, WITHHELD, soak_page
from benchmarks.index.world import World, environment
from benchmarks.page import write_page
from cdc.model.errors import TailorbirdError
from tailorbird.operate.probes.proc_steal import CpuSteal

KEYS = 20_000
SAMPLE_SECONDS = 5.0


@dataclass(slots=True)
class Samples:
    """Values that were sampled every few seconds."""

    minutes: list[float] = field(default_factory=list)
    series: dict[str, list[float]] = field(
        default_factory=lambda: {name: [] for name in (*MAY_GROW, "rows/s", WITHHELD)}
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    parser = argparse.ArgumentParser(
        prog="make soak-index", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=30.0, help="duration (default 30)")
    parser.add_argument("--rate", type=float, help="rows/s; default: half of the measured maximum")
    parser.add_argument(
        "--output", type=Path, default=Path("docs/results"), help="folder for the results (default docs/results)"
    )
    options = parser.parse_args(arguments)
    os.environ.update(environment())
    try:
        with World(tombstones="2m") as world:
            return _soak(world, options)
    except (TailorbirdError, TimeoutError) as error:
        print(f"soak-index: {error}", file=sys.stderr)
        return 1


def _soak(world: World, options: argparse.Namespace) -> int:
    process = world.start()
    load, solr = Load(world, keys=KEYS), world.solr()
    # Measured even if a rate is given, so that the large batches of a backlog allocate their memory before the run.
    half = _half_of_maximum(world, load)
    rate = options.rate or half
    print(f"soak-index: half of the maximum is {half:.0f} rows/s", file=sys.stderr)
    print(f"soak-index: {rate:.0f} rows/s for {options.minutes:g} minutes", file=sys.stderr, flush=True)
    samples, began, written, last = Samples(), time.time(), 0, (time.time(), 0)
    size, cpu_steal = max(1, round(rate / 4)), CpuSteal()
    with world.sink() as sink:
        while (elapsed := time.time() - began) < options.minutes * 60:
            if written / rate > elapsed:
                time.sleep(min(0.05, written / rate - elapsed))
            else:
                load.batch(sink, size)
                written += size
            if elapsed >= len(samples.minutes) * SAMPLE_SECONDS:
                now = time.time()
                values = {
                    MEMORY: _rss_mb(process.pid),
                    LOGS: float(_log_files()),
                    TOMBSTONES: float(solr.search("-_kind:[* TO *]", rows=0).hits),
                    LAG: max(0.0, now - max(began, world.visible_timestamp(solr) / 1000)),
                    "rows/s": (written - last[1]) / max(0.001, now - last[0]),
                    WITHHELD: 100 * cpu_steal.lap(),
                }
                last = (now, written)
                samples.minutes.append(elapsed / 60)
                for name, value in values.items():
                    samples.series[name].append(value)
    world.wait_visible(solr, seconds=300)
    wrong = differences(world, load)
    if process.poll() is not None:
        wrong.append("the indexer ended")
    return _write(options, rate, written / (time.time() - began), samples, wrong)


def _half_of_maximum(world: World, load: Load) -> float:
    """Write as fast as possible; return half of the rows per second from the first put to the last visible row."""
    began, rows = time.time(), 0
    with world.sink() as sink:
        while time.time() - began < 20:
            load.batch(sink, 1000)
            rows += 1000
    ended = world.wait_visible(world.solr(), seconds=600)
    return rows / (ended - began) / 2


def _rss_mb(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    raise TimeoutError("the indexer has ended")


def _log_files() -> int:
    """Count the write-ahead logs that HBase keeps, including archived ones that a peer has not read yet."""
    root = Path(os.environ["TAILORBIRD_HOME"]) / "data" / "hbase" / "root"
    return sum(1 for name in ("WALs", "oldWALs") for path in (root / name).rglob("*") if path.is_file())


def _write(options: argparse.Namespace, rate: float, reached: float, samples: Samples, wrong: list[str]) -> int:
    grew = {name: growth(samples.series[name]) for name in MAY_GROW}
    wrong += [f"{name} grew by {grew[name]:.0%}" for name, limit in MAY_GROW.items() if grew[name] > limit]
    title = f"{options.minutes:g} minutes at {rate:.0f} rows/s, {datetime.now(UTC):%Y-%m-%d}, {machine()}"
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / "index-soak.svg").write_text(charts(title, samples.minutes, samples.series))
    text = soak_page(title, reached, samples.series, grew, wrong, half=options.rate is None)
    write_page(options.output / "index-soak.md", text)
    print(text)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(end(main))
