"""How a benchmark ends: SIGTERM as Ctrl-C does, so that it stops what it started."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_STOPS = (signal.SIGINT, signal.SIGTERM)
INTERRUPTED = 130


@contextmanager
def ended_once() -> Iterator[None]:
    """Within, the first of these signals is a KeyboardInterrupt, later ones are nothing: servers are stopped."""
    came = False

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal came
        if not came:  # make and its callers may pass the signal on again
            came = True
            raise KeyboardInterrupt

    before = {number: signal.signal(number, stop) for number in _STOPS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def end(main: Callable[[], int]) -> int:
    """The exit code of a benchmark: its own, or 130 where a signal ended it, and everything it started."""
    with ended_once():
        try:
            return main()
        except KeyboardInterrupt:
            print("interrupted; what was started is stopped", file=sys.stderr)
            return INTERRUPTED
