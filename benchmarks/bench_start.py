"""Measure what a join costs besides its rows: its start, small batches, and waiting for changes.

    make bench-start
    make bench-start ARGS="--before HEAD~20 --rounds 3"

Needs the servers (`tailorbird stack up`). A round fills the log of topologies/shop.yml, starts its join and reports:

- the seconds from the start of the process to its first row in HBase, and the CPU seconds until then;
- the CPU seconds of its first minute, or until the first row if that takes longer;
- the CPU seconds of a batch of ten changes;
- the CPU seconds of a minute without changes.

CPU seconds are those of all processes of the join, user and system. With `--before`, rounds of that commit and of this
tree take turns, and the last lines compare their medians. Each tree uses its class archive, which is created first.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import happybase

from benchmarks.bench_join_latency import CUSTOMERS, PRODUCTS, Bench
from benchmarks.decode.proc_peers import machine
from benchmarks.ending import end
from benchmarks.joins.compare_commits import checkout
from benchmarks.joins.starts import document, ratios
from benchmarks.page import write_page
from cdc.model import naming
from cdc.process.file_topology import home, local_ports

ROOT: Final = Path(__file__).parent.parent
_CHANGES: Final = 10  # of a small batch
_EVERY: Final = 1.5  # seconds between two small batches
_WARM: Final = 20  # small batches before those that count
_TIMEOUT: Final = 300
_LOOK_EVERY: Final = 0.05
_MINUTE: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """What one round measured. The names say the units; see the module's description."""

    first_row_seconds: float
    first_row_cpu_seconds: float
    first_minute_cpu_seconds: float
    batch_cpu_seconds: float
    idle_minute_cpu_seconds: float


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    parser = argparse.ArgumentParser(
        prog="make bench-start", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--orders", type=int, default=20_000, help="rows of the largest table")
    parser.add_argument("--batches", type=int, default=30, help="small batches per round")
    parser.add_argument("--idle", type=int, default=30, help="seconds without changes per round")
    parser.add_argument("--before", help="also measure this commit")
    parser.add_argument("--output", type=Path, help="also write the result to this file")
    options = parser.parse_args(arguments)
    found: dict[str, list[Costs]] = {}
    with ExitStack() as stack:
        trees = {"now": ROOT}
        if options.before:
            trees = {"before": stack.enter_context(checkout(options.before)), **trees}
        for tree in trees.values():
            _run(tree, "joins.engine.spark_archive")
        for _ in range(options.rounds):
            for name, tree in trees.items():
                with tempfile.TemporaryDirectory() as folder:
                    bench = StartBench(Path(folder), tree)
                    try:
                        costs = bench.measure(options.orders, options.batches, options.idle)
                    finally:
                        bench.close()
                found.setdefault(name, []).append(costs)
                print(name, costs, flush=True)
    medians = {name: _median(some) for name, some in found.items()}
    lines = ratios(medians)
    print(*lines, sep="\n")
    if options.output:
        date = f"{datetime.now(UTC):%Y-%m-%d}"
        facts = (date, machine(), options.rounds, options.orders, options.before or "")
        write_page(options.output, document(lines, *facts))
    return 0


def _median(some: list[Costs]) -> dict[str, float]:
    return {one.name: statistics.median(getattr(costs, one.name) for costs in some) for one in fields(Costs)}


def _environment(tree: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(tree / "src")}


def _run(tree: Path, module: str) -> None:
    subprocess.run([sys.executable, "-m", module], cwd=tree, env=_environment(tree), check=True)


class StartBench(Bench):
    """One round with the code of `tree`."""

    def __init__(self, folder: Path, tree: Path) -> None:
        super().__init__(folder)
        self.tree = tree

    def measure(self, orders: int, batches: int, idle: int) -> Costs:
        """Run the round: fill the log, start the join, wait, write small batches, wait."""
        self._provision()
        for table, rows in (("crm.customers", CUSTOMERS), ("shop.products", PRODUCTS), ("shop.orders", orders)):
            for key in range(rows):
                self.change(table, key)
        self.producer.flush(60)
        with (self.folder / "join.log").open("w") as log:
            ports = {f"TAILORBIRD_PORT_{name.upper()}": str(port) for name, port in local_ports(home()).items()}
            environment = {**_environment(self.tree), **ports, "TAILORBIRD_HOME": str(self.folder)}
            command = [sys.executable, "-m", "joins", str(self.folder / "topology.yml")]
            began = time.monotonic()
            self.join = subprocess.Popen(
                command, env=environment, cwd=self.tree, stdout=log, stderr=log, start_new_session=True
            )
        first_row = self._first_row() - began
        first_row_cpu = self._cpu_seconds()
        self._sleep_until(began + _MINUTE)
        first_minute = self._cpu_seconds()
        for _ in range(_WARM):
            self._small_batch(orders)
        idle_cpu = self._idle(idle)
        first, used, started = self._committed(), self._cpu_seconds(), time.monotonic()
        for _ in range(batches):
            self._small_batch(orders)
        passed = time.monotonic() - started
        used, ran = self._cpu_seconds() - used, self._committed() - first
        return Costs(
            first_row_seconds=first_row,
            first_row_cpu_seconds=first_row_cpu,
            first_minute_cpu_seconds=first_minute,
            batch_cpu_seconds=(used - idle_cpu * passed) / ran,
            idle_minute_cpu_seconds=idle_cpu * _MINUTE,
        )

    def _first_row(self) -> float:
        """Wait for the first row in HBase; return the time when it was seen."""
        host, _, port = self.topology.hbase.thrift.rpartition(":")
        connection = happybase.Connection(host, int(port))
        table = connection.table(naming.hbase_table(self.name, self.table.name))
        deadline = time.monotonic() + _TIMEOUT
        while not list(table.scan(limit=1)):
            if self._ended() or time.monotonic() > deadline:
                raise SystemExit((self.folder / "join.log").read_text()[-3000:])
            time.sleep(_LOOK_EVERY)
        connection.close()
        return time.monotonic()

    def _ended(self) -> bool:
        return self.join is None or self.join.poll() is not None

    def _small_batch(self, orders: int) -> None:
        until = time.monotonic() + _EVERY
        for _ in range(_CHANGES):
            self.change("shop.orders", self.random.randrange(orders))
        self.producer.flush(30)
        self._sleep_until(until)

    def _idle(self, seconds: int) -> float:
        """Return the CPU seconds per second without changes."""
        self._sleep_until(time.monotonic() + 2 * _EVERY)
        used, started = self._cpu_seconds(), time.monotonic()
        self._sleep_until(started + seconds)
        return (self._cpu_seconds() - used) / (time.monotonic() - started)

    def _sleep_until(self, moment: float) -> None:
        time.sleep(max(0.0, moment - time.monotonic()))
        if self._ended():
            raise SystemExit((self.folder / "join.log").read_text()[-3000:])

    def _committed(self) -> int:
        """Return the number of the last batch that Spark committed."""
        commits = [path for folder in self.folder.rglob("commits") for path in folder.glob("[0-9]*")]
        return max(int(path.name) for path in commits)

    def _cpu_seconds(self) -> float:
        """Return the CPU seconds of the processes of the join's session, with those that have ended."""
        assert self.join is not None, "the join was started"
        ticks = 0
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                values = stat.read_text().rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):  # ended in the meantime
                continue
            if int(values[3]) == self.join.pid:
                ticks += sum(map(int, values[11:15]))
        return ticks / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    sys.exit(end(main))
