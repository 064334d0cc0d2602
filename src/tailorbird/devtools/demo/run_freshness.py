"""Measure freshness: the time from the return of COMMIT to the first query that shows the new version."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence

import structlog

from cdc.model.errors import Retriable

# Returns the visible versions of some keys. Raises Retriable while the search engine is unavailable.
LookUp = Callable[[Sequence[int]], Mapping[int, int]]
_log = structlog.get_logger()


class FreshnessMeter:
    """Queries an index in its own thread until every expected version is visible.

    It queries every `poll` seconds, so a sample may be too long by that much. With a much shorter interval, a small
    machine would spend its time on queries instead of indexing."""

    def __init__(self, look: LookUp, *, poll: float = 0.1) -> None:
        self._look, self._poll = look, poll
        self._lock = threading.Lock()
        self._waiting: dict[int, tuple[int, float]] = {}
        self._samples: list[float] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="freshness", daemon=True)

    def start(self) -> None:
        """Start querying."""
        self._thread.start()

    def stop(self) -> None:
        """Stop querying. Versions that are not visible yet give no sample."""
        self._stop.set()
        self._thread.join()

    def expect(self, key: int, version: int, committed: float) -> None:
        """Expect a version that was committed at that monotonic time. A key that is already expected keeps its
        sample."""
        with self._lock:
            self._waiting.setdefault(key, (version, committed))

    def forget(self, key: int) -> None:
        """Forget a removed row, whose version may never be shown."""
        with self._lock:
            self._waiting.pop(key, None)

    @property
    def waiting(self) -> int:
        """Return the number of versions that have not been shown yet."""
        return len(self._waiting)

    def samples_ms(self) -> list[int]:
        """Return all samples in milliseconds, in the order in which they were seen."""
        with self._lock:
            return [round(sample * 1000) for sample in self._samples]

    def _run(self) -> None:
        while not self._stop.wait(self._poll):
            with self._lock:
                keys = list(self._waiting)[:100]
            if not keys:
                continue
            try:
                found = self._look(keys)
            except Retriable as error:
                _log.warning("freshness: the index does not answer", error=error.message)
                self._stop.wait(1.0)
                continue
            self._see(found, time.monotonic())

    def _see(self, shown: Mapping[int, int], now: float) -> None:
        with self._lock:
            for key, version in shown.items():
                wanted = self._waiting.get(key)
                if wanted is not None and version >= wanted[0]:
                    self._samples.append(now - wanted[1])
                    del self._waiting[key]


def percentile(samples: list[int], share: float) -> int | None:
    """Return the value below which `share` of the samples are (nearest rank); None if there are none."""
    if not samples:
        return None
    ordered = sorted(samples)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]
