"""The stamps of a run's batches and barriers, each greater than all before it.

A barrier says that everything of a smaller stamp was written. A batch's stamp is bound to it before its first write,
and is the same in every replay; so between that moment and Spark's commit no other barrier may be put: it would have a
greater stamp, would say that the batch's rows are all there, and would hide the batch's own barrier, in HBase and
behind Solr's fence. That holds over the death of the driver too: the stamp that it had bound waits for the replay.
"""

from __future__ import annotations

from joins.steps.sink import next_timestamp


class BatchTimestamps:
    """Gives out stamps; fed by the driver only.

    `last`: the greatest of any run before. `committed`: the last batch that Spark committed; `bound`: the batch behind
    it has a stamp already.
    """

    def __init__(self, *, last: int, committed: int, bound: bool) -> None:
        self._last = last
        self._bound = committed + bound

    def of_batch(self, batch: int, known: int | None, now_ms: int) -> int:
        """The stamp of a batch that begins, or begins again (`known`: the one that it was given); to be stored then."""
        timestamp = next_timestamp(now_ms, self._last) if known is None else known
        self._last = max(self._last, timestamp)
        self._bound = max(self._bound, batch)
        return timestamp

    def between(self, committed: int, now_ms: int) -> int | None:
        """The stamp of a barrier without a batch; None while a batch has a stamp that Spark has not committed."""
        if self._bound > committed:
            return None
        self._last = next_timestamp(now_ms, self._last)
        return self._last
