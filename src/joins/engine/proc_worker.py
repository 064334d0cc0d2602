"""Prepare a Python worker of Spark once, however many tasks it runs."""

from __future__ import annotations

import gc
from functools import cache


@cache
def settle() -> None:
    """Exclude what the worker has loaded from garbage collection. Call it at the end of a task.

    pyspark collects after every task. Traversing the modules of pyspark, pyarrow and Tailorbird would cost half of the
    worker's time for a small batch.
    """
    gc.freeze()
