"""A change log that passes every call to another one, as a base for logs that look at what passes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Generic, TypeVar

from cdc.model.history import Record as HistoryRecord
from ingest.records.capture_interfaces import Checkpoint, OpenLog, Record, Recovered
from ingest.records.findings import Search

L = TypeVar("L", bound=OpenLog)


class PassingLog(Generic[L]):
    """Passes every call to `log`."""

    def __init__(self, log: L) -> None:
        self.log = log

    def recover(self) -> Recovered:
        """Implements `ChangeLog.recover`."""
        return self.log.recover()

    def append(self, record: Record) -> None:
        """Implements `ChangeLog.append`."""
        self.extend((record,))

    def extend(self, records: Iterable[Record]) -> None:
        """Implements `ChangeLog.extend`."""
        self.log.extend(records)

    def commit(self, checkpoint: Checkpoint) -> None:
        """Implements `ChangeLog.commit`."""
        self.log.commit(checkpoint)

    def abort(self) -> None:
        """Implements `ChangeLog.abort`."""
        self.log.abort()

    def kept(self) -> list[Mapping[str, Any]]:
        """Implements `ChangeLog.kept`."""
        return self.log.kept()

    def history(self) -> tuple[HistoryRecord, ...]:
        """Implements `ChangeLog.history`."""
        return self.log.history()

    def restate(self, records: Iterable[Record]) -> None:
        """Implements `ChangeLog.restate`."""
        self.log.restate(records)

    def search(self, search: Search) -> None:
        """Implements `ChangeLog.search`."""
        self.log.search(search)

    def ensure_topic(self, name: str) -> None:
        """Implements `OpenLog.ensure_topic`."""
        self.log.ensure_topic(name)

    def close(self) -> None:
        """Implements `OpenLog.close`."""
        self.log.close()
