"""A Python worker of Spark: what it does once, however many tasks it runs."""

from __future__ import annotations

import gc
from functools import cache


@cache
def settle() -> None:
    """Leave what the worker has loaded by now out of garbage collections. To be called at the end of a task.

    pyspark collects after every task, and to walk over all the modules of pyspark, pyarrow and ours costs half of what
    the worker does for a small batch.
    """
    gc.freeze()
