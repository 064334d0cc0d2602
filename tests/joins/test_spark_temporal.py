"""Conditions on the time in Spark: each batch leaves the SELECT at its clock, without changes, and after crashes."""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from cdc.model.schema import TableId
from joins.engine.file_checkpoint import clock_of, planned
from joins.engine.spark_by_time import set_up_by_time
from joins.engine.spark_kernel import finished, kernel_flow
from joins.engine.spark_session import close_session, open_session
from joins.kernel.program import program_of
from joins.oracle.oracle import Rows
from joins.oracle.sql_oracle import Oracle
from joins.runtime.records import ROW_GONE, load, values_of
from tests.joins.joincase import Case
from tests.joins.temporalrandom import TABLES
from tests.joins.test_spark_shapes import SCHEMA, Change, write_log

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]
LATEST = 5000  # milliseconds from the first batch to the latest time of a row
ORDERS = {"shop.orders": TABLES["shop.orders"]}
QUERIES = {
    "plain": ("SELECT o.id, o.amount FROM shop.orders o WHERE o.created_at > now() - INTERVAL 2 SECOND", "id"),
    "both ends": (
        "SELECT o.id FROM shop.orders o WHERE now() BETWEEN o.created_at AND o.created_at + INTERVAL 1500 MILLISECOND",
        "id",
    ),
    "grouped": (
        "SELECT o.status, count(*) AS n, sum(o.amount) AS s FROM shop.orders o"
        " WHERE o.created_at >= now() - INTERVAL 2 SECOND AND o.amount > 1 GROUP BY o.status HAVING count(*) > 1",
        "status",
    ),
    "silent": (
        "SELECT o.customer_id, max(o.created_at) AS last FROM shop.orders o GROUP BY o.customer_id"
        " HAVING max(o.created_at) < now() - INTERVAL 1 SECOND",
        "customer_id",
    ),
}


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    session = open_session("temporal", partitions=2, scratch=tmp_path_factory.mktemp("spark"))
    yield session
    close_session(session)


class Died(Exception):
    """Raised between a batch's writes and its commit, to simulate a crash of the driver."""


def text_of(milliseconds: float) -> str:
    whole, part = divmod(round(milliseconds), 1000)
    text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(whole))
    return (f"{text}.{part:03}".rstrip("0") if part else text) + "Z"


def changes(seed: int, count: int) -> list[Change]:
    """Return inserts, updates and deletes of rows whose time is near the present."""
    chance, known = random.Random(seed), dict[int, dict[str, Any]]()
    began, found = time.time() * 1000, list[Change]()
    while len(found) < count:
        key, before = (number := chance.randint(1, 60)), known.get(number)
        if before is not None and chance.random() < 0.2:
            found.append(("shop.orders", known.pop(key), None))
            continue
        at = text_of(began + chance.randint(-1500, LATEST)) if chance.random() < 0.95 else None
        row = {
            "id": key, "customer_id": chance.choice([None, 1, 2, 3]), "status": chance.choice(["a", "b"]),
            "amount": f"{chance.randint(0, 9)}.50", "created_at": at, "day": None,
        }  # fmt: skip
        found.append(("shop.orders", before, row))
        known[key] = row
    return found


class Run:
    """A history through Spark, a file per batch. Each batch is compared with DuckDB's answer at the batch's clock.

    `deaths`: the batches after whose writes the driver dies."""

    def __init__(self, spark: SparkSession, name: str, folder: Path, deaths: frozenset[int] = frozenset()) -> None:
        query, key = QUERIES[name]
        self.case = Case(tables=ORDERS, query=query, row_key=key.split(", "), history=[])
        self.spark, self.plan, self.deaths, self.folder = spark, self.case.plan(), set(deaths), folder
        self.log, self.checkpoint = folder / "log", folder / "checkpoint"
        self.per_file = 40
        row = {"customer_id": 1, "status": "a", "amount": "1.50", "created_at": None, "day": None}
        self.made: list[Change] = [("shop.orders", None, {"id": 100 + n, **row}) for n in range(self.per_file)]
        self.publish()
        self.oracle = Oracle(self.case.topology(), self.case.schemas())
        self.live: dict[bytes, list[Any]] = {}
        self.clocks: dict[int, set[int]] = {}
        self.sizes: list[int] = []
        self.died, self.failure, self.ends = False, "", float("inf")

    def publish(self) -> None:
        """Write the files of the changes that are not in the log yet."""
        staging = self.folder / f"staging-{len(self.made)}"
        write_log(ORDERS, self.made, staging, self.per_file)
        self.log.mkdir(exist_ok=True)
        for number, file in enumerate(sorted(staging.glob("*.parquet"))):
            if not (self.log / file.name).exists() and number < len(self.made) // self.per_file:
                os.utime(file, (1000 + number, 1000 + number))  # Spark reads files in the order of their times
                file.rename(self.log / file.name)

    def run(self) -> Run:
        """Run until the driver has died often enough and no row waits for its time, restarting after each crash."""
        end = time.monotonic() + 120
        while not self.is_over and time.monotonic() < end and not self.failure:
            query = self._query()
            try:
                while not self.is_over and time.monotonic() < end and not query.awaitTermination(0.2):
                    pass
            except Exception:
                if not self.died:
                    raise
            query.stop()
        self.oracle.close()
        assert not self.failure, self.failure
        return self

    @property
    def is_over(self) -> bool:
        """Return whether two batches have run after the time of every row: what the first one stored is committed."""
        return not self.deaths and sum(max(clocks) > self.ends for clocks in self.clocks.values()) > 1

    def _query(self) -> Any:
        self.died = False
        set_up_by_time(self.spark, self.plan)
        parts = program_of(self.plan, {}, checkpoint=str(self.checkpoint))

        def read(topics: tuple[str, ...]) -> DataFrame:
            stream = self.spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(self.log))
            return stream.where(stream.topic.isin(*topics))

        rows = finished(kernel_flow(read, parts, self.plan), self.plan, self.plan.last)
        writer = rows.writeStream.option("checkpointLocation", str(self.checkpoint)).foreachBatch(self._write)
        return writer.outputMode("append").trigger(processingTime="200 milliseconds").start()

    def _write(self, rows: DataFrame, batch: int) -> None:
        clock = clock_of(self.checkpoint, batch)
        self.clocks.setdefault(batch, set()).add(clock)
        messages = [load(bytes(row.k), bytes(row.m)) for row in rows.collect()]
        if not self.plan.folds:
            raise AssertionError("conditions on the time fold the changes of a row")
        for message in sorted(messages, key=lambda one: one.op != ROW_GONE):  # a put beats a delete, as in the sink
            if message.op == ROW_GONE:
                self.live.pop(message.k, None)
            else:
                self.live[message.k] = values_of(message.p)
        self._compare(batch, clock)
        if batch == 0 and len(self.made) == self.per_file:  # Spark has started: rows near the present come
            self.made += changes(7, 3 * self.per_file)
            self.ends = time.time() * 1000 + LATEST + 2500
            self.publish()
        if batch in self.deaths:
            self.deaths.remove(batch)
            self.died = True
            raise Died

    def _compare(self, batch: int, clock: int) -> None:
        files = json.loads(planned(self.checkpoint, batch)[2])["logOffset"] + 1
        table: Rows = {}
        for _, before, after in self.made[: files * self.per_file]:
            row = after if after is not None else before
            assert row is not None
            table.pop((row["id"],), None)
            if after is not None:
                table[after["id"],] = after
        topology = self.case.topology()
        tables = {TableId(source="shop", database="shop", table="orders"): table}
        expected = self.oracle.answer(topology.tables["wide"], self.plan.sink.row_key, tables, clock)
        found = {}
        for values in self.live.values():
            row = {output.name: values[output.index] for output in self.plan.outputs}
            found[tuple(row[name] for name in self.plan.sink.row_key)] = row
        self.sizes.append(len(found))
        if found != expected and not self.failure:
            self.failure = f"batch {batch} at {clock}, {files} files: {found} is not {expected}"

    def check_clocks(self) -> None:
        """Each batch had one clock, also when it ran again, and the clocks do not go back."""
        assert all(len(found) == 1 for found in self.clocks.values())
        found = [clock for batch in sorted(self.clocks) for clock in self.clocks[batch]]
        assert found == sorted(found)


def check(spark: SparkSession, name: str, folder: Path, deaths: frozenset[int] = frozenset()) -> Run:
    run = Run(spark, name, folder, deaths).run()
    run.check_clocks()
    assert not run.deaths, "the driver has not died as often as it should"
    assert run.is_over
    assert len(run.clocks) > len(run.made) // run.per_file, "no batch has run without changes"
    assert max(run.sizes) > run.sizes[-1] or name == "silent", run.sizes
    return run


def test_rows_leave_without_a_change(spark: SparkSession, tmp_path: Path) -> None:
    """After the last change, batches on a timer delete each row when its time is over; the state ends empty."""
    run = check(spark, "plain", tmp_path, frozenset([1, 4]))
    assert run.live == {}
    stored = spark.read.format("statestore").option("stateVarName", "span_v1").load(str(run.checkpoint))
    assert stored.count() == 0, "rows whose time is over"


@pytest.mark.matrix
@pytest.mark.parametrize("name", QUERIES)
def test_each_batch_is_the_select_at_its_clock(spark: SparkSession, name: str, tmp_path: Path) -> None:
    """Every kind of query, with and without crashes of the driver."""
    check(spark, name, tmp_path / "whole")
    check(spark, name, tmp_path / "deaths", frozenset([0, 2, 3, 6]))


def test_a_machines_clock_that_goes_back(tmp_path: Path) -> None:
    """The clock of a batch is never before that of an earlier one, and that of a repeated batch is the same."""
    (tmp_path / "offsets").mkdir()
    for batch, machine in enumerate([5000, 7000, 6000, 6500, 8000]):
        (tmp_path / "offsets" / str(batch)).write_text(f'v1\n{{"batchTimestampMs": {machine}}}\n')
    assert [clock_of(tmp_path, batch) for batch in (0, 1, 2, 2, 3, 3, 4)] == [5000, 7000, 7000, 7000, 7000, 7000, 8000]
    (tmp_path / "offsets" / "4").write_text('v1\n{"batchTimestampMs": 9000}\n')
    assert clock_of(tmp_path, 4) == 8000, "a repeated batch keeps its clock"
