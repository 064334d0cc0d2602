"""Wait for another process."""

from __future__ import annotations

import time
from collections.abc import Callable


def wait_for(condition: Callable[[], object], otherwise: str, seconds: float = 480) -> None:
    """Wait until a condition holds; raise AssertionError with `otherwise` after so many seconds.

    A condition that takes long is checked less often, as it slows down the processes that it waits for.
    """
    deadline = time.monotonic() + seconds
    while True:
        begun = time.monotonic()
        if condition():
            return
        assert time.monotonic() < deadline, f"{otherwise} (within {seconds:.0f} s)"
        time.sleep(min(1.0, max(0.05, 2 * (time.monotonic() - begun))))
