"""Read records of `…positions`, of which most contain only what changed (`cdc.formats.position_records`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from cdc.formats.position_records import CHANGED, PositionChains, Stored
from cdc.model.brokers import Brokers
from cdc.process.kafka_foreign import own_record
from cdc.process.kafka_reader import KafkaReader

T = TypeVar("T")


class WholePositions:
    """Makes whole records of the records of one topic of positions. Not thread-safe. `group` names the reader.

    A reader that begins in the middle of a topic needs earlier records; they are read with a connection of their own.
    """

    def __init__(self, brokers: Brokers, topic: str, group: str) -> None:
        self._brokers, self._topic, self._group = brokers, topic, group
        self._chains = PositionChains(self._fetch)

    def read(
        self, partition: int, offset: int, key: bytes | None, value: bytes | None, read: Callable[[Any], T]
    ) -> T | None:
        """Return what `read` makes of the whole record. Call it for each record, in order.

        None for a tombstone, a foreign record, and a record of which compaction has removed a part. Raises Fatal for a
        record of a newer version, and Retriable while Kafka is unavailable.
        """

        def whole(content: Any) -> T | None:
            found = self._chains.whole(partition, offset, key, content)
            return None if found is None else read(found)

        return own_record(self._topic, offset, value, whole, partition, newest=CHANGED)

    def _fetch(self, partition: int, start: int, end: int) -> Iterator[Stored]:
        at, what = (self._topic, partition), "positions cannot be read"
        with KafkaReader(self._brokers, self._group, what) as reader:
            low, _ = reader.bounds(at)
            for message in reader.records({at: max(start, low)}, {at: end}):
                yield message.offset() or 0, message.key(), message.value()


def ends_of(value: Mapping[str, Any]) -> dict[str, dict[int, int]]:
    """Return the end offsets of a whole record, by topic and partition. Raises LookupError, TypeError or ValueError if
    they are malformed."""
    return {topic: {int(p): int(o) for p, o in ends.items()} for topic, ends in value["end_offsets"].items()}
