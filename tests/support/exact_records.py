"""Check that exact phases keep what capture promises (`ingest.records.exact_phases`), in every log in memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson

from ingest.log.memory_log import MemoryLog
from ingest.records.capture_interfaces import Checkpoint, Record

Row = dict[str, Any]


class Topics:
    """The newest image of each row in each topic. `exact` counts the records that were checked."""

    def __init__(self) -> None:
        self._images: dict[str, dict[bytes | None, tuple[Row, int]]] = {}
        self._phases: dict[str, int] = {}  # the greatest number of a phase whose records were seen
        self.exact = 0

    def see(self, record: Record) -> None:
        """Check one record. Raises AssertionError if `before` is not the row's newest image in an exact phase, or if a
        record after a phase does not name it."""
        try:
            value = orjson.loads(record.value or b"null")
        except orjson.JSONDecodeError:
            return  # no envelope
        if not isinstance(value, dict) or "op" not in value or "source" not in value:
            return
        images, source = self._images.setdefault(record.topic, {}), value["source"]
        phase, last = source.get("exact", 0), self._phases.get(record.topic, 0)
        assert phase or source.get("inexact_after", 0) >= last, f"{value} does not name phase {last}"
        if value["op"] == "t":
            assert not phase, value
            kept = {key: row for key, row in images.items() if row[1] >= source["sequence"]}
            self._images[record.topic] = kept
            return
        if phase:
            assert phase >= last, value
            self._phases[record.topic] = phase
            before = images[record.key][0] if record.key in images else None
            assert value["before"] == before, f"{value} after {before}"
            self.exact += 1
        if value["after"] is None:
            images.pop(record.key, None)
        else:
            images[record.key] = value["after"], source["sequence"]


_CHECKED: list[tuple[list[Record], int, Topics]] = []  # of the last broker: its records, and how many were checked


def checked(commit: Callable[[MemoryLog, Checkpoint], None]) -> Callable[[MemoryLog, Checkpoint], None]:
    """Return `MemoryLog.commit` with a check of all records that it commits."""

    def check(log: MemoryLog, checkpoint: Checkpoint) -> None:
        commit(log, checkpoint)
        records = log._broker.records
        known, seen, topics = _CHECKED.pop() if _CHECKED else ([], 0, Topics())
        if known is not records:  # of another broker, or a topic of this one was lost
            seen, topics = 0, Topics()
        for record in records[seen:]:
            topics.see(record)
        _CHECKED.append((records, len(records), topics))

    return check
