"""Handle the end of a benchmark: SIGTERM acts like Ctrl-C, so the benchmark stops the processes that it started."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from cdc.model.errors import TailorbirdError

_STOPS = (signal.SIGINT, signal.SIGTERM)
INTERRUPTED = 130


@contextmanager
def ended_once() -> Iterator[None]:
    """Raise KeyboardInterrupt for the first signal and ignore later ones, so that the servers can be stopped."""
    interrupted = False

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal interrupted
        if not interrupted:  # make and its callers may send the signal again
            interrupted = True
            raise KeyboardInterrupt

    before = {number: signal.signal(number, stop) for number in _STOPS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def end(main: Callable[[], int]) -> int:
    """Run a benchmark and return its exit code, or 130 if a signal ended it and the processes that it started.

    An expected error, such as a server that does not run, is one line."""
    with ended_once():
        try:
            return main()
        except KeyboardInterrupt:
            print("interrupted; all started processes are stopped", file=sys.stderr)
            return INTERRUPTED
        except TailorbirdError as error:
            print(error, file=sys.stderr)
            return error.exit_code
