"""Measure what a call costs, independent of the machine: executed lines of Python, and the most memory that it adds."""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any


@dataclass(slots=True)
class Work:
    """Executed lines, and bytes of memory: a copy of a large collection runs few lines, but needs memory."""

    lines: int = 0
    bytes: int = 0


@contextmanager
def measured() -> Iterator[Work]:
    """Count the lines that functions execute which are called in the block."""
    work, before = Work(), sys.gettrace()

    def trace(frame: FrameType, what: str, _: Any) -> Any:
        work.lines += what == "line"
        return trace

    tracemalloc.start()
    at = tracemalloc.get_traced_memory()[0]
    tracemalloc.reset_peak()
    sys.settrace(trace)
    try:
        yield work
    finally:
        sys.settrace(before)
        work.bytes = tracemalloc.get_traced_memory()[1] - at
        tracemalloc.stop()
