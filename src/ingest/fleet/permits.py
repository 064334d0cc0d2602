"""Write permissions of a source's session: its own topics, and its own keys in the topics that all sources share.

The gateway checks each record, so that a faulty or compromised agent cannot write rows of another source.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field

import orjson

from cdc.model import naming
from ingest.records.capture_interfaces import Record


@dataclass(frozen=True, slots=True)
class Permits:
    """Permissions of one source's session.

    `changes` are the topics of its listed tables. `open_ended`: it may also create topics of other tables in its
    databases.
    """

    topology: str
    source: str
    changes: Collection[str]
    open_ended: bool
    _shared: dict[str, Callable[[bytes], bool]] = field(init=False)

    def __post_init__(self) -> None:
        own = {
            naming.schemas_topic: self._of_table,
            naming.dead_letter_topic: self._of_table,
            naming.quarantine_topic: self._of_table,
            naming.history_topic: self._of_history,
        }
        object.__setattr__(self, "_shared", {name(self.topology): check for name, check in own.items()})

    def topic(self, name: str) -> bool:
        """Return whether a topic is one for the source's changes, existing or to be created."""
        if name in self.changes:
            return True
        begins = f"{self.topology}.{self.source}."
        control = name in naming.control_topics(self.topology)
        return self.open_ended and not control and name.startswith(begins) and naming.is_topic(name)

    def record(self, record: Record) -> bool:
        """Return whether the source may write a record."""
        check = self._shared.get(record.topic)
        return self.topic(record.topic) if check is None else check(record.key)

    def _of_table(self, key: bytes) -> bool:
        return key.startswith(f"{self.source}.".encode())

    def _of_history(self, key: bytes) -> bool:
        try:
            parts = orjson.loads(key)
        except orjson.JSONDecodeError:
            return False
        return isinstance(parts, list) and parts[1:2] == [self.source]
