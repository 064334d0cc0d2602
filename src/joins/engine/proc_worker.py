"""Measure how a Python worker of Spark writes rows to a sink, and keep the worker's memory small."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterable, Iterator
from functools import cache

import orjson
import pyarrow as pa

from joins.stores.sink_interfaces import Writer

_REPORT = "report"


@cache
def settle() -> None:
    """Exclude what the worker has loaded from garbage collection. Call it at the end of a task.

    pyspark collects after every task. Traversing the modules of pyspark, pyarrow and Tailorbird would cost half of the
    worker's time for a small batch.
    """
    gc.freeze()


def measured(write: Writer, clock_ns: Callable[[], int] = time.time_ns) -> Writer:
    """Return a writer whose report contains when the first rows arrived and how many bytes arrived."""

    def written(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        reached = size = 0

        def seen() -> Iterator[pa.RecordBatch]:
            nonlocal reached, size
            for batch in batches:
                if batch.num_rows and not reached:
                    reached = clock_ns()
                size += batch.nbytes
                yield batch

        reports = [one.as_py() for found in write(seen()) for one in found.column(_REPORT)]
        measures = {"reached_ns": reached, "bytes": size}
        yield pa.RecordBatch.from_arrays(
            [pa.array([orjson.dumps({**orjson.loads(one), **measures}) for one in reports], pa.binary())], [_REPORT]
        )
        settle()

    return written
