"""Joins by time on Spark's stream-stream join equal the specification and DuckDB, through crashes."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from cdc.stored.cells import RowCodec
from joins.engine.spark_by_time import set_up_by_time
from joins.engine.spark_kernel import finished, kernel_flow
from joins.engine.spark_session import close_session, open_session
from joins.kernel.program import program_of
from joins.oracle.sql_oracle import Answer
from joins.runtime.records import LATE, RefusedRecord, load, record_of
from joins.runtime.sink import writes_of
from tests.joins.joincase import comparable
from tests.joins.simulation import StoredTable
from tests.joins.test_by_time import expected_of, shown, simulated
from tests.joins.timedrandom import TimedCase, logged, random_timed

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]
SCHEMA = "topic string, partition int, offset long, key binary, value binary"
COLUMNS = ("topic", "partition", "offset", "key", "value")


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    session = open_session("by time", partitions=2, scratch=tmp_path_factory.mktemp("spark"))
    yield session
    close_session(session)


class Died(Exception):
    """Raised between a batch's writes and its commit, to simulate a crash of the driver."""


class Run:
    """A history through Spark, a file per batch; `deaths`: the batches after whose writes the driver dies."""

    def __init__(
        self, spark: SparkSession, timed: TimedCase, folder: Path, deaths: frozenset[int] = frozenset()
    ) -> None:
        self.spark, self.plan, self.deaths = spark, timed.case.plan(), set(deaths)
        self.log, self.checkpoint = folder / "log", folder / "checkpoint"
        self.table, self.codec = StoredTable(), RowCodec(self.plan.layout(1))
        self.refused: list[RefusedRecord] = []
        self.log.mkdir(parents=True)
        types = [pa.string(), pa.int32(), pa.int64(), pa.binary(), pa.binary()]
        self.files = [records for records, batch in zip(logged(timed), timed.batches, strict=True) if batch]
        for number, records in enumerate(self.files):
            arrays = [pa.array([getattr(r, name) for r in records], t) for name, t in zip(COLUMNS, types, strict=True)]
            file = self.log / f"{number:04}.parquet"
            pq.write_table(pa.table(dict(zip(COLUMNS, arrays, strict=True))), file)
            os.utime(file, (number, number))  # Spark reads files in the order of their times

    def run(self) -> Run:
        """Run until all is read, restarting after each crash."""
        while True:
            try:
                self._query().awaitTermination()
                return self
            except Exception:
                if not self.died:
                    raise

    def _query(self) -> Any:
        self.died = False
        set_up_by_time(self.spark, self.plan)
        parts = program_of(self.plan, {}, checkpoint=str(self.checkpoint))

        def read(topics: tuple[str, ...]) -> DataFrame:
            stream = self.spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(self.log))
            return stream.where(stream.topic.isin(*topics))

        rows = finished(kernel_flow(read, parts, self.plan), self.plan, self.plan.last)
        writer = rows.writeStream.option("checkpointLocation", str(self.checkpoint)).foreachBatch(self._write)
        return writer.outputMode("append").trigger(availableNow=True).start()

    def _write(self, rows: DataFrame, batch: int) -> None:
        indexes = [output.index for output in self.plan.outputs]
        records = [record_of(load(bytes(row.k), bytes(row.m)), indexes) for row in rows.collect()]
        writes = writes_of(records, self.codec, batch)
        for row in writes.deletes:
            self.table.delete(row, 10 * batch)
        for row, cells in writes.puts:
            self.table.put(row, cells, 10 * batch + 1)
        self.refused += writes.refused
        if batch in self.deaths:
            self.deaths.remove(batch)
            self.died = True
            raise Died

    def live(self) -> Answer:
        """Return the table."""
        decoded = [self.codec.row(cells).values for cells in self.table.live().values()]
        return shown({tuple(row[name] for name in self.plan.sink.row_key): row for row in decoded})

    def watermarks(self) -> list[int]:
        """Return the watermarks of the batches in milliseconds."""
        count = len(list((self.checkpoint / "offsets").glob("[0-9]*")))
        texts = [(self.checkpoint / "offsets" / str(n)).read_text() for n in range(count)]
        return [int(json.loads(text.splitlines()[1])["batchWatermarkMs"]) for text in texts]

    def kept(self) -> int:
        """Count the rows of both sides in Spark's state."""
        stored = self.spark.read.format("statestore")
        return sum(stored.option("joinSide", side).load(str(self.checkpoint)).count() for side in ("left", "right"))

    def dead_letters(self) -> set[tuple[str, int, int, str]]:
        """Return the record and reason of each dead letter."""
        return {(one.topic, one.partition, one.offset, one.reason) for one in self.refused}


def check(spark: SparkSession, seed: int, shape: str, folder: Path) -> Run:
    """Run a history without crashes: the same dead letters as the specification, the same rows as DuckDB."""
    timed = random_timed(seed, shape)
    timed.batches[:] = [*(batch for batch in timed.batches if batch), []]
    simulation = simulated(timed, random.Random(seed))
    run = Run(spark, timed, folder).run()
    dead_letters = {(one.topic, one.partition, one.offset, one.reason) for one in simulation.refused}
    about = f"seed {seed}\n{timed.case.text()}\n{timed.batches}"
    assert run.dead_letters() == dead_letters, about
    found, wanted = comparable(run.live(), expected_of(timed)[0])
    assert found == wanted, about
    return run


def check_deaths(spark: SparkSession, seed: int, shape: str, folder: Path) -> None:
    """Run a history with crashes of the driver: the batches' stored watermarks decide what is late."""
    timed = random_timed(seed, shape)
    timed.batches[:] = [*(batch for batch in timed.batches if batch), []]
    chance = random.Random(seed)
    deaths = frozenset(number for number in range(len(timed.batches)) if chance.random() < 0.4)
    run = Run(spark, timed, folder, deaths).run()
    expected, late, _ = expected_of(timed, run.watermarks())
    about = f"seed {seed}\n{timed.case.text()}\n{timed.batches}"
    found, wanted = comparable(run.live(), expected)
    assert found == wanted, about
    reported = sum(reason.startswith(LATE) for *_, reason in run.dead_letters())
    assert reported <= late if shape == "filtered" else reported == late, about


def test_like_the_specification(spark: SparkSession, tmp_path: Path) -> None:
    """Out of order, late, changed: the specification's dead letters, DuckDB's rows, and a state that shrinks."""
    run = check(spark, 1, "plain", tmp_path / "plain")
    assert run.kept() <= 2, "rows that the watermark has passed"


def test_killed_between_write_and_commit(spark: SparkSession, tmp_path: Path) -> None:
    """The driver dies after the writes of batches; the next one repeats them with the same watermarks."""
    check_deaths(spark, 3, "joined", tmp_path)


@pytest.mark.matrix
@pytest.mark.parametrize("shape", ["plain", "joined", "grouped", "filtered"])
def test_many_histories(spark: SparkSession, shape: str, tmp_path: Path) -> None:
    """Every shape, ten histories without and ten with crashes."""
    for seed in range(10):
        check(spark, seed, shape, tmp_path / f"{seed}")
        check_deaths(spark, 100 + seed, shape, tmp_path / f"deaths-{seed}")
