"""Convert Arrow batches from Spark to messages for the sink, and the sink's report to Arrow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict

import orjson
import pyarrow as pa

from joins.runtime.records import Message, load
from joins.runtime.sink import Report


def messages_of(batches: Iterable[pa.RecordBatch]) -> Iterator[list[Message]]:
    """Yield lists of messages for the sink, one per Arrow batch."""
    for arrived in batches:
        columns = (arrived.column("k").to_pylist(), arrived.column("m").to_pylist())
        yield [load(k, m) for k, m in zip(*columns, strict=True)]


def report_batch(report: Report) -> pa.RecordBatch:
    """Return a partition's report as one row of one column, `report`."""
    return pa.RecordBatch.from_pydict({"report": pa.array([orjson.dumps(asdict(report))], pa.binary())})
