"""Run the steps of a plan in Python, as Spark operators on serialized messages.

A fragment has a routing operator, one stateful operator per stage, and two for its grouping. Every operator takes
and returns rows (bucket, k, m) with a message of `joins.steps.records`. So data is converted between Python and the
JVM only once per operator, and one operator serves all steps of a stage. Messages for other steps pass through."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial, reduce
from itertools import islice
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from cdc.model.brokers import Brokers
from cdc.model.errors import UsageError
from joins.engine.buckets import bucket_numbers
from joins.engine.spark_filters import READS, filtered, from_arrow, to_arrow, without_hidden
from joins.engine.spark_kernel import finished
from joins.engine.stage import CHUNK, Grouped, Paired, Stage, StageWork, bucket_at
from joins.engine.workers.spark_processor import StepProcessor
from joins.query.nodes import Derived, Expression, Node, Pair, PlanSource
from joins.query.plan import Fragment, Plan
from joins.steps.change_detector import receivers_of
from joins.steps.contributions import combined
from joins.steps.records import PARTIAL, REFUSED, TRUNCATION_POINT, Message, RefusedRecord, dump, load, picked
from joins.steps.route import Changed, LogReader, Router, SafeOffsets
from joins.steps.truncation import repaired
from joins.stores.kafka_log import past

MESSAGES = "bucket int, k binary, m binary"
_ARROW = pa.schema([("bucket", pa.int32()), ("k", pa.binary()), ("m", pa.binary())])
NOWHERE = Brokers("")  # for a log without markers, which is never read again
Batches = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def dataflow(
    read: Callable[[tuple[str, ...]], DataFrame],
    plan: Plan,
    settled: SafeOffsets,
    partitions: int,
    servers: Brokers = NOWHERE,
    ends: SafeOffsets | None = None,
) -> DataFrame:
    """Convert Kafka records (topic, partition, offset, key, value) to messages for the sink.

    They are whole rows, deletes, dead letters and truncation points.

    - `read(topics)` returns the records of topics. It is called once per fragment that reads tables (see `readers`).
    - `servers`: the brokers, from which partitions are read again for markers.
    - `settled`, `ends`: see `joins.steps.route`.

    Call it once per start. The checkpoint fixes the number of partitions. The `bucket` of the result has no meaning."""
    if unordered := [str(source.table_id) for source in plan.sources if source.needs_latest]:
        raise UsageError(f"engine python can not order the log of {unordered[0]}", "use `engine: jvm` for this table")
    numbers = bucket_numbers(partitions)
    arrived: dict[int, list[DataFrame]] = {fragment.number: [] for fragment in plan.fragments}
    noticed: frozenset[str] = frozenset()
    for fragment in plan.fragments:
        come = arrived[fragment.number]
        if topics := topics_of(fragment):
            reading = _Reading(plan, fragment, settled, ends, servers, noticed)
            come.append(_routed(read(topics), reading, partitions, numbers))
            noticed |= {*topics}
        rows = _joined(reduce(DataFrame.unionAll, come), plan, fragment, numbers)
        if fragment is plan.last:
            return rows
        rows = _bucketed(finished(rows.select("k", "m"), plan, fragment), numbers)
        if (group := fragment.group) is not None:
            rows = _through(rows, {group.change_detector: group}, numbers)
            rows = _through(rows, {group.number: Grouped(group, fragment.target, plan.sink.table)}, numbers)
        elif fragment.picks is not None or fragment.tag is not None:
            rows = rows.mapInArrow(_picking(fragment, numbers), MESSAGES)
        arrived[plan.reader(fragment).number].append(rows)
    raise AssertionError("a plan has a last fragment")


def topics_of(fragment: Fragment) -> tuple[str, ...]:
    """Return the topics that a fragment reads, each once, sorted."""
    sources = (node.source for node in fragment.root.walk())
    return tuple(sorted({source.topic for source in sources if isinstance(source, PlanSource)}))


def readers(plan: Plan) -> int:
    """Return the number of fragments that read Kafka. Each is a separate Spark source."""
    return sum(1 for fragment in plan.fragments if topics_of(fragment))


def _joined(rows: DataFrame, plan: Plan, fragment: Fragment, numbers: tuple[int, ...]) -> DataFrame:
    """Pass messages through the stateful steps of a fragment: stage by stage, or through its many-to-many join."""
    if receivers := receivers_of(fragment):
        rows = _through(rows, receivers, numbers)
    if isinstance(pair := fragment.root, Pair):
        rows = _through(rows, {pair.number: Paired(pair, fragment.outlet, plan.sink.table)}, numbers)
    for stage in sorted({step.stage for step in fragment.steps}):
        rows = _through(rows, {step.number: step for step in fragment.steps if step.stage == stage}, numbers)
    return rows


def _through(rows: DataFrame, stage: Stage, numbers: tuple[int, ...]) -> DataFrame:
    processor = StepProcessor(StageWork(stage, numbers))
    return rows.groupBy("bucket").transformWithStateInPandas(processor, MESSAGES, "Append", "None")


def _bucketed(rows: DataFrame, numbers: tuple[int, ...]) -> DataFrame:
    """Add the bucket to rows (k, m), computed in Spark SQL like `bucket_at`."""
    place = f"CAST(crc32(encode(decode(k, 'ISO-8859-1'), 'UTF-8')) % {len(numbers)} AS INT) + 1"
    found = f"element_at(array({', '.join(map(str, numbers))}), {place})"
    return rows.selectExpr(f"IF(substring(k, 1, 1) = X'FF', {numbers[0]}, {found}) AS bucket", "k", "m")


@dataclass(frozen=True, slots=True)
class _Reading:
    """Reads Kafka records for one fragment. Dead letters of topics in `noticed` are emitted by another fragment.

    `settled` and `ends`: see `joins.steps.route`."""

    plan: Plan
    fragment: Fragment
    settled: SafeOffsets
    ends: SafeOffsets | None
    servers: Brokers
    noticed: frozenset[str]

    def router(self) -> Router:
        """Return the router that converts changes to messages of this fragment."""
        return Router(self.fragment, _in_spark, self.plan.first_node(self.fragment))

    def beginnings(self) -> list[Message]:
        """Return the messages for groups that exist without rows: a query without GROUP BY always has one group."""
        found: list[Message] = []
        for fragment in self.plan.fragments:
            first = min(one.number for one in _below(self.plan, fragment) if topics_of(one))
            if fragment.group is not None and first == self.fragment.number:
                found += combined(fragment.group, ())
        return found

    def changes(self, batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[list[Message], list[Changed]]]:
        """Yield (dead letters and truncation points, changes) of the records, in parts of limited size."""
        reader = LogReader(self.plan, self.settled, self.ends)
        yield self.beginnings(), []
        for batch in batches:
            changed: list[Changed] = []
            notices: list[Message] = []
            for topic, partition, offset, key, value in zip(*(c.to_pylist() for c in batch.columns), strict=True):
                found = reader.read(topic, partition, offset, key, value)
                if isinstance(found, Changed):
                    changed.append(found)
                elif isinstance(found, RefusedRecord):
                    notices += [found.message()] if topic not in self.noticed else []
                elif found is not None:  # a marker may expand to very many changes
                    before = partial(past, self.servers, topic, partition, offset)
                    for some in _chunks(repaired(reader, found, before)):
                        yield [], some
            yield notices, changed


def _below(plan: Plan, fragment: Fragment) -> Iterator[Fragment]:
    """Yield a fragment, and the fragments whose rows it receives, directly or indirectly."""
    yield fragment
    for node in fragment.root.walk():
        if isinstance(node.source, Derived):
            for number in node.source.fragments:
                yield from _below(plan, plan.fragments[number])


def _chunks(changes: Iterator[Changed]) -> Iterator[list[Changed]]:
    while some := list(islice(changes, CHUNK)):
        yield some


def _in_spark(condition: Expression, node: Node, rows: Any) -> list[bool]:
    raise AssertionError(f"{node.alias}: filters are evaluated by Spark")


def _routed(changes: DataFrame, reading: _Reading, partitions: int, numbers: tuple[int, ...]) -> DataFrame:
    """Convert Kafka records to messages."""
    log = changes.select("topic", "partition", "offset", "key", "value").coalesce(partitions)
    nodes = reading.router().nodes
    if filtered(nodes):
        reads = without_hidden(log.mapInArrow(_reads(reading), READS), nodes)
        return reads.mapInArrow(_reporting(reading, numbers), MESSAGES)
    return log.mapInArrow(_routing(reading, numbers), MESSAGES)


def _routing(reading: _Reading, numbers: tuple[int, ...]) -> Batches:
    """Return the function that converts Kafka records to messages, for nodes without filters."""

    def route(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        router = reading.router()
        for notices, changes in reading.changes(batches):
            yield _stored([dump(message) for message in (*notices, *router.route(changes))], numbers)

    return route


def _reads(reading: _Reading) -> Batches:
    """Return the function that converts Kafka records to the schema `READS`, for nodes with filters."""

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        router = reading.router()
        those = filtered(router.nodes)
        for notices, changes in reading.changes(batches):
            found = [one for change in changes for one in router.reads(change)]
            ready = [message for one in found if one.node not in those for message in router.report(one)]
            yield to_arrow([*notices, *ready], [one for one in found if one.node in those])

    return read


def _reporting(reading: _Reading, numbers: tuple[int, ...]) -> Batches:
    """Return the function that converts rows of the schema `READS`, after filtering, to messages."""

    def report(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        router = reading.router()
        for batch in batches:
            ready, reads = from_arrow(batch)
            reported = [dump(message) for read in reads for message in router.report(read)]
            yield _stored([*ready, *reported], numbers)

    return report


def _picking(fragment: Fragment, numbers: tuple[int, ...]) -> Batches:
    """Return the function that converts a fragment's rows to the values that their reader expects.

    Dead letters and truncation points pass unchanged."""

    def pick(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            messages = [load(k, m) for k, m in zip(*(batch[name].to_pylist() for name in ("k", "m")), strict=True)]
            reported = [
                message
                if message.op in (REFUSED, TRUNCATION_POINT, PARTIAL)
                else picked(message, fragment.picks, fragment.tag)
                for message in messages
            ]
            yield _stored([dump(message) for message in reported], numbers)

    return pick


def _stored(messages: list[tuple[bytes, bytes]], numbers: tuple[int, ...]) -> pa.RecordBatch:
    buckets = pa.array([bucket_at(k, numbers) for k, _ in messages], pa.int32())
    columns = [pa.array([message[i] for message in messages], pa.binary()) for i in range(2)]
    return pa.RecordBatch.from_arrays([buckets, *columns], schema=_ARROW)
