"""Follow the newest records of `…positions`, which contain how far each capture has committed."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from cdc.formats.position_records import source_key
from cdc.model.errors import Retriable
from cdc.model.naming import positions_topic
from cdc.process.kafka_positions import WholePositions, ends_of
from cdc.topology.topology import Topology
from ingest.log.kafka_topics import client_settings

TIMEOUT = 20.0  # seconds to wait for the brokers
RUNNING = "check Kafka: `tailorbird stack status`"
_STEP = 500  # records before each partition's end that a start reads first; each further step reads eight times as many
_UNKNOWN = (KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION, KafkaError.UNKNOWN_TOPIC_OR_PART)


def reader_settings(topology: Topology, **more: Any) -> dict[str, Any]:
    """Return settings of a consumer without a group that reads only committed records."""
    return client_settings(
        topology.log.brokers,
        group_id="tailorbird-changes",  # required by the client; nothing is ever committed
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        enable_partition_eof=True,
        fetch_wait_max_ms=20,
        queued_max_messages_kbytes=8192,
        **{"isolation_level": "read_committed", **more},
    )


class KafkaReleased:
    """Committed end offsets of each change topic, by topic and partition, from the newest checkpoints. Not thread-safe.

    Every method raises Retriable while Kafka is unavailable.
    """

    def __init__(self, topology: Topology, sources: Sequence[str]) -> None:
        self._topology, self._topic = topology, positions_topic(topology.name)
        self._keys = {f"{topology.name}.{name}".encode() for name in sources}
        self.ends: Mapping[str, Mapping[int, int]] = {}
        self._consumer = Consumer(reader_settings(topology))
        self._positions = WholePositions(topology.log.brokers, self._topic, "tailorbird-changes")

    def begin(self) -> None:
        """Find the newest record of each source, even if those of other sources are much newer.

        Raises Retriable while Kafka is unavailable or the topic does not exist.
        """
        step = _STEP
        try:
            known = self._consumer.list_topics(timeout=TIMEOUT).topics
            if self._topic not in known:
                raise Retriable(f"there is no topic {self._topic}", f"tailorbird capture {self._topology.file}")
            parts = [TopicPartition(self._topic, number) for number in known[self._topic].partitions]
            marks = {p.partition: self._consumer.get_watermark_offsets(p, timeout=TIMEOUT) for p in parts}
            while True:
                starts = {number: max(low, high - step) for number, (low, high) in marks.items()}
                found = self._look([TopicPartition(self._topic, n, at) for n, at in starts.items()], marks)
                if found >= self._keys or all(starts[n] == low for n, (low, _) in marks.items()):
                    return
                step *= 8
        except KafkaException as error:
            raise self._unavailable(error) from error

    def _look(self, starts: list[TopicPartition], marks: Mapping[int, tuple[int, int]]) -> set[bytes]:
        """Read records from some offsets up to the partitions' ends. Returns the keys (sources) of the records."""
        self._consumer.assign(starts)
        left = {start.partition for start in starts if marks[start.partition][1] > start.offset}
        deadline, seen = time.monotonic() + TIMEOUT, set[bytes]()
        while left:
            self._take(0.1, lambda key, seen=seen: seen.add(key), left, marks)  # type: ignore[misc]  # a default
            if time.monotonic() > deadline:
                raise Retriable(f"Kafka does not return records of {self._topic}", RUNNING)
        return seen

    def follow(self, seconds: float) -> bool:
        """Wait up to `seconds` for new records. Returns True if there were any."""
        before = self.ends
        try:
            self._take(seconds)
        except KafkaException as error:
            raise self._unavailable(error) from error
        return self.ends is not before

    def _take(
        self,
        seconds: float,
        see: Callable[[bytes], object] = lambda key: None,
        left: set[int] | None = None,
        marks: Mapping[int, tuple[int, int]] | None = None,
    ) -> None:
        newest: dict[bytes, Mapping[str, Mapping[int, int]]] = {}
        for message in self._consumer.consume(500, seconds):
            error, partition, offset = message.error(), message.partition() or 0, message.offset() or 0
            if error is not None and error.code() != KafkaError._PARTITION_EOF:
                if not error.retriable() and error.code() not in _UNKNOWN:
                    raise KafkaException(error)
                continue
            if error is None:
                key, value = message.key() or b"", message.value()
                source = source_key(key)
                wanted = source in self._keys
                ends = self._positions.read(partition, offset, key, value, ends_of) if wanted else None
                if ends is not None:
                    newest[source] = ends
                    see(source)
                offset += 1
            if left is not None and marks is not None and offset >= marks[partition][1]:
                left.discard(partition)
        for found in newest.values():
            self.ends = {**self.ends, **found}

    def close(self) -> None:
        """Close the consumer."""
        self._consumer.close()

    def _unavailable(self, error: KafkaException) -> Retriable:
        return Retriable(f"Kafka at {self._topology.log.brokers}: {error.args[0].str()}", RUNNING)
