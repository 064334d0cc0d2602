"""Assign timestamps to a run's batches and barriers, each greater than all earlier ones.

A barrier guarantees that everything with a smaller timestamp was written. A batch's timestamp is bound to it before its
first write, and is the same in every replay. Between that moment and Spark's commit no other barrier may be put: its
greater timestamp would promise that the batch's rows are complete, and would hide the batch's own barrier in HBase and
in Solr's version check. This also holds if the driver dies: the bound timestamp waits for the replay.
"""

from __future__ import annotations

from joins.steps.sink import next_timestamp


class BatchTimestamps:
    """Assigns timestamps; only the driver uses it.

    `last`: the greatest timestamp of any former run. `committed`: the last batch that Spark committed. `bound`: the
    next
    batch already has a timestamp.
    """

    def __init__(self, *, last: int, committed: int, bound: bool) -> None:
        self._last = last
        self._bound = committed + bound

    def of_batch(self, batch: int, known: int | None, now_ms: int) -> int:
        """Return the timestamp of a new or repeated batch (`known`: its former one); the caller then stores it."""
        timestamp = next_timestamp(now_ms, self._last) if known is None else known
        self._last = max(self._last, timestamp)
        self._bound = max(self._bound, batch)
        return timestamp

    def between(self, committed: int, now_ms: int) -> int | None:
        """Return the timestamp of a barrier between batches; None while an uncommitted batch has a timestamp."""
        if self._bound > committed:
            return None
        self._last = next_timestamp(now_ms, self._last)
        return self._last
