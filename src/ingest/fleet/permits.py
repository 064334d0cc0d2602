"""What the session of a source may write: its own topics, and its own keys in those that all sources share; pure.

The gateway asks for each record: an agent that is broken, or not ours any more, must not reach another source's rows.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field

import orjson

from cdc.model import naming
from ingest.records.capture_interfaces import Record


@dataclass(frozen=True, slots=True)
class Permits:
    """Of one source: `changes` are the topics of its listed tables; where it is `open_ended`, it may have more."""

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
        object.__setattr__(self, "_shared", {name(self.topology): reported for name, reported in own.items()})

    def topic(self, name: str) -> bool:
        """Whether it is a topic of the source's changes, or may become one."""
        if name in self.changes:
            return True
        begins = f"{self.topology}.{self.source}."
        control = name in naming.control_topics(self.topology)
        return self.open_ended and not control and name.startswith(begins) and naming.is_topic(name)

    def record(self, record: Record) -> bool:
        """Whether it may write a record."""
        reported = self._shared.get(record.topic)
        return self.topic(record.topic) if reported is None else reported(record.key)

    def _of_table(self, key: bytes) -> bool:
        return key.startswith(f"{self.source}.".encode())

    def _of_history(self, key: bytes) -> bool:
        try:
            reported = orjson.loads(key)
        except orjson.JSONDecodeError:
            return False
        return isinstance(reported, list) and reported[1:2] == [self.source]
