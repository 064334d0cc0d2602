"""Apply the filters of nodes for the Python engine. Spark evaluates them, because Python cannot.

Routing has three parts if a node has a filter. Python reads the envelopes. The JVM evaluates the conditions over the
before and after image of each change. Python makes messages of the images that pass. Rows that no node needs do not
return to Python."""

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

# Either a finished message (k, m) or what a filtered node reads; images are JSON arrays.
READS = (
    "k binary, m binary, node int, before string, after string, v bigint, ts_ms bigint, reported boolean, new boolean, "
    "repairs boolean, blind boolean, trace binary"
)
_ARROW = pa.schema(
    [
        ("k", pa.binary()), ("m", pa.binary()), ("node", pa.int32()), ("before", pa.string()), ("after", pa.string()),
        ("v", pa.int64()), ("ts_ms", pa.int64()), ("reported", pa.bool_()), ("new", pa.bool_()),
        ("repairs", pa.bool_()), ("blind", pa.bool_()), ("trace", pa.binary()),
    ]
)  # fmt: skip
_NO_MESSAGE, _NO_READ = (None, None), (None,) * 10


def filtered(nodes: Sequence[Node]) -> frozenset[int]:
    """Return the numbers of the nodes that have a filter."""
    return frozenset(number for number, node in enumerate(nodes) if node.filter is not None)


def without_hidden(reads: DataFrame, nodes: Sequence[Node]) -> DataFrame:
    """Return rows of the schema `READS` without the images that fail their node's filter. Rows without any image are
    dropped."""
    columns = reads.columns
    opened = reads.selectExpr("*", *(f"from_json({name}, 'array<string>') AS {name}s" for name in ("before", "after")))
    before = f"CASE WHEN blind OR {_holds(nodes, 'befores')} THEN before END AS before"
    after = f"CASE WHEN {_holds(nodes, 'afters')} THEN after END AS after"
    kept = [name for name in columns if name not in ("before", "after")]
    left = opened.selectExpr(*kept, before, after).where("k IS NOT NULL OR before IS NOT NULL OR after IS NOT NULL")
    return left.select(*columns)


def _holds(nodes: Sequence[Node], values: str) -> str:
    """Return SQL that is true for an image that passes the filter of its node."""
    conditions = [(n, predicate(f, values, node.types)) for n, node in enumerate(nodes) if (f := node.filter)]
    # only CASE prevents a condition from being evaluated over another node's values
    return f"CASE node {' '.join(f'WHEN {n} THEN {condition}' for n, condition in conditions)} ELSE FALSE END"


def to_arrow(messages: Iterable[Message], reads: Iterable[Read]) -> pa.RecordBatch:
    """Convert messages, and reads of filtered nodes, to rows of the schema `READS`."""
    rows: list[tuple[Any, ...]] = [(*dump(message), *_NO_READ) for message in messages]
    rows += [(*_NO_MESSAGE, read.node, _text(read.before), _text(read.after), *read[3:]) for read in reads]
    columns = list(zip(*rows, strict=True)) or [()] * len(_ARROW)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, _ARROW, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_ARROW)


def from_arrow(batch: pa.RecordBatch) -> tuple[list[tuple[bytes, bytes]], list[Read]]:
    """Convert rows of the schema `READS` back. Messages stay serialized."""
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
