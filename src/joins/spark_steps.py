"""The plan's steps as operators of Spark: routing, the two stateful steps, all on opaque records.

Every operator takes and gives rows (bucket, record), a record being JSON of `joins.records`. So no column is converted
between Python and the JVM more than once, and one operator serves every hop. What an operator has nothing to do with
passes through it: refused records, how far sources came, and the facts on their way to the assembling step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pandas as pd
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from joins.buckets import bucket_numbers, bucket_of
from joins.plan import Plan
from joins.records import DimensionSeen, FactSeen, Part, Pointed, Record, dump_record, load_record
from joins.route import Router, Settled
from joins.state import assemble_step, dump_hop, dump_row, hop_step, load_hop, load_row

RECORDS = "bucket int, record binary"
_ARROW = pa.schema([("bucket", pa.int32()), ("record", pa.binary())])
_CHUNK = 10_000


def dataflow(changes: DataFrame, plan: Plan, settled: Settled, partitions: int) -> DataFrame:
    """Rows of Kafka's source (topic, partition, offset, key, value) → whole rows and notices, as records.

    Two stateful operators, hops and rows; only the second where the query joins nothing. The result's `bucket` has no
    meaning. Called once per start; the number of partitions is frozen in the checkpoint.
    """
    numbers = bucket_numbers(partitions)
    log = changes.select("topic", "partition", "offset", "key", "value").coalesce(partitions)
    routed = log.mapInArrow(_routing(plan, settled, numbers), RECORDS)
    if plan.joins:
        hops = HopProcessor(numbers)
        routed = routed.groupBy("bucket").transformWithStateInPandas(hops, RECORDS, "Append", "None")
    rows = RowProcessor(plan, numbers)
    return routed.groupBy("bucket").transformWithStateInPandas(rows, RECORDS, "Append", "None")


def _bucket(record: Record, numbers: tuple[int, ...]) -> int:
    """Where a record goes next: a hop's key, a row, or anywhere."""
    if isinstance(record, Pointed | DimensionSeen):
        return bucket_of(f"{record.hop}:{record.key}", numbers)
    if isinstance(record, FactSeen | Part):
        return bucket_of(record.row, numbers)
    return numbers[0]


def _routing(
    plan: Plan, settled: Settled, numbers: tuple[int, ...]
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def route(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        router = Router(plan, settled)
        for batch in batches:
            routed = [record for row in zip(*(c.to_pylist() for c in batch.columns), strict=True)
                      for record in router.route(*row)]  # fmt: skip
            yield _arrow(routed, numbers)

    return route


def _arrow(records: list[Record], numbers: tuple[int, ...]) -> pa.RecordBatch:
    buckets = [_bucket(record, numbers) for record in records]
    return pa.RecordBatch.from_arrays(
        [pa.array(buckets, pa.int32()), pa.array([dump_record(r) for r in records], pa.binary())], schema=_ARROW
    )


class _Processor(StatefulProcessor):
    """What both stateful operators share: state by key text in a map, frames in, frames out."""

    state_name: str

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.states = handle.getMapState(self.state_name, "key string", "state binary")

    def close(self) -> None:
        pass

    def stored(self, key: str) -> bytes | None:
        found = self.states.getValue((key,))
        return None if found is None else bytes(found[0])

    def store(self, key: str, before: bytes | None, after: bytes | None) -> None:
        """Write a key's state; nothing where nothing changed, since every call crosses to the JVM and back."""
        if after == before:
            return
        if after is None:
            self.states.removeKey((key,))
        else:
            self.states.updateValue((key,), (bytearray(after),))


class HopProcessor(_Processor):
    """`joins.state.hop_step` for every (hop, key) of a bucket."""

    state_name = "hops"

    def __init__(self, numbers: tuple[int, ...]) -> None:
        self.numbers = numbers

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[pd.DataFrame]:
        groups: dict[tuple[int, str], list[Pointed | DimensionSeen]] = {}
        passing: list[Record] = []
        for frame in rows:
            for stored in frame["record"]:
                record = load_record(stored)
                if isinstance(record, Pointed | DimensionSeen):
                    groups.setdefault((record.hop, record.key), []).append(record)
                else:
                    passing.append(record)
        yield from _frames(self._outputs(groups, passing), self.numbers)

    def _outputs(
        self, groups: dict[tuple[int, str], list[Pointed | DimensionSeen]], passing: list[Record]
    ) -> Iterator[Record]:
        yield from passing
        for (hop, key), records in groups.items():
            name = f"{hop}:{key}"
            before = self.stored(name)
            state, parts = hop_step(None if before is None else load_hop(before), records, hop, key)
            self.store(name, before, None if state is None else dump_hop(state))
            yield from parts


class RowProcessor(_Processor):
    """`joins.state.assemble_step` for every row of a bucket."""

    state_name = "rows"

    def __init__(self, plan: Plan, numbers: tuple[int, ...]) -> None:
        self.plan, self.numbers = plan.assemble, numbers
        names = [output.name for output in plan.assemble.outputs]
        self.row_key = tuple(names.index(name) for name in plan.sink.row_key)

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[pd.DataFrame]:
        groups: dict[str, list[FactSeen | Part]] = {}
        passing: list[Record] = []
        for frame in rows:
            for stored in frame["record"]:
                record = load_record(stored)
                if isinstance(record, FactSeen | Part):
                    groups.setdefault(record.row, []).append(record)
                else:
                    passing.append(record)
        yield from _frames(self._outputs(groups, passing), self.numbers)

    def _outputs(self, groups: dict[str, list[FactSeen | Part]], passing: list[Record]) -> Iterator[Record]:
        yield from passing
        for row, records in groups.items():
            before = self.stored(row)
            state, outputs = assemble_step(
                self.plan, self.row_key, None if before is None else load_row(before), records
            )
            self.store(row, before, None if state is None else dump_row(state))
            yield from outputs


def _frames(records: Iterable[Record], numbers: tuple[int, ...]) -> Iterator[pd.DataFrame]:
    """Frames of at most a chunk of rows, so that a hot key's many parts never stand in memory at once."""
    chunk: list[Record] = []
    for record in records:
        chunk.append(record)
        if len(chunk) == _CHUNK:
            yield _frame(chunk, numbers)
            chunk = []
    if chunk:
        yield _frame(chunk, numbers)


def _frame(records: list[Record], numbers: tuple[int, ...]) -> pd.DataFrame:
    return pd.DataFrame(
        {"bucket": [_bucket(r, numbers) for r in records], "record": [dump_record(r) for r in records]},
        columns=["bucket", "record"],
    ).astype({"bucket": "int32"})
