"""The join over a log that is compacted, deleted, or empty: it refuses with the remedy, starts again, or waits."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewTopic

from cdc.model.brokers import Brokers
from cdc.model.errors import UsageError
from joins.stores.compaction import Reading
from joins.stores.kafka_compaction import LogWatch
from joins.stores.proc_retry import patiently
from tests.integration.conftest import servers
from tests.integration.test_join import History, JoinPipeline, joined, oracle
from tests.integration.test_join_failures import DYING, JOIN, kill_group, settles
from tests.support.waiting import wait_for

__all__ = ["joined"]  # a fixture

pytestmark = [pytest.mark.integration, pytest.mark.kafka("hbase", "thrift"), pytest.mark.timeout(900)]
DAY = 86_400_000


def record_file(joined: JoinPipeline) -> Path:
    return joined.folder / "checkpoints" / joined.name / "wide" / "query.json"


def make_compacted(joined: JoinPipeline) -> None:
    """Create topics as capture does, with the lag that the topology has by default."""
    settings = {"cleanup.policy": "compact", "min.compaction.lag.ms": str(7 * DAY)}
    for topic in joined.topics:
        entries = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in settings.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
        for future in joined.admin.incremental_alter_configs([resource]).values():
            future.result(30)


def refused(joined: JoinPipeline, *said: str) -> None:
    """Start the join; it exits at once and reports the reason and the remedy."""
    process = joined.start(JOIN)
    assert process.wait(120) == 2, joined.said()
    for words in (*said, f"tailorbird join {joined.file} --table wide --rebuild"):
        assert words in joined.said()


@pytest.mark.matrix  # the refusals by Kafka alone: test_the_watch_refuses_lost_records_and_recreated_topics
def test_compacted_and_lost_logs(joined: JoinPipeline) -> None:
    """A join whose next records are older than the compaction lag is refused with the remedy, and so is one whose
    topics were recreated. A rebuild that finds fewer records than at its start restarts by itself, and publishes no
    barrier before. Each remedy leads to the result of the SELECT.
    """
    make_compacted(joined)
    history = History(random.Random(23))
    joined.publish(history.change(200, ids=6), age_ms=9 * DAY)
    first = joined.start(JOIN)
    settles(joined, history)
    kill_group(first)

    joined.publish(history.change(100, ids=6), age_ms=8 * DAY)
    joined.publish(history.change(50, ids=6))
    refused(joined, "was not read yet and is 8.0 days old", "may have been compacted")

    dying = joined.start([*DYING, "0", "--rebuild"])
    assert dying.wait(300) == -9, joined.said()
    stored = json.loads(record_file(joined).read_text())
    topic, counts = next((topic, counts) for topic, counts in stored["counts"].items() if counts)
    partition = next(iter(counts))
    counts[partition] += 3  # as if the cleaner had removed three since
    record_file(joined).write_text(json.dumps(stored))
    again = joined.start(JOIN)
    settles(joined, history)
    assert "compacted while it was read" in joined.said()
    assert json.dumps(topic) in joined.said() or topic in joined.said()
    assert json.loads(record_file(joined).read_text())["id"] != stored["id"]
    kill_group(again)

    for future in joined.admin.delete_topics(joined.topics, operation_timeout=30).values():
        future.result(60)
    joined.make_topics()
    refused(joined, "was deleted and recreated")


@pytest.mark.matrix  # one of two levels without records: test_many_tables.py
def test_tables_without_records(joined: JoinPipeline) -> None:
    """Topics without records do not delay a table's first barrier: an empty result is complete as well. Later records
    are processed.
    """
    history = History(random.Random(29))
    joined.publish_positions(history)
    joined.start(JOIN)
    wait_for(lambda: joined.barriers_report(history), "an empty table has no barrier")
    assert joined.live() == {}
    joined.publish(history.change(60, ids=6))
    joined.publish_positions(history)
    wait_for(lambda: joined.barriers_report(history), "later records have no barrier")
    assert joined.live() == oracle(joined, history)


@pytest.mark.matrix  # it waits for Kafka's cleaner
def test_the_cleaner_is_noticed(joined: JoinPipeline) -> None:
    """Kafka's own cleaner removes records from a counted range: the second count reports how many, and the topic; a
    topic that is not cleaned keeps its count.
    """
    cleaned, kept = f"{joined.name}.cleaned", f"{joined.name}.kept"
    quick: dict[str, str] = {
        "cleanup.policy": "compact", "min.compaction.lag.ms": "0", "segment.ms": "100",
        "min.cleanable.dirty.ratio": "0.0", "max.compaction.lag.ms": "100",
    }  # fmt: skip
    made: list[Any] = [NewTopic(cleaned, 1, 1, config=quick), NewTopic(kept, 1, 1, config={"cleanup.policy": "delete"})]
    for future in joined.admin.create_topics(made).values():
        future.result(30)
    publish(joined.producer, cleaned, kept)
    watch = LogWatch(Brokers(joined.servers), [cleaned, kept], lag=7 * DAY, remedy="none")
    ends = {topic: {0: joined.ends(topic, 0)} for topic in (cleaned, kept)}
    settled, counts, ids = watch.beginning(ends, time.time_ns() // 1_000_000 + 8 * DAY, lambda: False)
    assert settled == ends
    assert counts == {cleaned: {0: 100}}  # the records of a topic that is not cleaned need no second count
    assert set(ids) == {cleaned, kept}

    def gone() -> bool:
        publish(joined.producer, cleaned, kept)  # a new segment: the cleaner never touches the newest one
        return watch.thinned(settled, counts, lambda: False).get(cleaned, 0) >= 90

    wait_for(gone, "the cleaner never works", seconds=180)


def test_the_watch_refuses_lost_records_and_recreated_topics(unique: Callable[[str], str]) -> None:
    """With Kafka alone: an unread record that is too old, a beginning after the next record, a recreated topic are
    refused. Nothing is refused while all unread records are young, or were old when the run started.
    """
    topic, admin = unique("watched"), AdminClient({"bootstrap.servers": servers()})

    def make() -> None:
        # Kafka deletes no records of a compact-only topic on request
        config = {"cleanup.policy": "compact,delete", "retention.ms": "-1", "min.compaction.lag.ms": str(7 * DAY)}
        made: Any = NewTopic(topic, 1, 1, config=config)
        for future in admin.create_topics([made]).values():
            future.result(30)

    def written(days: int) -> None:
        producer = Producer({"bootstrap.servers": servers()})
        for number in range(10):
            producer.produce(topic, key=str(number), value=b"x", timestamp=now - days * DAY)
        producer.flush(30)

    def check(at: int, settled: int = 0) -> None:
        found = Reading(
            committed={topic: {0: at}}, settled={topic: {0: settled}}, target={topic: {0: at}}, topics=ids
        )  # fmt: skip
        patiently(lambda: watch.check(found, now), lambda error, pause: None, lambda: False)

    now = time.time_ns() // 1_000_000
    make()
    written(9)
    watch = LogWatch(Brokers(servers()), [topic], lag=30 * DAY, remedy="do this")
    began = lambda: watch.beginning({topic: {0: 10}}, now + 8 * DAY, lambda: False)  # noqa: E731
    since = time.monotonic()
    settled, counts, ids = patiently(began, lambda error, pause: None, lambda: False)  # the topic was just created
    assert time.monotonic() - since < 10, "it waits for more records than there are"
    assert (settled, counts) == ({topic: {0: 10}}, {topic: {0: 10}})
    check(0, settled=10)
    check(10)
    written(8)
    with pytest.raises(UsageError, match=r"offset 10 was not read yet and is 8\.0 days old") as refused:
        check(10)
    assert refused.value.hint == "do this"
    check(20)
    written(1)
    check(20)
    for future in admin.delete_records([TopicPartition(topic, 0, 25)]).values():
        future.result(30)
    with pytest.raises(UsageError, match="begins at offset 25, and 20 was to be read next"):
        check(20)
    check(25)
    for future in admin.delete_topics([topic], operation_timeout=30).values():
        future.result(30)
    wait_for(lambda: topic not in admin.list_topics(timeout=10).topics, "the topic is never gone")
    make()
    with pytest.raises(UsageError, match="was deleted and recreated"):
        check(0)


def publish(producer: Producer, *topics: str) -> None:
    for topic in topics:
        for number in range(100):
            producer.produce(topic, key=str(number % 3), value=b"x")
    producer.flush(30)
