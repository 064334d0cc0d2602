"""Measure a capture of many tables on real servers: start, restart, transactions, statements, and Debezium's start.

All tables of a run are being read: another session locks some of them, so that no snapshot advances and each
transaction takes the longest way. Costs are processor time of the capture process (`/proc/PID/stat`),
from before the statements until the record of a later row is in Kafka, minus what it uses in the same time when idle.
"""

from __future__ import annotations

import contextlib
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
from ingest.fleet.identity import FleetIdentity
from tailorbird.devtools.stack.settings import CAPTURE_LOGIN
from tailorbird.web.fleet.file_ca import init, issue

_TIMEOUT = 600.0
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
                _until(lambda: _newest(topology) is not None, watched)
                found["start"], found["start_mib"] = watched.used(), watched.memory
                with self.load.locked():
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
        for what, statements, count in self.load.measured(self.repeat):
            self._marker(topology, watched)
            before, began = watched.used(), time.monotonic()
            statements()
            self._marker(topology, watched)
            spent = watched.used() - before - idle * (time.monotonic() - began)
            found[what] = 1000 * max(0.0, spent) / count
        found["idle"] = 100 * idle

    def changes(self) -> float:
        """Return the seconds from a start without topics until one change of each table is in Kafka."""
        topology, file = self._topology("changes")
        command = [sys.executable, "-m", "ingest", str(file), "--source", "bench"]
        began = time.monotonic()
        with running("capture", command, file.with_suffix(".log")) as watched:
            self.load.change_each()
            _until(lambda: _written(topology) >= self.load.tables, watched, pause=4.0)
            return time.monotonic() - began

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

    def _topology(self, name: str) -> tuple[Topology, Path]:
        self.folder.mkdir(parents=True, exist_ok=True)
        name = f"{self.name}_{name}"
        file = self.folder / f"{name}.yml"
        tables = ", ".join(f"table_{number}" for number in range(self.load.tables))
        file.write_text(
            f"name: {name}\nlog: {{bootstrap_servers: '{self.brokers}', partitions: 1}}\nsources:\n"
            f"  bench: {{{self.load.source.format(name)}, hostname: 127.0.0.1, port: {self.load.port}, "
            f"username: {CAPTURE_LOGIN.user}, password: {CAPTURE_LOGIN.password}, tables: [{tables}], "
            f"snapshot_mode: initial, ssl_mode: disabled}}\n"
            "tables:\n  t: {query: SELECT t.id FROM bench.table_1 t, row_key: [id]}\n"
        )
        return read_topology(file.read_text(), file=str(file), environ={}), file

    @contextmanager
    def _gateway(self, topology: Topology, file: Path) -> Iterator[tuple[WatchedProcess, list[str]]]:
        """Run a gateway; yield it, and the arguments of a capture that uses it."""
        ca = self.folder / f"{topology.name}-ca"
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


def _newest(topology: Topology) -> dict[str, dict[int, int]] | None:
    """Return the end offsets of the newest position; None if there is none."""
    topic, found = f"{topology.name}.positions", None
    with contextlib.suppress(Retriable), KafkaReader(topology.log.brokers, "bench", "positions") as reader:
        if not reader.partitions(topic):
            return None
        whole = WholePositions(topology.log.brokers, topic, "bench")
        _, high = reader.bounds((topic, 0))
        for message in reader.records({(topic, 0): max(0, high - 10)}):
            found = whole.read(0, message.offset() or 0, message.key(), message.value(), ends_of) or found
    return found


def _written(topology: Topology) -> int:
    return sum(any(ends.values()) for ends in (_newest(topology) or {}).values())


def _records(brokers: str, topic: str) -> int:
    """Return the end offset of a topic of one partition; 0 if it does not exist."""
    consumer = Consumer({"bootstrap.servers": brokers, "group.id": "bench", "isolation.level": "read_committed"})
    with contextlib.closing(consumer):
        try:
            return int(consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=10)[1])
        except KafkaException:
            return 0
