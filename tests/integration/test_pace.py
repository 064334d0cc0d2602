"""A join that is far behind reads larger batches, and smaller ones if they take long: real Kafka, real Spark."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from pyspark.sql import DataFrame, SparkSession

from joins.engine.spark_kernel import kernel_of
from joins.engine.spark_query import PACED_KAFKA
from joins.engine.spark_session import close_session, open_session
from tailorbird.devtools.stack.proc_stack import Stack

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]


@pytest.fixture
def spark(tmp_path: Path, stack: Stack) -> Iterator[SparkSession]:
    session = open_session("pace", partitions=2, scratch=tmp_path / "spark")
    yield session
    close_session(session)


def test_batches_follow_their_time(spark: SparkSession, unique: Callable[[str], str], tmp_path: Path) -> None:
    """A checkpoint of Spark's own source, as earlier versions used it, is continued without a gap or repetition."""
    topic, brokers = unique("paced"), f"127.0.0.1:{os.environ['TAILORBIRD_PORT_KAFKA']}"
    pace = kernel_of(spark).Pace.of("a query", 50_000)
    times = iter([1, 2000, 1000, 8000, 8000, 8000])
    batches: list[list[int]] = []

    def write(rows: DataFrame, batch: int) -> None:
        batches.append([int(row.value) for row in rows.select("value").collect()])
        pace.took(next(times), 1)

    def read(source: str) -> None:
        flow: Any = spark.readStream.format(source).option("kafka.bootstrap.servers", brokers)
        flow = flow.option("subscribe", topic).option("startingOffsets", "earliest")
        flow = flow.option("pace", "a query").option("share", 2).load()
        writer = flow.writeStream.trigger(availableNow=True).option("checkpointLocation", str(tmp_path / "checkpoint"))
        writer.foreachBatch(write).start().awaitTermination()

    with AdminClient({"bootstrap.servers": brokers}) as admin:
        admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
    producer = Producer({"bootstrap.servers": brokers, "queue.buffering.max.messages": 1_000_000})
    for number in range(100):
        producer.produce(topic, str(number).encode())
    producer.flush()
    read("kafka")
    for number in range(100, 72_600):
        producer.produce(topic, str(number).encode())
    producer.flush()
    read(PACED_KAFKA)
    # half of 20,000, because two sources share the limit; then 40,000, 50,000 as the maximum, and half of it
    assert [len(batch) for batch in batches] == [100, 10_000, 20_000, 25_000, 12_500, 5000]
    assert sorted(number for batch in batches for number in batch) == list(range(72_600))
