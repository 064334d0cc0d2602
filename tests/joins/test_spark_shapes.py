"""The shapes of TPC-H and NEXMark, joins alone and grouped, through Spark with its state stores: DuckDB's answer."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from cdc.formats.debezium import to_envelope
from cdc.model.event import ChangeEvent, SourceInfo
from cdc.model.naming import change_topic
from joins.engine.spark_kernel import finished, kernel_flow
from joins.engine.spark_session import close_session, open_session
from joins.kernel.program import program_of
from joins.oracle.oracle import Rows
from joins.oracle.sql_oracle import Oracle
from joins.runtime.chunks import folded
from joins.runtime.records import ROW_GONE, ROW_PUT, SINK, load, values_of
from tests.joins import nexmark, tpch
from tests.joins.altering import table_id
from tests.joins.joincase import Case
from tests.joins.shapes import GROUPED, SHAPES, Shape, changes_of

pytestmark = pytest.mark.timeout(3600)

SCHEMA = "topic string, partition int, offset long, key binary, value binary"
PARTITIONS = 2
PER_BATCH = 100_000
Change = tuple[str, dict[str, Any] | None, dict[str, Any] | None]  # table, before and after
SEED = 4  # with this seed there are nations in ASIA


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    session = open_session("shapes", partitions=2, scratch=tmp_path_factory.mktemp("spark"))
    yield session
    close_session(session)


def case_of(shape: Shape) -> Case:
    return Case(tables=shape.tables, query=shape.query, row_key=shape.row_key, history=[])


def write_log(
    declared: dict[str, dict[str, Any]], changes: Iterable[Change], folder: Path, per_batch: int = PER_BATCH
) -> dict[Any, Rows]:
    """Write the log of tables, a file per batch; return the final tables."""
    folder.mkdir(parents=True)
    tables: dict[Any, Rows] = {table_id(name): {} for name in declared}
    offsets: dict[tuple[str, int], int] = {}
    columns: list[list[Any]] = [[], [], [], [], []]

    def flush(number: int) -> None:
        types = [pa.string(), pa.int32(), pa.int64(), pa.binary(), pa.binary()]
        names = ["topic", "partition", "offset", "key", "value"]
        arrays = [pa.array(column, type_) for column, type_ in zip(columns, types, strict=True)]
        pq.write_table(pa.table(dict(zip(names, arrays, strict=True))), folder / f"{number:04}.parquet")
        for column in columns:
            column.clear()

    number = 0
    for number, (name, before, after) in enumerate(changes, 1):
        table, row = table_id(name), after if after is not None else before
        assert row is not None
        source = SourceInfo(
            table_id=table, ts_ms=number, server_id=1, gtid=None, file="f", pos=number, row=0, sequence=number
        )
        op: Any = "c" if before is None else "d" if after is None else "u"
        event = ChangeEvent(op=op, before=before, after=after, source=source, ts_ms=number)
        at = tuple(row[column] for column in declared[name]["key"])
        partition = hash(at) % PARTITIONS
        topic = change_topic("law", table)
        offset = offsets.get((topic, partition), 0)
        offsets[topic, partition] = offset + 1
        made = (topic, partition, offset, json.dumps(at).encode(), orjson.dumps(to_envelope(event, "law")))
        for column, value in zip(columns, made, strict=True):
            column.append(value)
        if after is None:
            del tables[table][at]
        else:
            tables[table][at] = after
        if number % per_batch == 0:
            flush(number // per_batch)
    flush(number // per_batch + 1)
    return tables


def answer_of(case: Case, tables: dict[Any, Rows]) -> dict[tuple[Any, ...], dict[str, Any]]:
    oracle = Oracle(case.topology(), case.schemas())
    try:
        return oracle.answer(case.topology().tables["wide"], tuple(case.row_key), tables)
    finally:
        oracle.close()


def through_spark(
    spark: SparkSession, case: Case, log: Path, flow: Callable[[Callable[[tuple[str, ...]], DataFrame]], DataFrame]
) -> dict[tuple[Any, ...], dict[str, Any]]:
    """Return the stored table after all batches; within a batch a put beats a delete, as in the sink."""
    plan, live = case.plan(), dict[bytes, bytes]()

    def read(topics: tuple[str, ...]) -> DataFrame:
        stream = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(log))
        return stream.where(stream.topic.isin(*topics))

    def keep(rows: DataFrame, batch: int) -> None:
        # not toLocalIterator: Spark 4.2.0 keeps results of such jobs until the session ends
        messages = [load(bytes(row.k), bytes(row.m)) for row in rows.collect()]
        assert {message.op for message in messages} <= {ROW_PUT, ROW_GONE}
        if not plan.folds:  # as the sinks do
            messages = [message for part in folded(messages) for message in part]
        for message in messages:
            if message.op == ROW_GONE:
                live.pop(message.k, None)
        live.update((message.k, message.p) for message in messages if message.op == ROW_PUT)

    rows = finished(flow(read), plan, plan.last)
    writer = rows.writeStream.option("checkpointLocation", str(log.parent / "checkpoint")).foreachBatch(keep)
    writer.outputMode("append").trigger(availableNow=True).start().awaitTermination()
    assert all(k[0] == SINK for k in live)
    found = {}
    for p in live.values():
        values = values_of(p)
        row = {output.name: values[output.index] for output in plan.outputs}
        found[tuple(row[name] for name in plan.sink.row_key)] = row
    return found


def check(spark: SparkSession, shape: Shape, count: int, folder: Path, *, few: bool = False) -> None:
    case = case_of(shape)
    tables = write_log(shape.tables, changes_of(shape, count, SEED), folder / "log")
    expected = compare(spark, case, tables, folder)
    assert few or len(expected) > count / 10_000, "the conditions select almost nothing"


def compare(
    spark: SparkSession, case: Case, tables: dict[Any, Rows], folder: Path
) -> dict[tuple[Any, ...], dict[str, Any]]:
    """Compare the result of Spark with the answer of DuckDB, and return it."""
    expected, plan = answer_of(case, tables), case.plan()

    def flow(read: Callable[[tuple[str, ...]], DataFrame]) -> DataFrame:
        return kernel_flow(read, program_of(plan, {}), plan)

    found = through_spark(spark, case, folder / "log", flow)
    wrong = [key for key in expected.keys() | found.keys() if expected.get(key) != found.get(key)]
    assert expected
    assert wrong == [], [(key, expected.get(key), found.get(key)) for key in wrong[:3]]
    return expected


@pytest.mark.matrix
@pytest.mark.parametrize("query", tpch.QUERIES, ids=lambda query: query.name)
def test_tpch_at_a_hundred_thousand_changes(spark: SparkSession, query: tpch.Query, tmp_path: Path) -> None:
    """All 22 queries of TPC-H as they are written, in five batches of inserts, updates and deletes."""
    check_query(spark, query, tpch.TABLES, tpch.changes, tmp_path)


@pytest.mark.matrix
@pytest.mark.parametrize("query", nexmark.QUERIES, ids=lambda query: query.name)
def test_nexmark_at_a_hundred_thousand_changes(spark: SparkSession, query: tpch.Query, tmp_path: Path) -> None:
    """The queries of NEXMark, in five batches of inserts, updates and deletes."""
    check_query(spark, query, nexmark.TABLES, nexmark.changes, tmp_path)


def check_query(
    spark: SparkSession, query: tpch.Query, declared: dict[str, dict[str, Any]], made: Callable[..., Iterable[Change]],
    folder: Path,
) -> None:  # fmt: skip
    """Compare a query after a hundred thousand changes; something of its answer must be neither NULL nor a constant."""
    tables = query.of(declared)
    case = Case(tables=tables, query=query.text, row_key=query.key.split(", "), history=[])
    log = write_log(tables, made(tables, 100_000, random.Random(query.name)), folder / "log", 20_000)
    expected = compare(spark, case, log, folder)
    values = [value for row in expected.values() for value in row.values()]
    assert any(value not in (None, "all") for value in values), "the conditions select nothing"


@pytest.mark.matrix
@pytest.mark.parametrize("name", SHAPES)
def test_shape_at_a_million_changes(spark: SparkSession, name: str, tmp_path: Path) -> None:
    """A million inserts, updates, moves and deletes each."""
    check(spark, SHAPES[name], 1_000_000, tmp_path)


@pytest.mark.matrix
@pytest.mark.parametrize("name", GROUPED)
def test_groups_at_a_million_changes(spark: SparkSession, name: str, tmp_path: Path) -> None:
    """TPC-H and NEXMark with their aggregation, of a million inserts, updates, moves and deletes each."""
    check(spark, GROUPED[name], 1_000_000, tmp_path, few=True)


@pytest.mark.long
@pytest.mark.parametrize("name", ["tpch-q15", "tpch-q18", "tpch-q21", "nexmark-q5", "nexmark-q19"])
def test_groups_of_groups(spark: SparkSession, name: str, tmp_path: Path) -> None:
    """Groups that are joined back, used by IN or as a value, looked up by all rows; and the first rows of groups."""
    check(spark, GROUPED[name], 4000, tmp_path, few=True)


@pytest.mark.long
def test_shape_of_six_tables(spark: SparkSession, tmp_path: Path) -> None:
    """Q5 (six tables, four levels, a condition across branches) with WHERE and expressions."""
    check(spark, SHAPES["tpch-q5"], 20_000, tmp_path)
