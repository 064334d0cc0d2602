"""Filters of the Python engine: what its nodes read of the log, less what their conditions hide, evaluated by Spark.

Python has no evaluator that means what Spark means. So routing is cut in two where a node has a filter: Python reads
the envelopes, the JVM evaluates the conditions over both images of each change, and Python makes the messages of what
is left. Rows that are hidden do not come back to Python.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import orjson
import pyarrow as pa
from pyspark.sql import DataFrame

from joins.engine.spark_expressions import predicate
from joins.query.nodes import Node
from joins.steps.records import Message, Values, dump
from joins.steps.route import Read

# A message that is ready (k, m), or else what a filtered node reads; images are JSON arrays.
READS = (
    "k binary, m binary, node int, before string, after string, v bigint, ts_ms bigint, told boolean, new boolean, "
    "mends boolean, blind boolean, trace binary"
)
_ARROW = pa.schema(
    [
        ("k", pa.binary()), ("m", pa.binary()), ("node", pa.int32()), ("before", pa.string()), ("after", pa.string()),
        ("v", pa.int64()), ("ts_ms", pa.int64()), ("told", pa.bool_()), ("new", pa.bool_()),
        ("mends", pa.bool_()), ("blind", pa.bool_()), ("trace", pa.binary()),
    ]
)  # fmt: skip
_NO_MESSAGE, _NO_READ = (None, None), (None,) * 10


def filtered(nodes: Sequence[Node]) -> frozenset[int]:
    """The numbers of the nodes that have a filter."""
    return frozenset(number for number, node in enumerate(nodes) if node.filter is not None)


def without_hidden(reads: DataFrame, nodes: Sequence[Node]) -> DataFrame:
    """Rows of `READS` without the images that do not satisfy their node's filter, and without the rows left empty."""
    columns = reads.columns
    opened = reads.selectExpr("*", *(f"from_json({name}, 'array<string>') AS {name}s" for name in ("before", "after")))
    before = f"CASE WHEN blind OR {_holds(nodes, 'befores')} THEN before END AS before"
    after = f"CASE WHEN {_holds(nodes, 'afters')} THEN after END AS after"
    kept = [name for name in columns if name not in ("before", "after")]
    left = opened.selectExpr(*kept, before, after).where("k IS NOT NULL OR before IS NOT NULL OR after IS NOT NULL")
    return left.select(*columns)


def _holds(nodes: Sequence[Node], values: str) -> str:
    """SQL of a condition that holds for an image which its node lets pass."""
    conditions = [(n, predicate(f, values, node.types)) for n, node in enumerate(nodes) if (f := node.filter)]
    # no other form keeps a condition from being evaluated over another node's values
    return f"CASE node {' '.join(f'WHEN {n} THEN {condition}' for n, condition in conditions)} ELSE FALSE END"


def to_arrow(messages: Iterable[Message], reads: Iterable[Read]) -> pa.RecordBatch:
    """Messages and reads as rows of `READS`."""
    rows: list[tuple[Any, ...]] = [(*dump(message), *_NO_READ) for message in messages]
    rows += [(*_NO_MESSAGE, read.node, _text(read.before), _text(read.after), *read[3:]) for read in reads]
    columns = list(zip(*rows, strict=True)) or [()] * len(_ARROW)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, _ARROW, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_ARROW)


def from_arrow(batch: pa.RecordBatch) -> tuple[list[tuple[bytes, bytes]], list[Read]]:
    """Inverse of `to_arrow`, the messages as they are stored."""
    messages: list[tuple[bytes, bytes]] = []
    reads: list[Read] = []
    for k, m, node, before, after, *rest in zip(*(c.to_pylist() for c in batch.columns), strict=True):
        if k is not None:
            messages.append((k, m))
        else:
            reads.append(Read(node, _values(before), _values(after), *rest))
    return messages, reads


def _text(values: Values | None) -> str | None:
    return None if values is None else orjson.dumps(values).decode()


def _values(text: str | None) -> Values | None:
    values: Values | None = None if text is None else orjson.loads(text)
    return values
