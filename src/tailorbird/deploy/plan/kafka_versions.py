"""Store and read the versions of a topology's tables, one record in the compacted topic `<topology>.versions`."""

from __future__ import annotations

import json

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from cdc.model.errors import Retriable
from cdc.model.naming import versions_topic
from cdc.process.file_topology import keep_versions, kept_versions
from cdc.process.kafka_foreign import own_record
from cdc.topology.topology import Topology
from cdc.topology.versions import Versions, load_versions
from ingest.log.kafka_topics import make_topic

_TIMEOUT = 10.0
_CONFIG = {"cleanup.policy": "compact", "segment.ms": "3600000", "min.cleanable.dirty.ratio": "0.1"}


def read_versions(topology: Topology) -> Versions:
    """Return the versions stored in Kafka, or none. Raises Retriable while Kafka is unavailable, Fatal for a
    record of a newer version."""
    topic = versions_topic(topology.name)
    found: Versions | None = None
    try:
        consumer = Consumer(topology.log.brokers.reader("tailorbird-versions"))
        try:
            if topic not in consumer.list_topics(timeout=_TIMEOUT).topics:
                return Versions()
            low, _ = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=_TIMEOUT)
            consumer.assign([TopicPartition(topic, 0, low)])
            while (message := consumer.poll(_TIMEOUT)) is not None:
                error = message.error()
                if error is None:
                    read = own_record(topic, message.offset(), message.value(), load_versions)
                    found = read or found
                elif error.code() == KafkaError._PARTITION_EOF:
                    break
                else:
                    raise _unavailable(topology, error.str())
            else:
                raise _unavailable(topology, "no answer")
        finally:
            consumer.close()
    except KafkaException as error:
        raise _unavailable(topology, error.args[0].str()) from error
    return found or Versions()


def store_versions(topology: Topology, versions: Versions) -> None:
    """Store versions in Kafka and on this machine. The caller must hold the journal of applies."""
    failed: list[KafkaError] = []
    topic = versions_topic(topology.name)
    make_topic(topology.log, topic, 1, _CONFIG)
    try:
        producer = Producer({**topology.log.brokers.librdkafka(), "enable.idempotence": True, "log_level": 0})
        value = json.dumps(versions.to_json()).encode()
        producer.produce(
            topic,
            key=topology.name.encode(),
            value=value,
            partition=0,
            on_delivery=lambda error, _: failed.append(error) if error is not None else None,
        )
        if producer.flush(_TIMEOUT) or failed:
            raise _unavailable(topology, failed[0].str() if failed else "no answer")
    except KafkaException as error:
        raise _unavailable(topology, error.args[0].str()) from error
    keep_versions(topology.name, versions)


def newest_versions(topology: Topology) -> Versions:
    """Return the stored versions of tables from Kafka, or from this machine if those are newer.

    A rebuild in place is recorded only on its machine. A topology with only foreign tables has no versions and needs
    no Kafka."""
    known = kept_versions(topology.name)
    if not topology.tables and not known.tables:
        return known
    reported = read_versions(topology)
    newest = max(reported, known, key=lambda one: one.epoch)
    if newest.epoch > known.epoch:
        keep_versions(topology.name, newest)
    return newest


def _unavailable(topology: Topology, said: str) -> Retriable:
    what = f"Kafka at {topology.log.brokers}: {said}"
    return Retriable(f"{what}: cannot read the versions of tables", "is it running? `tailorbird stack status`")
