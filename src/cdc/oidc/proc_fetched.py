"""A value of a server that is fetched when it is needed, by one thread at a time, and not again and again."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from cdc.model.errors import Retriable, UsageError

T = TypeVar("T")


class FetchRunning(Retriable):
    """Another thread fetches the value at this moment."""


class Fetched(Generic[T]):
    """A value that `fetch` returns. Thread-safe.

    `again` is the least time between two attempts, also between failed ones. A value older than `fresh` is fetched
    again before it is used. Both are in seconds of the clock `now`. No thread waits for another one's attempt."""

    def __init__(
        self, what: str, fetch: Callable[[], T], now: Callable[[], float], *, again: float, fresh: float = math.inf
    ) -> None:
        self._what, self._fetch, self._now, self._again, self._fresh = what, fetch, now, again, fresh
        self._lock = threading.Lock()  # never held during `fetch`
        self._value: T | None = None
        self._got = self._tried = -math.inf
        self._error: Retriable | UsageError | None = None  # of the last attempt
        self._running = False

    def value(self) -> T:
        """Return the value. Raises the error of the last attempt if that was a short time ago, and FetchRunning while
        another thread fetches the first value."""
        with self._lock:
            age = self._now() - self._got
            # while another thread fetches, an old value is good for a little longer
            if self._value is not None and age <= self._fresh + (self._again if self._running else 0):
                return self._value
            self._begin()
        return self._fetch_now()

    def newer(self) -> T | None:
        """Fetch the value again and return it. Return None if the last success was a short time ago."""
        with self._lock:
            if self._error is None and not self._running and self._recently():
                return None
            self._begin()
        return self._fetch_now()

    def _recently(self) -> bool:
        return 0 <= self._now() - self._tried < self._again

    def _begin(self) -> None:
        if self._running:
            raise FetchRunning(f"{self._what}: being fetched", "try again in a moment")
        if self._error is not None and self._recently():
            raise type(self._error)(self._error.message, self._error.hint)
        self._running, self._tried = True, self._now()

    def _fetch_now(self) -> T:
        found, tried = None, self._tried
        error: Retriable | UsageError | None = Retriable(f"{self._what}: the last attempt failed")
        try:
            found = self._fetch()
            error = None
        except FetchRunning:  # of another value that this one needs: there was no attempt
            error, tried = None, -math.inf
            raise
        except (Retriable, UsageError) as failed:
            error = type(failed)(failed.message, failed.hint)
            raise
        finally:
            with self._lock:
                self._running, self._error, self._tried = False, error, tried
                if found is not None:
                    self._value, self._got = found, self._now()
        return found
