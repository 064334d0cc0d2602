"""Measure a capture of many tables on real servers: start, restart, transactions, statements, and Debezium's start.

All tables of a run are being read: a signal pauses the snapshots, so that each transaction takes the longest way. Costs
are processor time of the capture process (`/proc/PID/stat`), from before the statements until the record of a later row
is in Kafka. They include what an idle capture uses in this time. The median of some rounds counts.
"""

from __future__ import annotations

import contextlib
import shutil
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, TopicPartition

from benchmarks.capture.many_tables_servers import Load
from benchmarks.capture.proc_captures import WatchedProcess, running
from cdc.model.brokers import Brokers
from cdc.model.errors import Retriable, TailorbirdError
from cdc.model.naming import change_topic
from cdc.model.schema import TableId
from cdc.process.kafka_admin import WantedTopic, create_topics
from cdc.process.kafka_positions import WholePositions, ends_of
from cdc.process.kafka_reader import KafkaReader
from cdc.topology.reader import read_topology
from cdc.topology.topology import Topology
from ingest.capture.groups import Limits
from ingest.capture.signals import signal_value
from ingest.fleet.identity import FleetIdentity
from ingest.log.kafka_signals import send
from tailorbird.devtools.stack.settings import CAPTURE_LOGIN
from tailorbird.web.fleet.file_ca import init, issue

_TIMEOUT = 900.0
_ROUNDS = 3
_SETTLES, _IDLE = 10, 0.1  # looks until a capture uses less than this share of a core


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """The parameters of one run: its name, database with its tables, Kafka, and folder for files."""

    name: str
    load: Load
    brokers: str
    folder: Path
    gateway_port: int
    repeat: int = 1000

    def measure(self, *, gateway: bool) -> dict[str, float]:
        """Return the figures of one capture, directly or through a gateway."""
        found: dict[str, float] = {}
        topology, file = self._topology("gw" if gateway else "direct")
        with ExitStack() as stack:
            command = [sys.executable, "-m", "ingest", str(file), "--source", "bench"]
            served = None
            if gateway:
                served, more = stack.enter_context(self._gateway(topology, file))
                command += more
            with running("capture", command, file.with_suffix(".first.log")) as watched:
                _until(Positions(topology).look, watched, pause=0.2)
                found["start"], found["start_mib"] = watched.used(), watched.memory
                self._pause(topology, watched)
                self._costs(topology, watched, found)
                found["first_mib"] = watched.memory
            with running("capture", command, file.with_suffix(".again.log")) as watched:
                self._marker(topology, watched)
                found["restart"], found["restart_mib"] = watched.used(), watched.memory
            if served is not None:
                found["gateway_s"], found["gateway_mib"] = served.used(), served.memory
        return found

    def _costs(self, topology: Topology, watched: WatchedProcess, found: dict[str, float]) -> None:
        self._marker(topology, watched)
        idle = 1.0
        for _ in range(_SETTLES):  # after a first start, capture rewrites the history once
            idle = watched.idle(2.0, 4.0) / 100
            if idle < _IDLE:
                break
        rounds: dict[str, list[float]] = {}
        for _ in range(_ROUNDS):
            for what, statements, count in self.load.measured(self.repeat):
                self._marker(topology, watched)
                before = watched.used()
                statements()
                self._marker(topology, watched)
                rounds.setdefault(what, []).append(1000 * (watched.used() - before) / count)
        found |= {what: statistics.median(one) for what, one in rounds.items()}
        found["idle"] = 100 * idle

    def _pause(self, topology: Topology, watched: WatchedProcess) -> None:
        """Pause the snapshots, also of ten tables that may have been read before."""
        names = tuple(f"{self.load.database}.table_{number}" for number in range(10))
        self._marker(topology, watched)  # a new capture reads the signals that are sent after its first look at them
        time.sleep(2 * Limits().idle_commit)
        send(topology, "bench", signal_value("pause-snapshot", ()))
        send(topology, "bench", signal_value("execute-snapshot", names))
        time.sleep(2 * Limits().idle_commit)
        self._marker(topology, watched)

    def changes(self, *, snapshots: bool, shared: bool) -> dict[str, float]:
        """Return the seconds from a start without topics until each table has a row in Kafka, and the processor time.

        With `snapshots` the rows exist before the start, otherwise they are inserted as soon as capture follows the
        log. With `shared` all tables have one topic.
        """
        self.load.empty()
        if snapshots:
            self.load.change_each()
        name = f"{'rows' if snapshots else 'changes'}{'_shared' if shared else ''}"
        topology, file = self._topology(name, snapshots=snapshots, shared=shared)
        command = [sys.executable, "-m", "ingest", str(file), "--source", "bench"]
        positions, began = Positions(topology), time.monotonic()
        with running("capture", command, file.with_suffix(".log")) as watched:
            if not snapshots:
                _until(positions.look, watched, pause=0.5)
                self.load.change_each()
            topic = f"{topology.name}.bench.{self.load.database}"
            _until(
                lambda: (_records(self.brokers, topic) if shared else positions.written()) >= self.load.tables,
                watched, pause=3.0,
            )  # fmt: skip
            return {"wall": time.monotonic() - began, "used": watched.used(), "mib": watched.memory}

    def debezium(self, java: list[str], seconds: float) -> dict[str, float | None]:
        """Return processor time and memory of Debezium's start; None if it does not finish in time."""
        topic = self.load.debezium_topic
        create_topics(Brokers(self.brokers), [WantedTopic(name=topic)])
        words = self.load.debezium(self.brokers)
        with running("Debezium", [*java, *words], self.folder / f"{self.name}-debezium.log") as watched:
            deadline = time.monotonic() + seconds
            while time.monotonic() < deadline:
                watched.alive()
                self.load.insert(1)
                if _records(self.brokers, topic):
                    return {"start": watched.used(), "start_mib": watched.memory}
                time.sleep(2)
        return {"start": None, "start_mib": watched.memory}

    def _marker(self, topology: Topology, watched: WatchedProcess) -> None:
        """Insert a row, and wait until its record is in Kafka."""
        topic = change_topic(topology.name, TableId(source="bench", database=self.load.database, table="table_1"))
        before = _records(self.brokers, topic)
        self.load.insert(1)
        wanted = before + 1
        _until(lambda: _records(self.brokers, topic) >= wanted, watched)

    def _topology(self, name: str, *, snapshots: bool = True, shared: bool = False) -> tuple[Topology, Path]:
        self.folder.mkdir(parents=True, exist_ok=True)
        name = f"{self.name}_{name}"
        file = self.folder / f"{name}.yml"
        tables = ", ".join(f"table_{number}" for number in range(self.load.tables))
        topics = ", topics: per_database" if shared else ""
        mode = "initial" if snapshots else "never"
        file.write_text(
            f"name: {name}\nlog: {{bootstrap_servers: '{self.brokers}', partitions: 1{topics}}}\nsources:\n"
            f"  bench: {{{self.load.source.format(name)}, hostname: 127.0.0.1, port: {self.load.port}, "
            f"username: {CAPTURE_LOGIN.user}, password: {CAPTURE_LOGIN.password}, tables: [{tables}], "
            f"snapshot_mode: {mode}, ssl_mode: disabled}}\n"
            "tables:\n  t: {query: SELECT t.id FROM bench.table_1 t, row_key: [id]}\n"
        )
        return read_topology(file.read_text(), file=str(file), environ={}), file

    @contextmanager
    def _gateway(self, topology: Topology, file: Path) -> Iterator[tuple[WatchedProcess, list[str]]]:
        """Run a gateway; yield it, and the arguments of a capture that uses it."""
        ca = self.folder / f"{topology.name}-ca"
        shutil.rmtree(ca, ignore_errors=True)  # that of an earlier run
        init(ca, "bench")
        issue(ca, FleetIdentity("bench", "gateways", "g"), ca / "g", hosts=["127.0.0.1"])
        issue(ca, FleetIdentity("bench", "agents", "a"), ca / "a")
        address, log = f"127.0.0.1:{self.gateway_port}", file.with_suffix(".gateway.log")
        command = [sys.executable, "-m", "tailorbird", "gateway", str(file), "--listen", address]
        with running("gateway", [*command, "--identity", str(ca / "g")], log) as watched:
            _until(lambda: b"gateway serves" in log.read_bytes(), watched)
            yield watched, ["--gateway", address, "--identity", str(ca / "a")]


def _until(holds: Callable[[], bool], watched: WatchedProcess, pause: float = 0.05) -> None:
    deadline = time.monotonic() + _TIMEOUT
    while not holds():
        watched.alive()
        if time.monotonic() > deadline:
            raise TailorbirdError(f"{watched.name} did not get so far within {_TIMEOUT:.0f} s", f"see {watched.log}")
        time.sleep(pause)


class Positions:
    """The newest position of a capture: each look continues where the last one ended."""

    def __init__(self, topology: Topology) -> None:
        self._brokers, self._topic = topology.log.brokers, f"{topology.name}.positions"
        self._whole = WholePositions(self._brokers, self._topic, "bench")
        self._next = -1
        self.ends: dict[str, dict[int, int]] | None = None

    def look(self) -> bool:
        """Read what is new; return whether there is a position."""
        with contextlib.suppress(Retriable), KafkaReader(self._brokers, "bench", "positions") as reader:
            if not reader.partitions(self._topic):
                return False
            start = self._next if self._next >= 0 else max(0, reader.bounds((self._topic, 0))[1] - 10)
            for message in reader.records({(self._topic, 0): start}):
                offset = message.offset() or 0
                self.ends = self._whole.read(0, offset, message.key(), message.value(), ends_of) or self.ends
                self._next = offset + 1
        return self.ends is not None

    def written(self) -> int:
        """Return the number of topics that have records."""
        self.look()
        return sum(any(ends.values()) for ends in (self.ends or {}).values())


def _records(brokers: str, topic: str) -> int:
    """Return the end offset of a topic of one partition; 0 if it does not exist."""
    consumer = Consumer({"bootstrap.servers": brokers, "group.id": "bench", "isolation.level": "read_committed"})
    with contextlib.closing(consumer):
        try:
            return int(consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=10)[1])
        except KafkaException:
            return 0
