"""The plan's steps as operators of Spark: routing, then one stateful operator per stage, all on opaque messages.

Every operator takes and gives rows (bucket, k, m): a message of `joins.steps.records`. So no column is converted
between Python and the JVM more than once, and one operator serves all steps of a stage. What an operator has nothing to
do with passes through it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from typing import Any

import pandas as pd
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from cdc.words.brokers import Brokers
from cdc.words.errors import UsageError
from joins.engine.buckets import bucket_numbers, bucket_of
from joins.engine.spark_filters import READS, filtered, from_arrow, to_arrow, without_hidden
from joins.query.plan import SINK, Assemble, Expression, KeyedJoin, Node, Plan, Step
from joins.steps.records import Message, RefusedRecord, dump, load
from joins.steps.route import Changed, LogReader, Router, Settled
from joins.steps.state import assemble_step, dump_star, joined_in, load_star
from joins.steps.truncation import mended
from joins.stores.kafka_log import past

MESSAGES = "bucket int, k binary, m binary"
_ARROW = pa.schema([("bucket", pa.int32()), ("k", pa.binary()), ("m", pa.binary())])
_CHUNK = 10_000
NOWHERE = Brokers("")  # of a log without markers, which nobody reads again


def dataflow(
    changes: DataFrame,
    plan: Plan,
    settled: Settled,
    partitions: int,
    servers: Brokers = NOWHERE,
    ends: Settled | None = None,
) -> DataFrame:
    """Rows of Kafka's source (topic, partition, offset, key, value) → whole rows and notices, as messages.

    `servers` of the log, which markers read again; `settled` and `ends` as in `joins.steps.route`. The result's
    `bucket` has no meaning. Called once per start; the number of partitions is frozen in the checkpoint.
    """
    if unordered := [str(source.table_id) for source in plan.sources if source.needs_latest]:
        raise UsageError(f"engine python can not order the log of {unordered[0]}", "use `engine: jvm` for this table")
    numbers = bucket_numbers(partitions)
    log = changes.select("topic", "partition", "offset", "key", "value").coalesce(partitions)
    if filtered(plan.nodes()):
        reads = without_hidden(log.mapInArrow(_reading(plan, settled, ends, servers), READS), plan.nodes())
        routed = reads.mapInArrow(_telling(plan, numbers), MESSAGES)
    else:
        routed = log.mapInArrow(_routing(plan, settled, ends, numbers, servers), MESSAGES)
    for stage in sorted({step.stage for step in plan.last.steps}):
        steps = {step.number: step for step in plan.last.steps if step.stage == stage}
        processor = StepProcessor(steps, numbers)
        routed = routed.groupBy("bucket").transformWithStateInPandas(processor, MESSAGES, "Append", "None")
    return routed


def _bucket(k: bytes, numbers: tuple[int, ...]) -> int:
    return numbers[0] if k[0] == SINK else bucket_of(k.decode("latin-1"), numbers)


def _in_spark(condition: Expression, node: Node, rows: Any) -> list[bool]:
    raise AssertionError(f"{node.alias}: filters are evaluated by Spark")


def _routing(
    plan: Plan, settled: Settled, ends: Settled | None, numbers: tuple[int, ...], servers: Brokers
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Records of the log → messages, of a plan without filters."""

    def route(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        router = Router(plan, _in_spark)
        for notices, changes in _changes(batches, LogReader(plan, settled, ends), servers):
            yield _arrow([*notices, *router.route(changes)], numbers)

    return route


def _reading(
    plan: Plan, settled: Settled, ends: Settled | None, servers: Brokers
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Records of the log → `READS`: messages, and what the nodes with filters read."""

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        router = Router(plan, _in_spark)
        those = filtered(router.nodes)
        for notices, changes in _changes(batches, LogReader(plan, settled, ends), servers):
            found = [one for change in changes for one in router.reads(change)]
            ready = [message for one in found if one.node not in those for message in router.tell(one)]
            yield to_arrow([*notices, *ready], [one for one in found if one.node in those])

    return read


def _telling(plan: Plan, numbers: tuple[int, ...]) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """`READS` without hidden rows → messages."""

    def tell(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        router = Router(plan, _in_spark)
        for batch in batches:
            ready, reads = from_arrow(batch)
            told = [dump(message) for read in reads for message in router.tell(read)]
            yield _stored([*ready, *told], numbers)

    return tell


def _changes(
    batches: Iterable[pa.RecordBatch], reader: LogReader, servers: Brokers
) -> Iterator[tuple[list[Message], list[Changed]]]:
    """Notices and changes of the log's records, a batch or a chunk at a time."""
    for batch in batches:
        changed: list[Changed] = []
        notices: list[Message] = []
        for topic, partition, offset, key, value in zip(*(c.to_pylist() for c in batch.columns), strict=True):
            found = reader.read(topic, partition, offset, key, value)
            if isinstance(found, Changed):
                changed.append(found)
            elif isinstance(found, RefusedRecord):
                notices.append(found.message())
            elif found is not None:  # it may stand for very many changes
                for some in _chunks(mended(reader, found, partial(past, servers, topic, partition, offset))):
                    yield [], some
        yield notices, changed


def _chunks(changes: Iterator[Changed]) -> Iterator[list[Changed]]:
    while some := list(islice(changes, _CHUNK)):
        yield some


def _arrow(messages: list[Message], numbers: tuple[int, ...]) -> pa.RecordBatch:
    return _stored([dump(message) for message in messages], numbers)


def _stored(messages: list[tuple[bytes, bytes]], numbers: tuple[int, ...]) -> pa.RecordBatch:
    buckets = pa.array([_bucket(k, numbers) for k, _ in messages], pa.int32())
    columns = [pa.array([message[i] for message in messages], pa.binary()) for i in range(2)]
    return pa.RecordBatch.from_arrays([buckets, *columns], schema=_ARROW)


class StepProcessor(StatefulProcessor):
    """The steps of one stage, for every key of a bucket; a key's state is one value of a map."""

    def __init__(self, steps: dict[int, Step], numbers: tuple[int, ...]) -> None:
        self.steps, self.numbers = steps, numbers

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.states = handle.getMapState("states", "k binary", "state binary")

    def close(self) -> None:
        pass

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[pd.DataFrame]:
        groups: dict[bytes, list[Message]] = {}
        passing: list[Message] = []
        for frame in rows:
            for k, m in zip(frame["k"], frame["m"], strict=True):
                message = load(bytes(k), bytes(m))
                if message.k[0] in self.steps:
                    groups.setdefault(message.k, []).append(message)
                else:
                    passing.append(message)
        yield from _frames(self._outputs(groups, passing), self.numbers)

    def _outputs(self, groups: dict[bytes, list[Message]], passing: list[Message]) -> Iterator[Message]:
        yield from passing
        for k, messages in groups.items():
            match self.steps[k[0]]:
                case KeyedJoin() as step:
                    yield from joined_in(step, k, messages, self._get, self._set)
                case Assemble() as step:
                    yield from self._assembled(step, k, messages)
                case step:
                    raise AssertionError(f"no step {type(step).__name__}")

    def _assembled(self, step: Assemble, k: bytes, messages: list[Message]) -> Iterable[Message]:
        before = self._get(k)
        star, told = assemble_step(step, k, None if before is None else load_star(before), messages)
        if (after := None if star is None else dump_star(star)) != before:
            self._set(k, after)
        return told

    def _get(self, k: bytes) -> bytes | None:
        found = self.states.getValue((bytearray(k),))
        return None if found is None else bytes(found[0])

    def _set(self, k: bytes, value: bytes | None) -> None:
        if value is None:
            self.states.removeKey((bytearray(k),))
        else:
            self.states.updateValue((bytearray(k),), (bytearray(value),))


def _frames(messages: Iterable[Message], numbers: tuple[int, ...]) -> Iterator[pd.DataFrame]:
    """Frames of at most a chunk of rows, so that a hot key's many rows never stand in memory at once."""
    chunk: list[Message] = []
    for message in messages:
        chunk.append(message)
        if len(chunk) == _CHUNK:
            yield _frame(chunk, numbers)
            chunk = []
    if chunk:
        yield _frame(chunk, numbers)


def _frame(messages: list[Message], numbers: tuple[int, ...]) -> pd.DataFrame:
    stored = [dump(message) for message in messages]
    columns = {
        "bucket": [_bucket(message.k, numbers) for message in messages],
        "k": [k for k, _ in stored],
        "m": [m for _, m in stored],
    }
    return pd.DataFrame(columns, columns=["bucket", "k", "m"]).astype({"bucket": "int32"})
