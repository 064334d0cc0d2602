"""Encode the position records of one session: rarely whole, otherwise what changed since the one before (ADR 102)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from cdc.formats.position_records import CHANGED, changes_key
from ingest.records.capture_interfaces import Checkpoint
from ingest.records.checkpoint_changes import MAPS, changes_of
from ingest.records.records import checkpoint_value

Ends = Mapping[str, Mapping[int, int]]
_FEW = 100  # topics and entries of state by table up to which every record is whole: it is small anyway
_EVERY = 500  # records from one whole record to the next


class PositionWriter:
    """Encodes the records of one session, with the `key` of the source's whole records.

    After each record that Kafka has committed, call `committed`; a record that was not committed is encoded again.
    """

    def __init__(self, source: str, key: bytes, *, few: int = _FEW, every: int = _EVERY) -> None:
        self._source, self._key, self._few, self._every = source, key, few, every
        self._before: Checkpoint | None = None
        self._base: int | None = None  # the offset of the last whole record
        self._number = 0  # of the last record since that one

    def record(
        self, checkpoint: Checkpoint, ends: Ends, changed: Collection[str], history: int
    ) -> tuple[bytes, bytes, bool]:
        """Return key and value of a checkpoint's record, and whether it is whole.

        `ends` are the end offsets of all topics; `changed` are those whose offsets changed since the last commit, or
        more. `history` is as in `checkpoint_value`.
        """
        before = self._before
        size = len(ends) + sum(len(checkpoint.state.get(name, ())) for name in MAPS)
        whole = (
            before is None
            or self._base is None
            or self._number >= self._every
            or size <= self._few
            or 2 * len(changed) > size
        )
        if whole or before is None:
            return self._key, checkpoint_value(checkpoint, self._source, ends, history), True
        number = self._number + 1
        more: dict[str, Any] = {"format": CHANGED, "base": self._base, "number": number}
        only = {name: ends[name] for name in changed}
        value = checkpoint_value(changes_of(before, checkpoint), self._source, only, history, more)
        return changes_key(self._key, number), value, False

    def committed(self, checkpoint: Checkpoint, base: int | None) -> None:
        """Note that the last record was committed. `base` is its offset if it is whole (-1: not known), else None."""
        self._before = checkpoint
        if base is None:
            self._number += 1
        else:
            self._base, self._number = None if base < 0 else base, 0
