"""Inspect an executor's Python. This module imports only the standard library, so it works if all packages are
missing."""

from __future__ import annotations

import importlib.util
import socket
from collections.abc import Iterable, Iterator
from pathlib import Path

# what a task of either engine imports in addition to pyspark
_NEEDED = ("confluent_kafka", "happybase", "orjson", "pyarrow", "structlog", "thriftpy2")

Answer = tuple[str, bool, tuple[str, ...]]


def answer(mark: str, word: str, _: Iterable[int]) -> Iterator[Answer]:
    """Yield one answer: this host, whether it reads `word` in the file `mark`, and which packages it lacks."""
    try:
        sees = Path(mark).read_text() == word
    except OSError:
        sees = False
    yield socket.gethostname(), sees, tuple(name for name in _NEEDED if importlib.util.find_spec(name) is None)
