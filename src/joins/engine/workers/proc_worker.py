"""Prepare a Python worker of Spark once, for all its tasks.

`python -m joins.engine.workers.proc_worker` replaces pyspark's daemon, which forks the workers. It imports what
workers of `engine: python` need before it forks."""

from __future__ import annotations

import gc
import importlib
import os
from functools import cache

# no thread may run where processes are forked: these disable the threads that numpy and Arrow start on import
ALONE = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "JE_ARROW_MALLOC_CONF": "background_thread:false"}
_NEEDED = ("pyspark.worker", "pyarrow.compute", "pandas", "joins.engine.spark_steps", "joins.engine.spark_query")


@cache
def settle() -> None:
    """Exclude all objects loaded so far from garbage collection. Call it at the end of a task.

    pyspark collects garbage after every task. Traversing the modules of pyspark, pyarrow and Tailorbird would cost
    half of the worker's time for a small batch."""
    gc.freeze()


def load() -> None:
    """Import what workers need, and exclude it from garbage collection, so that forked workers share the memory
    pages."""
    os.environ.update(ALONE)
    gc.disable()
    for name in _NEEDED:
        importlib.import_module(name)
    gc.freeze()
    gc.enable()


if __name__ == "__main__":
    load()
    importlib.import_module("pyspark.daemon").manager()
