"""Read the progress of each source's capture from the positions topic."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from kafka import KafkaConsumer, TopicPartition
from kafka.errors import KafkaError

from cdc.formats.position_records import source_key
from cdc.model.errors import Retriable
from cdc.model.naming import positions_topic, transactional_id
from cdc.process.kafka_login import python_settings
from cdc.process.kafka_positions import WholePositions
from cdc.topology.topology import Topology
from ingest.events.left_out import left_out_of, quarantined_tables
from ingest.events.prepared import STATE as PREPARED
from ingest.records.capture_interfaces import REREAD
from ingest.records.refused import COUNTS
from ingest.records.waiting import waiting_of
from tailorbird.operate.status.captured_position import CapturedPosition, FullReread
from tailorbird.operate.status.proc_watch import Watch

# the caller has its own timeout and retries; kafka-python's default is half a minute
_TIMEOUT_MS = 3_000
_LATELY = 100  # records of a source: a few seconds of a busy one


def captured_positions(topology: Topology) -> dict[str, CapturedPosition]:
    """Return the newest position of each source that has one. Reads only the ends of the compacted topic.

    Raises Retriable while Kafka is unavailable."""
    with PositionsReader(topology) as reader:
        return reader.read()


def positions_watched(topology: Topology, every: float = 1.0) -> Watch[dict[str, CapturedPosition]]:
    """Return a background poller of the newest positions, which polls every `every` seconds."""
    return Watch(PositionsReader(topology).read, name="positions", every=every)


class PositionsReader:
    """Reads positions repeatedly over one connection, each time only the new records. A context manager."""

    def __init__(self, topology: Topology) -> None:
        self._servers, self._topic = topology.log.brokers, positions_topic(topology.name)
        self._by_key = {transactional_id(topology.name, source).encode(): source for source in topology.sources}
        self._whole = WholePositions(self._servers, self._topic, "tailorbird-status")
        self._consumer: Any = None
        self._found: dict[str, CapturedPosition] = {}
        self._lately: dict[str, deque[CapturedPosition]] = {}

    def __enter__(self) -> PositionsReader:
        return self

    def __exit__(self, *_: object) -> None:
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None
        self._found, self._lately = {}, {}

    def read(self) -> dict[str, CapturedPosition]:
        """Return the newest position of each source that has one, like `captured_positions`.

        Raises Retriable while Kafka is unavailable."""
        try:
            if self._consumer is None:
                self._consumer = KafkaConsumer(
                    **python_settings(self._servers),
                    isolation_level="read_committed",
                    enable_auto_commit=False,
                    # the broker answers a request for the ends after the fetch that waits before it
                    fetch_max_wait_ms=10,
                    consumer_timeout_ms=1000,
                    bootstrap_timeout_ms=_TIMEOUT_MS,
                )
            return self._read(self._consumer)
        except KafkaError as error:
            self.__exit__()
            raise Retriable(f"Kafka at {self._servers}: {error}", "tailorbird stack status") from error

    def lately(self, source: str) -> Sequence[CapturedPosition]:
        """Return at most a hundred of a source's newest positions that `read` has found, in order and without gaps."""
        newest = [self._found[source]] if source in self._found else []
        return tuple(self._lately.get(source) or newest)

    def _read(self, consumer: Any) -> dict[str, CapturedPosition]:
        partitions = [TopicPartition(self._topic, p) for p in consumer.partitions_for_topic(self._topic) or ()]
        if not partitions:
            return {}
        ends = consumer.end_offsets(partitions)
        if consumer.assignment() != set(partitions):
            consumer.assign(partitions)
            self._found = {}
        for partition in partitions:
            # each source's newest record is at most a few records before its partition's end; markers are offsets
            start = max(0, ends[partition] - 2 * _LATELY)
            if not self._found or not start <= consumer.position(partition) <= ends[partition]:
                consumer.seek(partition, start)
                self._lately.clear()
        while any(consumer.position(partition) < ends[partition] for partition in partitions):
            for records in consumer.poll(timeout_ms=500).values():
                for record in records:
                    source = self._by_key.get(source_key(record.key))
                    read = partial(position_of, offset=record.offset)
                    if source is None:
                        continue
                    found = self._whole.read(record.partition, record.offset, record.key, record.value, read)
                    if found is not None:
                        self._found[source] = found
                        self._lately.setdefault(source, deque(maxlen=_LATELY)).append(self._found[source])
        return dict(self._found)


def position_of(value: Mapping[str, Any], offset: int) -> CapturedPosition:
    """Parse a record of the positions topic. Raises KeyError if it is not a position."""
    position, state = value["position"], value.get("state", {})
    repairs = state.get("mends", {})
    repairing = {**repairs.get("tables", {}), **repairs.get("again", {})}
    return CapturedPosition(
        gtid_set=position["gtid_set"],
        sequence=position["sequence"],
        snapshot=value["snapshot"],
        snapshots=state.get("snapshots", {}),
        repairing=tuple(repairing),
        quarantine=quarantined_tables(state),
        left_out=left_out_of(state),
        waits=waiting_of(state),
        file=position["file"],
        pos=position["pos"],
        offset=offset,
        signals=state.get("signals") or 0,
        prepared=tuple(since for _, _, _, _, since, _ in state.get(PREPARED, ())),
        whole=not (state.get("snapshots") or repairing),
        unrepresentable=state.get(COUNTS, {}),
        reread=FullReread(**state[REREAD]) if REREAD in state else None,
    )
