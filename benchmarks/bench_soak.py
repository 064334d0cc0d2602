"""Run the shop's pipeline for an hour with random kills, schema changes, snapshots and verifications.

    make soak
    make soak ARGS="--minutes 10"

Starts servers of its own, in a temporary folder. The databases keep the same number of rows. Every few seconds, the
memory, file handles and threads of the processes are sampled, and the disk and the topics of the servers. Kafka and
HBase do within minutes what they do within hours by default (benchmarks/soak/servers.py). Writes
docs/results/soak.svg and soak.md (`--output`). The exit code is 1 if a verification found a difference, or if one of
the quantities grew by more than 10 % from the third to the last quarter of the run. Of a process, its longest run
between two kills is compared.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from random import Random

from benchmarks.decode.proc_peers import machine
from benchmarks.disasters.world import World
from benchmarks.ending import end
from benchmarks.index.chart import charts, growth, lower_quartile, mean, part
from benchmarks.page import bullets, page, paragraph, write_page
from benchmarks.soak.events import Events
from benchmarks.soak.samples import Samples, children, command_of, disk, heap_after_collection, held_by, topics
from benchmarks.soak.servers import HBASE_MINUTES, forget_deletes_soon, hurried_topology, hurry
from cdc.model.errors import TailorbirdError

_STAGES = {"ingest": "capture", "joins": "join", "indexer": "indexer"}
_DISK = "disk of "
_DISKS = {"Kafka": "data/kafka", "HBase": "data/hbase", "Solr": "data/solr", "checkpoints": "checkpoints"}
_WITH_HEAP = "join: MiB"
_COLLECT = 30.0
_GROWTH = 0.10
_EARLY = 0.25  # of the run
_PARTS = 4  # the last two are compared
_EVERY = 5.0
_ABOUT = (
    "This page shows whether memory, file handles, threads, disks or topics grow while the demo's pipeline runs, and "
    "whether verifications find a difference. Meanwhile processes and servers are killed, columns are added and "
    f"removed, and tables are read again. No quantity may grow by more than {_GROWTH:.0%} from the third to the last "
    "quarter of the time. Of a process, that is the time of its longest run between two kills, because a process that "
    "starts again begins with other memory. The join is killed only in the first quarter of the hour, because its "
    "caches fill for a quarter of an hour after a start. Of a disk, the page shows the lower quartile: what it has "
    "between two compactions."
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    parser = argparse.ArgumentParser(
        prog="make soak", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=60.0, help="duration (default 60)")
    parser.add_argument("--orders", type=int, default=20_000, help="rows of the joined table")
    parser.add_argument("--rate", type=float, default=60.0, help="changes per second")
    parser.add_argument("--every", type=float, default=40.0, help="seconds between two events")
    parser.add_argument("--seed", type=int, default=1, help="seed of the events")
    parser.add_argument("--port-offset", type=int, default=5_000, help="the ports of the servers")
    parser.add_argument("--output", type=Path, default=Path("docs/results"), help="folder for the results")
    options = parser.parse_args(arguments)
    folder = Path(tempfile.mkdtemp(prefix="tb-"))
    world = World(folder, options.port_offset, _said, topology=hurried_topology(folder), hbase_minutes=HBASE_MINUTES)
    try:
        return _soak(world, options)
    except TailorbirdError as error:
        print(f"soak: {error}\n{world.log_tail()}", file=sys.stderr)
        return error.exit_code
    finally:
        world.close()
        shutil.rmtree(folder, ignore_errors=True)


def _said(line: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {line}", file=sys.stderr, flush=True)


def _soak(world: World, options: argparse.Namespace) -> int:
    hurry(world.stack.addresses()["kafka"])
    world.limit_rows(options.orders)
    world.fill(options.orders)
    world.command("apply", str(world.file))
    world.run()
    world.complete()
    forget_deletes_soon(world.stack.addresses()["kafka"])
    heaps = Heaps()
    events, samples, random = Events(world, Random(options.seed)), Samples(), Random(options.seed + 1)
    began = time.monotonic()
    with world.traffic(options.rate) as changes:
        due = began + options.every
        while (passed := time.monotonic() - began) < 60 * options.minutes:
            samples.add(passed / 60, *_sample(world, heaps))
            changes()
            if time.monotonic() > due:
                events.next(early=passed < _EARLY * 60 * options.minutes)
                due = time.monotonic() + options.every * random.uniform(0.5, 1.5)
            time.sleep(_EVERY)
        made = changes()
    world.complete()
    events.verify()
    grown = {
        name: growth(values[samples.compared(name)], parts=_PARTS, level=_level_of(name))
        for name, values in samples.series.items()
        if name != _WITH_HEAP
    }
    _write(options, samples, grown, events, made)
    bad = [f"{name} grew by {share:.0%}" for name, share in grown.items() if share > _GROWTH] + events.different
    for line in bad:
        print(line, file=sys.stderr)
    return 1 if bad else 0


def _level_of(name: str) -> Callable[[Sequence[float]], float]:
    """Return how to summarize a quantity. A disk is full and emptied in turns: what counts is what stays on it."""
    return lower_quartile if name.startswith(_DISK) else mean


class Heaps:
    """The heap of the join, after a collection every half minute. Its resident memory alone says little: a JVM uses
    its maximum (1 GiB) before it returns anything."""

    def __init__(self) -> None:
        self._due, self._values = 0.0, dict[str, float]()

    def values(self, pid: int, resident: float) -> dict[str, float]:
        """Return the newest values; `pid` and `resident` (MiB) are of the join's process and its descendants."""
        if time.monotonic() >= self._due and (found := heap_after_collection(pid)) is not None:
            self._due = time.monotonic() + _COLLECT
            self._values = {
                "join: heap in use, MiB": found.used,
                "join: MiB outside the heap": resident - found.committed,
            }
        return self._values


def _sample(world: World, heaps: Heaps) -> tuple[dict[str, float], dict[str, int]]:
    """Return the current value of every series, and the process ids. A killed process is missing in both."""
    values: dict[str, float] = {}
    pids: dict[str, int] = {}
    for pid in children(world.pid):
        process = process_of(command_of(pid))
        if process is not None:
            held, pids[process] = held_by(pid), pid
            for what, value in (("MiB", held.memory), ("files", held.files), ("threads", held.threads)):
                values[f"{process}: {what}"] = value
            if process == "join":
                values |= heaps.values(pid, held.memory)
    values |= {f"{_DISK}{name}, MiB": disk(world.home / where) for name, where in _DISKS.items()}
    values["topics"] = topics(world.stack.addresses()["kafka"])
    return values, pids


def process_of(command: str) -> str | None:
    """Return the name of a pipeline's process by its command line, such as `capture of shop`. None for others."""
    stage = next((name for word, name in _STAGES.items() if f" -m {word} " in command), None)
    source = re.search(r" --source (\S+)", command)
    return f"{stage} of {source[1]}" if stage == "capture" and source else stage


def _write(options: argparse.Namespace, samples: Samples, grown: dict[str, float], events: Events, made: int) -> None:
    options.output.mkdir(parents=True, exist_ok=True)
    title = f"{options.minutes:g} minutes with {sum(events.done.values())} events"
    (options.output / "soak.svg").write_text(charts(title, samples.minutes, samples.series))
    lines = [
        "| quantity | minutes | mean of their last quarter | growth since their third quarter |",
        "|---|--:|--:|--:|",
    ]
    for name, values in samples.series.items():
        compared = samples.compared(name)
        minutes = samples.minutes[compared][-1] - samples.minutes[compared][0]
        value = _level_of(name)(part(values[compared], _PARTS - 1, _PARTS))
        lines.append(f"| {name} | {minutes:.0f} | {value:,.0f} | {f'{grown[name]:+.1%}' if name in grown else '–'} |")
    counted = ", ".join(f"{name}: {count}" for name, count in sorted(events.done.items()))
    differences = f"differences found by verifications: {len(events.different)}"
    facts = [machine(), f"{datetime.now(UTC):%Y-%m-%d}", f"{made:,} changes", counted, differences]
    text = page(
        "# An hour of kills, schema changes and snapshots", paragraph(_ABOUT),
        f"Written by `make soak ARGS=\"--minutes {options.minutes:g}\"`:", bullets(facts), "\n".join(lines),
        "![the quantities over time](soak.svg)",
    )  # fmt: skip
    write_page(options.output / "soak.md", text)


if __name__ == "__main__":
    sys.exit(end(main))
