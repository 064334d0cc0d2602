"""Wait for another process."""

from __future__ import annotations

import time
from collections.abc import Callable


def wait_for(condition: Callable[[], object], otherwise: str, seconds: float = 480) -> None:
    """Wait until a condition holds; raise AssertionError with `otherwise` after so many seconds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{otherwise} (within {seconds:.0f} s)"
        time.sleep(0.05)
