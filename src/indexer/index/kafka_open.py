"""Track the rows of an index that have open (unsettled) dead-letter records.

The topic is read once from its start, then only new records are read. So a restart forgets nothing, and records that
other indexers wrote are included. While Kafka is unavailable, indexing continues and records are settled later."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import partial
from typing import Any

from cdc.model.brokers import Brokers
from cdc.model.dead_letter_end import STAGE
from cdc.process.kafka_foreign import tolerated
from cdc.process.kafka_reader import NewRecords

_EVERY = 5.0  # seconds between two reads of the topic


class OpenRows:
    """The rows of one index with an open dead-letter record: row key → version that was last refused, and record
    offset."""

    def __init__(self, brokers: Brokers, topic: str, index: str) -> None:
        self._topic, self._index = topic, index
        self._new = NewRecords(brokers, "tailorbird-index-dead-letters", topic)
        self._looked = -_EVERY
        self.rows: dict[bytes, tuple[int, int]] = {}

    def look(self) -> None:
        """Read the records that arrived since the last call. Does nothing if that was less than a few seconds ago."""
        if time.monotonic() - self._looked < _EVERY:
            return
        self._looked = time.monotonic()
        for offset, value in self._new.read():
            tolerated(self._topic, offset, value, partial(self._take, offset))

    def _take(self, offset: int, reported: Mapping[str, Any]) -> None:
        if reported.get("stage") == "indexer" and reported.get("index") == self._index:
            self.rows[bytes.fromhex(str(reported.get("row", "")))] = int(reported.get("version", 0)), offset
        elif reported.get("stage") == STAGE:
            if reported.get("of") == ["indexer", self._index]:
                self.rows.clear()
            stage, name, row = reported.get("row") or ("", "", "")
            if (stage, name) == ("indexer", self._index):
                self.rows.pop(bytes.fromhex(row), None)
