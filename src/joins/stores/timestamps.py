"""Assign timestamps to a run's batches and barriers. Each is greater than all earlier ones.

A barrier guarantees that everything with a smaller timestamp is written. A batch gets its timestamp before its first
write and keeps it when it is repeated. From then until Spark's commit, no other barrier may be written: its greater
timestamp would promise rows that are not complete, and would hide the batch's own barrier in HBase and Solr. The
rule also holds after a crash of the driver, because the timestamp is stored."""

from __future__ import annotations

from joins.runtime.sink import next_timestamp


class BatchTimestamps:
    """Assigns timestamps in the driver.

    `last` is the greatest timestamp of any former run, `committed` the last batch that Spark committed. `bound`: the
    next batch has a timestamp already."""

    def __init__(self, *, last: int, committed: int, bound: bool) -> None:
        self._last = last
        self._bound = committed + bound

    def of_batch(self, batch: int, known: int | None, now_ms: int) -> int:
        """Return the timestamp of a batch; the caller then stores it. `known` is its stored one if it is repeated."""
        timestamp = next_timestamp(now_ms, self._last) if known is None else known
        self._last = max(self._last, timestamp)
        self._bound = max(self._bound, batch)
        return timestamp

    def between(self, committed: int, now_ms: int) -> int | None:
        """Return a timestamp for a barrier between batches. None while an uncommitted batch has a timestamp."""
        if self._bound > committed:
            return None
        self._last = next_timestamp(now_ms, self._last)
        return self._last
