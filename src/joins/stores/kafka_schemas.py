"""Read table schemas from the schemas topic: when a join starts, and their changes while it runs."""

from __future__ import annotations

import time
from collections.abc import Callable

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from cdc.model.brokers import Brokers
from cdc.model.naming import schemas_topic
from cdc.model.schema import TableId, TableSchema, schema_from_json
from cdc.process.kafka_foreign import own_record
from joins.query.drift import drifts, remembering
from joins.query.plan import Plan
from joins.stores.kafka_log import Waiting, consumer_of

_POLL = 0.25
_ASK = 5.0


def read_schemas(
    servers: Brokers, topology: str, wanted: frozenset[TableId], waiting: Waiting, stopped: Callable[[], bool]
) -> dict[TableId, TableSchema]:
    """Return the newest schema of each wanted table, with former columns as far as the topic still has them.

    Waits until capture has published all of them, and calls `waiting` with the missing ones. Returns what is known
    once `stopped`. Retries while Kafka is unavailable."""
    found = read_versions(servers, topology, wanted, waiting, stopped)
    return {table: remembering(versions) for table, versions in found.items()}


def read_versions(
    servers: Brokers, topology: str, wanted: frozenset[TableId], waiting: Waiting, stopped: Callable[[], bool]
) -> dict[TableId, list[TableSchema]]:
    """Return all schemas of each wanted table that the topic still has, oldest first. Waits like `read_schemas`."""
    found: dict[TableId, list[TableSchema]] = {}
    consumer = consumer_of(servers)
    try:
        assigned = False
        while not stopped():
            if not assigned:
                assigned = _assign(consumer, schemas_topic(topology))
            message = consumer.poll(_POLL) if assigned else None
            error = None if message is None else message.error()
            if message is not None and error is None:
                _remember(message, wanted, found)
                continue
            missing = sorted(str(table) for table in wanted - set(found))
            # a schema is known to be the newest one only at the topic's end
            at_end = error is not None and error.code() == KafkaError._PARTITION_EOF
            if at_end and not missing:
                break
            if missing:
                waiting("schema of " + ", ".join(missing))
            if not assigned:
                time.sleep(_POLL)
        return found
    finally:
        consumer.close()


def _remember(message: Message, wanted: frozenset[TableId], found: dict[TableId, list[TableSchema]]) -> None:
    topic, offset, partition = message.topic() or "", message.offset(), message.partition()
    schema = own_record(topic, offset, message.value(), schema_from_json, partition)
    if schema is not None and schema.table_id in wanted:
        found.setdefault(schema.table_id, []).append(schema)


def _assign(consumer: Consumer, topic: str) -> bool:
    try:
        partitions = consumer.list_topics(topic, timeout=_ASK).topics[topic].partitions
    except KafkaException:
        return False
    consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
    return bool(partitions)


class SchemaFollower:
    """Checks whether new schemas affect the columns that a plan uses. Call it repeatedly; it never waits."""

    def __init__(self, servers: Brokers, topology: str, plan: Plan) -> None:
        self._plan, self._topic = plan, schemas_topic(topology)
        self._wanted = frozenset(source.table_id for source in plan.sources)
        self._consumer, self._assigned, self._new = consumer_of(servers), False, False
        self._found: dict[TableId, list[TableSchema]] = {}

    def news(self) -> list[str] | None:
        """Return all current warnings. None if there is no new schema, or Kafka is unavailable."""
        if not self._assigned:
            self._assigned = _assign(self._consumer, self._topic)
        at_end = False
        while self._assigned and (message := self._consumer.poll(0)) is not None:
            error = message.error()
            if error is None:
                _remember(message, self._wanted, self._found)
                self._new = True
            at_end = error is not None and error.code() == KafkaError._PARTITION_EOF
        if not self._new or not at_end:  # a schema is known to be the newest one only at the topic's end
            return None
        self._new = False
        return drifts(self._plan, self.newest())

    def newest(self) -> dict[TableId, TableSchema]:
        """Return the newest schemas that `news` has read."""
        return {table: remembering(versions) for table, versions in self._found.items()}

    def close(self) -> None:
        """Close the connection to Kafka."""
        self._consumer.close()
