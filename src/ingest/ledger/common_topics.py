"""Distribute the records of topics that contain several tables to the ledgers of these tables.

A partition is read once for all its tables. A table may have been read less far than the others, because its schema
arrived later, or because its digests are computed again. The partition is then read again from there, and the other
tables skip the records that they have.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from cdc.model.naming import Routing, table_named
from ingest.ledger.fold import LogRecord
from ingest.ledger.ledger import Partition, TopologyLedger


class CommonTopics:
    """The topics in Kafka that contain several tables, as `KafkaLedger` reads them.

    Tables have the name of their `naming.change_topic`. Call `starts` after each table that was added or is read again.
    """

    def __init__(self, routing: Routing, ledger: TopologyLedger) -> None:
        self._routing, self._ledger = routing, ledger
        self._topics = set[str]()
        self._starts: dict[Partition, int] = {}
        self._next: dict[Partition, int] = {}
        # by table and partition: the offset of the first record that was skipped, because its table was unknown
        self._skipped: dict[Partition, int] = {}

    def contains(self, topic: str) -> bool:
        """Return whether a topic contains several tables."""
        return topic in self._topics

    def start(self, name: str, topic: str, partition: int, offset: int) -> None:
        """Add a table whose records before `offset` were applied."""
        self._topics.add(topic)
        skipped, read = self._skipped.pop((name, partition), None), self._next.get((topic, partition))
        if read is not None and not offset:
            # everything before was read by this process: the table's records were skipped, or there were none
            offset = read if skipped is None else skipped
            self._ledger.ended(name, partition, offset)
        self._need(topic, partition, offset)

    def again(self, partitions: Iterable[Partition]) -> None:
        """Read partitions of a table, by its name, from the beginning."""
        for name, partition in partitions:
            self._need(self._routing.topic(name), partition, 0)

    def _need(self, topic: str, partition: int, offset: int) -> None:
        at = (topic, partition)
        self._starts[at] = min(offset, self._starts.get(at, offset))

    def starts(self) -> Mapping[Partition, int]:
        """Return the partitions that must be read from an offset which is not the next one, each once."""
        found, self._starts = self._starts, {}
        starts = {at: offset for at, offset in found.items() if offset < self._next.get(at, offset + 1)}
        for (topic, partition), offset in starts.items():
            self._ledger.rewound(topic, partition, offset)
        self._next |= starts
        return starts

    def fold(self, topic: str, partition: int, records: Sequence[LogRecord], now_ms: int) -> None:
        """Apply the records of a partition to the ledgers of their tables, in order."""
        found: dict[str, list[LogRecord]] = defaultdict(list)
        nexts: dict[str, int] = {}
        for record in records:
            name = table_named(record.key)
            if not self._ledger.knows(name):
                self._skipped.setdefault((name, partition), record.offset)
                continue
            if name not in nexts:
                nexts[name] = self._ledger.next_offset(name, partition)
            if record.offset >= nexts[name]:
                key = self._routing.own_key(name, record.key)
                assert key is not None  # the table's name is in it
                found[name].append(record._replace(key=key))
        for name, own in found.items():
            self._ledger.records(name, partition, own, own[-1].offset + 1, now_ms)
        self.ended(topic, partition, records[-1].offset + 1)

    def ended(self, topic: str, partition: int, offset: int) -> None:
        """Note that everything before an offset was applied."""
        self._next[topic, partition] = max(offset, self._next.get((topic, partition), 0))
        self._ledger.read_to(topic, partition, offset)
