"""A Python worker of Spark: what it does once, however many tasks it runs.

`python -m joins.engine.workers.proc_worker` is pyspark's daemon, which forks the workers, with all that those of
`engine: python` import: each finds it there.
"""

from __future__ import annotations

import gc
import importlib
import os
from functools import cache

# no thread may run where processes are forked: numpy's and Arrow's allocator's begin as those are imported
ALONE = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "JE_ARROW_MALLOC_CONF": "background_thread:false"}
_NEEDED = ("pyspark.worker", "pyarrow.compute", "pandas", "joins.engine.spark_steps", "joins.engine.spark_query")


@cache
def settle() -> None:
    """Leave what the worker has loaded by now out of garbage collections. To be called at the end of a task.

    pyspark collects after every task, and to walk over all the modules of pyspark, pyarrow and ours costs half of what
    the worker does for a small batch.
    """
    gc.freeze()


def load() -> None:
    """Import what workers need, and leave it out of garbage collections: so its pages stay common to all of them."""
    os.environ.update(ALONE)
    gc.disable()
    for name in _NEEDED:
        importlib.import_module(name)
    gc.freeze()
    gc.enable()


if __name__ == "__main__":
    load()
    importlib.import_module("pyspark.daemon").manager()
