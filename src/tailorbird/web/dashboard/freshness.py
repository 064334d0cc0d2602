"""Measure the time from a change's commit at the source until this page shows it."""

from __future__ import annotations

from collections import deque
from statistics import median

from tailorbird.web.dashboard.answer import Answer

MINUTE_MS = 60_000
# Documents posted concurrently may become visible in another order than they were posted in.
LEEWAY_MS = 2_000


class Freshness:
    """Records when this page first saw a version of a row, and computes the latency since its commit at the source.

    A row may also appear because the filters changed or another row left, which is no arrival. So a version counts
    only if it was indexed after everything in the previous answer with the same filters (less a tolerance). The
    latency compares the source's clock with this machine's clock."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, int], int | None] = {}
        self._samples: deque[tuple[int, int]] = deque()
        self._indexed_ms: int | None = None

    def restart(self) -> None:
        """Start again with the next answer, because the filters changed or the browser was disconnected."""
        self._known.clear()
        self._indexed_ms = None

    def observe(self, answer: Answer) -> None:
        """Record the rows of an answer. Call it once for every answer, in order."""
        known: dict[tuple[str, int], int | None] = {}
        for row in answer.rows:
            seen = (row.key, row.version)
            if seen in self._known:
                known[seen] = self._known[seen]
                continue
            known[seen] = None
            if self._indexed_ms is None or row.indexed_ms is None or row.committed_ms is None:
                continue
            if row.indexed_ms >= self._indexed_ms - LEEWAY_MS:
                known[seen] = max(answer.received_ms - row.committed_ms, 0)
                self._samples.append((answer.received_ms, known[seen] or 0))
        self._known = known
        self._indexed_ms = max(self._indexed_ms or 0, answer.newest_indexed_ms or 0)

    def of(self, key: str, version: int) -> int | None:
        """Return the latency (ms) of a row on the page. None if the row existed before this page was opened."""
        return self._known.get((key, version))

    def p50(self, now_ms: int) -> int | None:
        """Return the median latency (ms) of the rows that arrived in the last minute. None if there was none."""
        while self._samples and self._samples[0][0] < now_ms - MINUTE_MS:
            self._samples.popleft()
        return round(median(latency for _, latency in self._samples)) if self._samples else None
