"""Track what a capture could not publish unchanged: count values, and remember rows with open dead letters.

Values are counted by table and column, for `tailorbird status`. The keys of rows with open dead letters are remembered,
so that a later change of such a key settles its dead letter. Both are stored in each checkpoint (`load`, `state`), so
that a restart need not read the dead-letter topic.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

import orjson

from cdc.model.dead_letter_end import settled_row
from ingest.records.capture_interfaces import Record

# Limit of remembered keys per source, newest first; each takes 15 bytes in every committed position. Dead-letter
# records of older keys are settled by hand (`tailorbird dead-letters`).
MOST_KEYS = 2000
COUNTS, OPEN = "unrepresentable", "refused"


class RefusedRows:
    """Refused rows and replaced values of one source. `dead_letters` is the dead-letter topic.

    `counts` maps `database.table` → column → number of values that were published in another form.
    """

    def __init__(self, dead_letters: str) -> None:
        self._dead_letters = dead_letters
        self.counts: dict[str, dict[str, int]] = {}
        self._open: dict[tuple[str, str], str] = {}  # (topic of the table, digest of the key) → table
        self._topics: set[str] = set()
        self._made = False
        self.reported: dict[tuple[str, str], int] = {}  # counted since `take_reported`

    def load(self, state: Mapping[str, Any]) -> None:
        """Load the counts and keys from a checkpoint's state."""
        self.counts = {table: dict(columns) for table, columns in state.get(COUNTS, {}).items()}
        self._open = {(topic, digest): table for topic, (table, digests) in state.get(OPEN, {}).items()
                      for digest in digests}  # fmt: skip
        self._topics = {topic for topic, _ in self._open}
        self._made = False

    def state(self, before: Mapping[str, Any]) -> dict[str, Any]:
        """Return a checkpoint's state (`before`) with the current counts and keys."""
        state = {name: value for name, value in before.items() if name not in (COUNTS, OPEN)}
        if self.counts:
            state[COUNTS] = {table: dict(columns) for table, columns in self.counts.items()}
        found: dict[str, tuple[str, list[str]]] = {}
        for (topic, digest), table in self._open.items():
            found.setdefault(topic, (table, []))[1].append(digest)
        if found:
            state[OPEN] = {topic: [table, digests] for topic, (table, digests) in found.items()}
        return state

    def count(self, table: str, column: str) -> None:
        """Count a value of a column that was published in another form."""
        columns = self.counts.setdefault(table, {})
        columns[column] = columns.get(column, 0) + 1
        self.reported[table, column] = self.reported.get((table, column), 0) + 1

    def take_reported(self) -> dict[tuple[str, str], int]:
        """Return how many values were published in another form since the last call, by table and column."""
        reported, self.reported = self.reported, {}
        return reported

    def made(self) -> None:
        """Note that a dead-letter record was created, so that `follow` looks for it among the next records."""
        self._made = True

    @property
    def follows(self) -> bool:
        """Return whether `follow` may have anything to do."""
        return self._made or bool(self._open)

    def open(self, topic: str) -> bool:
        """Return whether rows of a topic have open dead-letter records."""
        return topic in self._topics

    def follow(self, records: list[Record]) -> list[Record]:
        """Return the records that settle dead letters of rows that these records publish, and remember new dead
        letters.

        While `follows` is False, there is nothing to do.
        """
        if not self._made and not self._open:
            return []
        self._made = False
        found: list[Record] = []
        for record in records:
            if record.topic == self._dead_letters:
                dead_letter = orjson.loads(record.value or b"{}")
                if dead_letter.get("topic") and dead_letter.get("key"):
                    self._remember(dead_letter["topic"], dead_letter["key"].encode(), dead_letter["table"])
            elif record.topic in self._topics:
                found += self.published(record.topic, record.key)
        return found

    def published(self, topic: str, key: bytes) -> list[Record]:
        """Return the record that settles the dead letter of a row that is now published or deleted; nothing if it has
        none."""
        table = self._open.pop((topic, _digest(key)), None)
        if table is None:
            return []
        self._topics = {one for one, _ in self._open}
        return [
            Record(self._dead_letters, table.encode(), settled_row("capture", table, key.decode(), "a later change"))
        ]

    def _remember(self, topic: str, key: bytes, table: str) -> None:
        self._open.pop((topic, _digest(key)), None)
        self._open[topic, _digest(key)] = table
        self._topics.add(topic)
        while len(self._open) > MOST_KEYS:
            self._open.pop(next(iter(self._open)))


def _digest(key: bytes) -> str:
    return base64.b64encode(sha256(key).digest()[:9]).decode()
