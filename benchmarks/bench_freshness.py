"""Measure the time from COMMIT at a source to a query that shows the change, stage by stage, with the demo's traffic.

    make bench-freshness
    make bench-freshness ARGS="--seconds 60 --rate 110 --output docs/results/freshness.md"

Needs the servers (`tailorbird stack up`). Loads the demo's shop if it does not exist, warms up as the demo does, and
then tracks six changes of orders a second. Each stage has a time: COMMIT returned to this program; a read_committed
consumer in this program received the record; its batch began to write (the batch timestamp, which is the version of
the row); the indexer posted the document (`_indexed_at`); a query of Solr, sent ten times a second, showed it.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from random import Random
from typing import Final

import orjson
import pysolr
from confluent_kafka import Consumer

from benchmarks.decode.proc_peers import load, machine
from benchmarks.ending import end
from benchmarks.index.freshness import Run, document, figures
from benchmarks.index.world import environment
from benchmarks.joins.latency import phases_of
from benchmarks.page import write_page
from cdc.model.naming import change_topic
from cdc.model.schema import TableId
from cdc.process.file_topology import load_topology
from cdc.stored.fields import FENCE, INDEXED_AT
from cdc.topology.topology import Topology
from indexer.solr.solr_http import reading_session
from tailorbird.cli.change.cli_apply import provision
from tailorbird.cli.cli_demo_steps import traffic, wait_until_quiet
from tailorbird.devtools.demo.mysql_demo import MySqlShop
from tailorbird.devtools.demo.shop import Shop
from tailorbird.devtools.demo.warm_up import rounds_until_warm
from tailorbird.devtools.stack.settings import LOAD_LOGIN
from tailorbird.operate.pipeline.proc_pipeline import Pipeline
from tailorbird.operate.probes.proc_steal import CpuSteal

ROOT: Final = Path(__file__).parent.parent
SIZES: Final = {"customers": 5_000, "products": 2_000, "orders": 50_000}
A_SECOND: Final = 6.0
LOOK_EVERY: Final = 0.1
LEAST: Final = 50
Version = tuple[int, int]  # an order and its revision


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackedChange:
    """Times when a change was committed, readable, taken by a batch, posted and shown, in ms since 1970."""

    at: tuple[float, float, float, float, float]

    @property
    def stages(self) -> list[int]:
        """Milliseconds of each stage, by one machine's clocks; a batch timestamp may be a millisecond early."""
        return [max(0, round(later - before)) for before, later in zip(self.at, self.at[1:], strict=False)]


class Follower:
    """Watches the log and the index for expected changes, each in its own thread."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._committed: dict[Version, float] = {}
        self._readable: dict[Version, float] = {}
        self.followed: list[TrackedChange] = []
        self._lock, self._stop, self._began = threading.Lock(), threading.Event(), threading.Event()
        self._threads = [threading.Thread(target=target, name="follower") for target in (self._log, self._index)]

    def __enter__(self) -> Follower:
        for thread in self._threads:
            thread.start()
        if not self._began.wait(30):
            raise RuntimeError("Kafka did not assign the topic of orders within 30 s")
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def expect(self, version: Version) -> None:
        """Track a change whose COMMIT has just returned."""
        with self._lock:
            self._committed[version] = time.time() * 1000

    def _log(self) -> None:
        consumer = Consumer(
            {
                **self._topology.log.brokers.librdkafka(), "group.id": uuid.uuid4().hex, "enable.auto.commit": False,
                "isolation.level": "read_committed", "auto.offset.reset": "latest", "fetch.wait.max.ms": 10,
            }
        )  # fmt: skip
        topic = change_topic(self._topology.name, TableId(source="shop", database="shop", table="orders"))
        consumer.subscribe([topic], on_assign=lambda *_: self._began.set())
        while not self._stop.is_set():
            if (message := consumer.poll(0.1)) is None or message.error() is not None:
                continue
            row = (orjson.loads(message.value() or b"{}") or {}).get("after")
            if row is not None:
                with self._lock:
                    self._readable[int(row["id"]), int(row["revision"])] = time.time() * 1000
        consumer.close()

    def _index(self) -> None:
        index = self._topology.indexes["orders"]
        url = f"{self._topology.solr.url}/{index.collection}"
        solr = pysolr.Solr(url, timeout=10, session=reading_session(self._topology.solr))
        while not self._stop.wait(LOOK_EVERY):
            with self._lock:
                wanted = list(self._committed)[:100]
            if not wanted:
                continue
            keys = ",".join(str(order) for order, _ in wanted)
            found = solr.search(f"{{!terms f=id}}{keys}", fl=f"id,revision,{FENCE},{INDEXED_AT}", rows=len(wanted))
            now = time.time() * 1000
            for one in found:
                self._shown(int(one["id"]), int(one["revision"]), int(one[FENCE]) / 2, float(one[INDEXED_AT]), now)

    def _shown(self, order: int, revision: int, timestamp: float, posted: float, now: float) -> None:
        with self._lock:
            for version in [each for each in self._committed if each[0] == order and each[1] <= revision]:
                committed, readable = self._committed.pop(version), self._readable.get(version)
                # a later version was indexed first: its times belong to another change
                if version[1] == revision and readable is not None:
                    self.followed.append(TrackedChange(at=(committed, readable, timestamp, posted, now)))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code: 1 if too few changes were tracked."""
    parser = argparse.ArgumentParser(
        prog="make bench-freshness", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--rate", type=float, default=110.0, help="changes/s")
    parser.add_argument("--output", type=Path, help="also write the result to this file")
    options = parser.parse_args(arguments)
    os.environ.update(environment())
    busy = load()
    with tempfile.TemporaryDirectory() as folder, ExitStack() as closing:
        followed, log, withheld = run(Path(folder), closing, options.seconds, options.rate)
    if len(followed) < LEAST:
        print(f"only {len(followed)} changes were tracked", file=sys.stderr)
        return 1
    changes, phases = [one.stages for one in followed], phases_of(log)
    print(*figures(changes, phases, withheld), sep="\n\n")
    if options.output:
        facts = Run(
            date=f"{datetime.now(UTC):%Y-%m-%d}",
            machine=machine(),
            load=busy,
            seconds=options.seconds,
            rate=options.rate,
            rows=sum(SIZES.values()),
            tracked=A_SECOND,
            withheld=withheld,
        )
        write_page(options.output, document(changes, phases, facts))
    return 0


def run(folder: Path, closing: ExitStack, seconds: int, rate: float) -> tuple[list[TrackedChange], str, float]:
    """Run the pipeline; return the tracked changes, the join's log of that time, and the CPU steal."""
    text = (ROOT / "topologies" / "shop.yml").read_text()
    file = folder / "topology.yml"
    file.write_text(text.replace("name: shop\n", f"name: fresh_{uuid.uuid4().hex[:8]}\n", 1))
    topology = load_topology(str(file))
    shop, generator = (
        MySqlShop(topology.sources, user=LOAD_LOGIN.user, password=LOAD_LOGIN.password),
        Shop(random=Random(7)),
    )
    closing.callback(shop.close)
    shop.prepare()
    shop.recall(generator)
    if generator.lacks(**SIZES):
        shop.load(generator.catalogue(**SIZES, now_ms=int(time.time() * 1000)), lambda rows: None)
    list(provision(topology))
    pipeline = closing.enter_context(Pipeline(topology, home=folder))
    pipeline.start()

    def quiet() -> None:
        wait_until_quiet(topology, shop, pipeline, lambda why: None)

    def a_round() -> float:
        for change in islice(traffic(generator, rate=rate, until=lambda: False), round(rate)):
            shop.apply(change)
        applied = time.monotonic()
        quiet()
        return time.monotonic() - applied

    quiet()
    print(f"warm after {rounds_until_warm(a_round)} rounds", file=sys.stderr)
    log = next(part.log for part in pipeline.parts if part.stage == "join")
    before, chance, due, cpu_steal = log.stat().st_size, Random(8), 0.0, CpuSteal()
    with Follower(topology) as follower:
        ends = time.monotonic() + seconds
        for change in traffic(generator, rate=rate, until=lambda: time.monotonic() >= ends):
            at = shop.apply(change)
            if change.order is not None and change.revision is not None and at >= due:
                follower.expect((change.order, change.revision))
                due = at + chance.uniform(0.5, 1.5) / A_SECOND
        withheld = cpu_steal.share()
        quiet()
        time.sleep(1.0)  # for one more query of the index
    return follower.followed, log.read_bytes()[before:].decode(), withheld


if __name__ == "__main__":
    sys.exit(end(main))
