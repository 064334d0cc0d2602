"""Reads how far each source's capture has come, from the positions topic."""

from __future__ import annotations

import json
from typing import Any

from kafka import KafkaConsumer, TopicPartition
from kafka.errors import KafkaError

from cdc.topology.topology import Topology
from cdc.words.errors import Retriable
from cdc.words.naming import positions_topic, transactional_id
from console.status.captured_position import CapturedPosition
from console.status.proc_watch import Watch
from ingest.facts.kept import kept_of


def captured_positions(topology: Topology) -> dict[str, CapturedPosition]:
    """Newest position by source; a source that has none yet is absent. Reads the compacted topic's ends. Retriable."""
    with PositionsReader(topology) as reader:
        return reader.read()


def positions_watched(topology: Topology, every: float = 1.0) -> Watch[dict[str, CapturedPosition]]:
    """The newest positions, as of late."""
    return Watch(PositionsReader(topology).read, name="positions", every=every)


class PositionsReader:
    """Reads them again and again over one connection; a context manager."""

    def __init__(self, topology: Topology) -> None:
        self._servers, self._topic = topology.log.brokers, positions_topic(topology.name)
        self._by_key = {transactional_id(topology.name, source): source for source in topology.sources}
        self._consumer: Any = None

    def __enter__(self) -> PositionsReader:
        return self

    def __exit__(self, *_: object) -> None:
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None

    def read(self) -> dict[str, CapturedPosition]:
        """See `captured_positions`."""
        try:
            if self._consumer is None:
                self._consumer = KafkaConsumer(
                    **self._servers.kafka_python(),
                    isolation_level="read_committed",
                    enable_auto_commit=False,
                    consumer_timeout_ms=1000,
                )
            return self._read(self._consumer)
        except KafkaError as error:
            self.__exit__()
            raise Retriable(f"Kafka at {self._servers}: {error}", "tailorbird stack status") from error

    def _read(self, consumer: Any) -> dict[str, CapturedPosition]:
        found: dict[str, CapturedPosition] = {}
        partitions = [TopicPartition(self._topic, p) for p in consumer.partitions_for_topic(self._topic) or ()]
        if not partitions:
            return found
        consumer.assign(partitions)
        ends = consumer.end_offsets(partitions)
        # Each source's newest record stands at most a few records before its partition's end; markers count as offsets.
        for partition in partitions:
            consumer.seek(partition, max(0, ends[partition] - 50))
        while any(consumer.position(partition) < ends[partition] for partition in partitions):
            for records in consumer.poll(timeout_ms=500).values():
                for record in records:
                    source = self._by_key.get(record.key.decode()) if record.key is not None else None
                    if source is None or record.value is None:
                        continue
                    value = json.loads(record.value)
                    state = value.get("state", {})
                    mends = state.get("mends", {})
                    found[source] = CapturedPosition(
                        gtid_set=value["position"]["gtid_set"],
                        sequence=value["position"]["sequence"],
                        snapshot=value["snapshot"],
                        snapshots=state.get("snapshots", {}),
                        mending=tuple({**mends.get("tables", {}), **mends.get("again", {})}),
                        quarantine=kept_of(state),
                    )
        return found
