"""Hold the records of topics that do not exist yet, and create these topics in the background, many at a time.

A topic is requested as soon as its first record waits. Brokers create topics one after another, so several requests are
under way at the same time. If the records are discarded, the topic stays, empty.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable

from cdc.model.errors import Retriable
from cdc.topology.topology import Log
from ingest.log.kafka_topics import NewTopics
from ingest.records.capture_interfaces import Record

# Records, their bytes and their topics that wait at most. Kafka creates some dozens of topics per second, and the
# transaction may stay open for so long.
_RECORDS, _BYTES, _TOPICS = 20_000, 8 * 1024 * 1024, 1000
_LINGERS = 10.0  # seconds after which the thread ends, with its connections, if no topic is needed


class WaitingRecords:
    """The records of one session that wait for topics. `made` are the topics that exist."""

    def __init__(self, log: Log, made: Iterable[str]) -> None:
        self.made = set(made)
        self._log = log
        self._records, self._bytes, self._topics = list[Record](), 0, set[str]()
        self._changed = threading.Condition()
        # The following are shared with the thread. `_asked`: topics that it must still request, `_open` that are
        # requested or to be, `_new` that exist since the last look.
        self._asked, self._open, self._new = list[str](), set[str](), list[str]()
        self._failed: BaseException | None = None
        self._runs = self._closed = False

    def __len__(self) -> int:
        return len(self._records)

    def ask(self, topic: str) -> None:
        """Request a topic, unless it exists. Does not wait."""
        if topic in self.made:
            return
        with self._changed:
            if topic in self._open or topic in self._new:
                return
            self._asked.append(topic)
            self._open.add(topic)
            if not self._runs:
                self._runs = True
                threading.Thread(target=self._run, name="topics", daemon=True).start()
            self._changed.notify_all()

    def ready(self, records: Iterable[Record]) -> list[Record]:
        """Return the records of topics that exist. The others wait until `finish`."""
        found: list[Record] = []
        for record in records:
            if record.topic in self.made:
                found.append(record)
                continue
            if record.topic not in self._topics:
                self._topics.add(record.topic)
                self.ask(record.topic)
            self._records.append(record)
            self._bytes += len(record.key) + len(record.value or b"")
        return found

    @property
    def full(self) -> bool:
        """Return whether no more records should wait."""
        return len(self._records) > _RECORDS or len(self._topics) > _TOPICS or self._bytes > _BYTES

    def finish(self) -> list[Record]:
        """Wait until all requested topics exist, and return the records that waited, in order.

        Raises Retriable or UsageError if a topic could not be created.
        """
        with self._changed:
            self._changed.wait_for(lambda: not self._open or self._failed is not None or self._closed)
            if self._failed is not None:
                raise self._failed
            if self._open:
                raise Retriable("the log was closed while topics were created")
            self.made.update(self._new)
            self._new.clear()
        found = self._records
        self.discard()
        return found

    def discard(self) -> None:
        """Forget the records that wait."""
        self._records, self._bytes, self._topics = [], 0, set()

    def close(self) -> None:
        """Let the thread end. Safe to call at any time."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _run(self) -> None:
        try:
            with NewTopics(self._log) as topics:
                while self._take(topics):
                    found = topics.look()
                    if found:
                        with self._changed:
                            self._open.difference_update(found)
                            self._new += found
                            self._changed.notify_all()
        except BaseException as error:  # noqa: BLE001  # raised by `finish`, in the session's thread
            with self._changed:
                self._failed = error
                self._changed.notify_all()

    def _take(self, topics: NewTopics) -> bool:
        """Request the topics that are needed since the last call, after waiting for one. Returns False to end."""
        with self._changed:
            if topics.pause:  # some are under way: others are needed soon, and are requested together after a pause
                self._changed.wait_for(lambda: self._closed, topics.pause)
            elif not self._changed.wait_for(lambda: self._asked or self._closed, _LINGERS):
                self._runs = False
                return False
            if self._closed:
                return False
            wanted, self._asked = self._asked, []
        topics.request(wanted)
        return True
