"""Convert the batches that Spark sends to a Python worker to messages at the sink, and return the report."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict

import orjson
import pyarrow as pa

from joins.steps.records import Message, load
from joins.steps.sink import Report


def messages_of(batches: Iterable[pa.RecordBatch]) -> Iterator[list[Message]]:
    """Yield the messages at the sink as they arrive."""
    for arrived in batches:
        columns = (arrived.column("k").to_pylist(), arrived.column("m").to_pylist())
        yield [load(k, m) for k, m in zip(*columns, strict=True)]


def report_batch(report: Report) -> pa.RecordBatch:
    """Return a partition's report as one row of one column, `report`."""
    return pa.RecordBatch.from_pydict({"report": pa.array([orjson.dumps(asdict(report))], pa.binary())})
