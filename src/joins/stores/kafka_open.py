"""Track the open dead-letter records of a joined table, and settle them when a later record of the row is accepted.

The dead-letter topic is read once from its beginning, then only new records. So a restart loses nothing. Change
topics are read only while records are open. While Kafka is unavailable, records stay open and the next call
continues."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from cdc.model.brokers import Brokers
from cdc.model.dead_letter_end import KEY, STAGE, place_of
from cdc.model.errors import Retriable
from cdc.model.naming import dead_letter_topic
from cdc.process.kafka_foreign import tolerated
from cdc.process.kafka_reader import NewRecords
from joins.runtime.records import as_text
from joins.runtime.sink import OpenRow, settlement
from joins.stores.kafka_log import consumer_of, send_dead_letters

_AT_A_TIME = 2000
_TIMEOUT = 10.0
_MOST_SCANNED = 20_000  # records of change topics that one call reads


@dataclass(slots=True)
class OpenRecords:
    """The open dead-letter records of one table. `rows` has those of result rows, by the text of the row key."""

    servers: Brokers
    topology: str
    table: str
    rows: dict[str, OpenRow] = field(default_factory=dict)
    # Records of change topics: (topic, partition) → key in base64 → offset of the newest refused one, and its row
    _logged: dict[tuple[str, int], dict[str, tuple[int, OpenRow]]] = field(default_factory=lambda: defaultdict(dict))
    _refused: set[tuple[str, int, int]] = field(default_factory=set)
    _scanned: dict[tuple[str, int], int] = field(default_factory=dict)
    _new: NewRecords = field(init=False)

    def __post_init__(self) -> None:
        self._new = NewRecords(self.servers, "tailorbird-join-start", dead_letter_topic(self.topology))

    def refresh(self) -> dict[str, OpenRow]:
        """Read new dead-letter records, and return the rows with open ones.

        Empty if the dead-letter topic does not exist."""
        for offset, value in self._new.read():
            tolerated(dead_letter_topic(self.topology), offset, value, partial(self._take, offset))
        return dict(self.rows)

    def close(self) -> None:
        """Close the connection, but keep what was read."""
        self._new.close()

    def _take(self, offset: int, reported: Mapping[str, Any]) -> None:
        if reported.get("stage") == STAGE:
            self._settle(reported)
        elif reported.get("stage") == "join" and reported.get("table") == self.table:
            self._open(reported, offset)

    def _open(self, reported: Mapping[str, Any], offset: int) -> None:
        place = place_of(reported)
        if not place:
            return
        if reported.get("row"):
            self.rows[place] = OpenRow(place, offset, self._count(self.rows.get(place)))
            return
        topic, partition, at, key = (
            reported["topic"],
            int(reported["partition"]),
            int(reported["offset"]),
            reported["key"],
        )
        self._refused.add((topic, partition, at))
        known = self._logged[topic, partition].get(key)
        self._logged[topic, partition][key] = at, OpenRow(place, offset, self._count(known[1] if known else None))
        self._scanned[topic, partition] = min(self._scanned.get((topic, partition), at + 1), at + 1)

    @staticmethod
    def _count(known: OpenRow | None) -> int:
        return 1 if known is None else known.records + 1

    def _settle(self, reported: Mapping[str, Any]) -> None:
        if reported.get("of") == ["join", self.table]:
            self.rows.clear()
            self._logged.clear()
        stage, name, place = reported.get("row") or ("", "", "")
        if (stage, name) == ("join", self.table):
            upto = reported.get("upto", self._new.next)
            if place in self.rows and self.rows[place].offset <= upto:
                del self.rows[place]
            for keys in self._logged.values():
                for key in [key for key, (_, one) in keys.items() if one.place == place and one.offset <= upto]:
                    del keys[key]

    def settle_logged(self, committed: Mapping[str, Mapping[int, int]]) -> int:
        """Settle dead-letter records of change topics whose key has a later record before the `committed` offsets.

        Reads only partitions with open records, from the refused record on. Return the number of settled records.
        Raises Retriable while Kafka is unavailable."""
        self.refresh()
        accepted: list[OpenRow] = []
        for (topic, partition), keys in self._logged.items():
            end = committed.get(topic, {}).get(partition, 0)
            if keys and self._scanned.get((topic, partition), end) < end:
                accepted += self._scan(topic, partition, keys, end)
        if accepted:
            settlements = [(KEY, settlement(self.table, one)) for one in accepted]
            send_dead_letters(self.servers, dead_letter_topic(self.topology), settlements)
        return sum(one.records for one in accepted)

    def _scan(self, topic: str, partition: int, keys: dict[str, tuple[int, OpenRow]], end: int) -> list[OpenRow]:
        accepted: list[OpenRow] = []
        consumer = consumer_of(self.servers)
        try:
            consumer.assign([TopicPartition(topic, partition, self._scanned[topic, partition])])
            deadline, passed = time.monotonic() + _TIMEOUT, 0
            while passed < _MOST_SCANNED and self._scanned[topic, partition] < end and time.monotonic() < deadline:
                for message in consumer.consume(_AT_A_TIME, timeout=0.05):
                    error, offset = message.error(), message.offset() or 0
                    if error is not None:
                        if error.code() == KafkaError._PARTITION_EOF:
                            return accepted
                        continue
                    if offset >= end:
                        return accepted
                    passed, self._scanned[topic, partition] = passed + 1, offset + 1
                    known = keys.get(as_text(message.key()) or "")
                    if known and offset > known[0] and (topic, partition, offset) not in self._refused:
                        accepted.append(known[1])
                        del keys[as_text(message.key()) or ""]
        except KafkaException as error:
            raise Retriable(f"Kafka at {self.servers}: {error.args[0].str()}") from error
        finally:
            consumer.close()
        return accepted
