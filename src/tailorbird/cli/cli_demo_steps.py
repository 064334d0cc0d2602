"""Steps of the demo: count rows, generate traffic, sample freshness, wait until the pipeline is idle."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from random import Random

from cdc.model.errors import Fatal, Retriable
from cdc.topology.topology import Topology
from joins.process.targets import target_of
from tailorbird.devtools.demo.mysql_demo import MySqlShop
from tailorbird.devtools.demo.run_freshness import FreshnessMeter
from tailorbird.devtools.demo.shop import Shop, ShopTransaction
from tailorbird.operate.pipeline.proc_pipeline import Pipeline
from tailorbird.operate.status.captured_position import CapturedPosition
from tailorbird.operate.status.http_metrics import read_metrics
from tailorbird.operate.status.kafka_captured import PositionsReader
from tailorbird.operate.status.visible_cuts import visible_sequences

COUNTERS = {
    "captured": ("capture", "tailorbird_captured_changes_total"),
    "joined": ("join", "tailorbird_joined_rows_total"),
    "indexed": ("index", "tailorbird_indexed_documents_total"),
}
_STANDSTILL = 120.0  # seconds without a row captured, joined or indexed


def counts(pipeline: Pipeline) -> dict[str, int]:
    """Return how many events were published, rows written and documents accepted since the processes started."""
    totals = dict.fromkeys(COUNTERS, 0)
    for part in pipeline.parts:
        if part.stage not in {stage for stage, _ in COUNTERS.values()}:
            continue
        for metrics in map(read_metrics, part.serves.values()):
            for name, (stage, counter) in COUNTERS.items():
                if part.stage == stage:
                    totals[name] += int(metrics.get(counter, 0))
    return totals


def traffic(shop: Shop, *, rate: float, until: Callable[[], bool]) -> Iterator[ShopTransaction]:
    """Yield changes at `rate` per second, evenly spaced. Does not sleep when it is late."""
    due = time.monotonic()
    while not until():
        yield shop.traffic(int(time.time() * 1000))
        due += 1.0 / rate
        if (pause := due - time.monotonic()) > 0:
            time.sleep(pause)


@contextmanager
def background_traffic(shop: Shop, servers: MySqlShop, *, rate: float) -> Iterator[Callable[[], int]]:
    """Context manager: apply changes at `rate` per second. It yields a function that returns how many were applied.

    That function, and the end of the block, raise an error that the traffic met. Nothing else may use `servers`
    during the block."""
    stop, done = threading.Event(), [0]

    def write() -> None:
        for change in traffic(shop, rate=rate, until=stop.is_set):
            servers.apply(change)
            done[0] += 1

    def changes() -> int:
        if writing.done():
            writing.result()
        return done[0]

    with ThreadPoolExecutor(1, "traffic") as pool:
        writing = pool.submit(write)
        try:
            yield changes
        finally:
            stop.set()
        writing.result()


class Sampler:
    """Chooses the changes whose freshness is measured: `per_second` updates of orders."""

    def __init__(self, freshness: FreshnessMeter, *, per_second: float, random: Random) -> None:
        self._freshness, self._pause, self._random = freshness, 1.0 / per_second, random
        self._due = 0.0

    def committed(self, change: ShopTransaction, at: float) -> None:
        """Record that a change's COMMIT returned at the monotonic time `at`."""
        if change.kind == "order removed":
            self._freshness.forget(int(change.statement.values[0]))
        elif change.order is not None and change.revision is not None and at >= self._due:
            self._freshness.expect(change.order, change.revision, at)
            # uneven spacing, so that samples do not fall in step with the join's batches
            self._due = at + self._pause * self._random.uniform(0.5, 1.5)


def wait_until_quiet(topology: Topology, shop: MySqlShop, pipeline: Pipeline, waiting: Callable[[str], None]) -> None:
    """Wait until every index shows all changes that were committed before the call.

    First the capture's position must cover the transactions of the servers, then the barriers in the index must cover
    that position. `waiting` receives messages. Raises Fatal after a long time without progress."""
    wanted = shop.executed()
    reason, seen = "nothing is known yet", counts(pipeline)
    deadline = time.monotonic() + _STANDSTILL
    with PositionsReader(topology) as positions:
        while time.monotonic() < deadline:
            pipeline.must_run()
            if (now := counts(pipeline)) != seen:
                seen, deadline = now, time.monotonic() + _STANDSTILL
            try:
                reason = _behind(topology, shop, positions.read(), wanted)
            except Retriable as error:
                reason = error.message
            if not reason:
                return
            waiting(reason)
            time.sleep(0.3)
    raise Fatal(f"the pipeline did not catch up: {reason}", "see the logs of its processes")


def _behind(topology: Topology, shop: MySqlShop, positions: dict[str, CapturedPosition], wanted: dict[str, str]) -> str:
    for source, executed in wanted.items():
        position = positions.get(source)
        if position is None or position.snapshot != "done":
            return f"the snapshot of {source} is running"
        if position.snapshots or position.repairing:
            return f"rows of {', '.join([*position.snapshots, *position.repairing])} are being read again"
        if not shop.covers(source, position, executed):
            return f"the capture of {source} lags its server's log"
    for index in topology.indexes.values():
        visible = visible_sequences(topology, index)
        for source, position in positions.items():
            if visible.get(source, -1) < position.sequence:
                return f"{index.collection} shows {source} up to {visible.get(source, 0)} of {position.sequence}"
    for table in topology.tables.values():
        if table.sink in ("postgres", "iceberg"):
            stored = target_of(topology, table).reached()
            for source, position in positions.items():
                if int(stored.get(source, {"sequence": -1})["sequence"]) < position.sequence:
                    return f"{table.name} in {table.sink} lags {source}"
    return ""
