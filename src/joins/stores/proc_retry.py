"""Retry actions while a server is unavailable."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

import structlog

from cdc.model.errors import Retriable

T = TypeVar("T")
_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 5.0

log = structlog.get_logger()


def patiently(action: Callable[[], T], waiting: Callable[[Retriable, float], None], stopped: Callable[[], bool]) -> T:
    """Run an action until it succeeds, with growing pauses of up to 5 s.

    `waiting` is called with each Retriable and the pause that follows. Once `stopped`, the Retriable is raised. So a
    slow or restarting server delays a query, but never ends it."""
    pause = _FIRST_PAUSE
    while True:
        try:
            return action()
        except Retriable as error:
            if stopped():
                raise
            waiting(error, pause)
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)


def as_long_as_it_takes(action: Callable[[], T]) -> T:
    """Run an action in a Spark task until it succeeds. Spark kills the worker when the query stops."""
    return patiently(action, report_waiting, lambda: False)


def report_waiting(error: Retriable, pause: float) -> None:
    """Log the reason for waiting."""
    log.warning("waiting", reason=error.message, again_in_seconds=round(pause, 1))
