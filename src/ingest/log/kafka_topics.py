"""Create the topics of a source. Safe to repeat, and to run while captures of other sources do the same."""

from __future__ import annotations

import logging
import time
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic  # type: ignore[attr-defined]  # not in __all__

from cdc.model import dead_letter_end, naming
from cdc.model.brokers import Brokers, refuses
from cdc.model.errors import Retriable, UsageError
from cdc.topology.topology import Log, Source, Topology

MAX_MESSAGE = 16 * 1024 * 1024  # maximum bytes of a record batch; `images.MAX_IMAGE` keeps records below it
_SILENT = logging.Logger("librdkafka", level=logging.CRITICAL + 1)
TIMEOUT = 30.0  # seconds that one call waits for the brokers
_PLACES = 8  # partitions of `…positions` that sources outside the topology file share
_WEEK_MS = 7 * 24 * 3600 * 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceTopics:
    """Names of a source's topics, number of partitions of its change topics, and its partition of `…positions`.

    `open_ended`: more change topics may appear, for tables that the topology does not list.
    """

    changes: tuple[str, ...]
    partitions: int
    schemas: str
    history: str
    quarantine: str
    positions: str
    positions_partition: int
    open_ended: bool = False


def source_topics(topology: Topology, source: Source) -> SourceTopics:
    """Return names and partitions of a source's topics.

    The partition of `…positions` is the source's index in the topology file. Sources outside the file share a fixed
    number of partitions, by the hash of their name.
    """
    names = list(topology.sources)
    place = names.index(source.name) if source.name in names else zlib.crc32(source.name.encode()) % _PLACES
    return SourceTopics(
        changes=tuple(naming.change_topic(topology.name, table) for table in source.tables),
        partitions=topology.log.partitions,
        schemas=naming.schemas_topic(topology.name),
        history=naming.history_topic(topology.name),
        quarantine=naming.quarantine_topic(topology.name),
        positions=naming.positions_topic(topology.name),
        positions_partition=place,
        open_ended=source.filter_policy == "accept",
    )


def make_topics(topology: Topology, source: Source) -> SourceTopics:
    """Create the topics of a source that do not exist.

    Raises Retriable while Kafka is unavailable, and UsageError if a topic has another number of partitions than the
    topology.
    """
    topics = source_topics(topology, source)
    log = topology.log
    compacted = _compacted(log)
    passing = {
        "cleanup.policy": "delete",
        "retention.ms": str(4 * _WEEK_MS),
        "max.message.bytes": str(MAX_MESSAGE),
    }
    wanted: dict[str, tuple[int, dict[str, str]]] = dict.fromkeys(topics.changes, (log.partitions, compacted))
    wanted[topics.schemas] = wanted[topics.history] = (1, compacted)
    places = max(len(topology.sources), topics.positions_partition + 1)
    wanted[topics.positions] = (places, compacted)
    wanted[naming.quarantine_topic(topology.name)] = wanted[naming.signals_topic(topology.name)] = (1, passing)
    wanted[naming.dead_letter_topic(topology.name)] = (1, dead_letter_end.TOPIC)
    with _answering(log) as admin:
        found = _partition_counts(admin)
        for name, (partitions, config) in wanted.items():
            if name not in found:
                _make(admin, NewTopic(name, partitions, log.replication_factor, config=config))
        if found.get(topics.positions, places) < places:
            grown = NewPartitions(topics.positions, places)
            admin.create_partitions([grown])[topics.positions].result(TIMEOUT)
        found = _when_ready(admin, wanted)
    for name in topics.changes:
        _check_partitions(log, name, found[name])
    return topics


def make_change_topic(log: Log, name: str) -> None:
    """Create the change topic `name` if it does not exist. Raises Retriable while Kafka is unavailable."""
    _check_partitions(log, name, make_topic(log, name, log.partitions, _compacted(log)))


def make_topic(log: Log, name: str, partitions: int, config: Mapping[str, str]) -> int:
    """Create a topic if it does not exist, wait until it is writable, and return its number of partitions.

    Raises Retriable while Kafka is unavailable.
    """
    with _answering(log) as admin:
        if name not in _partition_counts(admin):
            _make(admin, NewTopic(name, partitions, log.replication_factor, config=dict(config)))
        return _when_ready(admin, {name: None})[name]


@contextmanager
def _answering(log: Log) -> Iterator[AdminClient]:
    """Return an admin client for the block; failures become Retriable.

    If the brokers refuse the login, or their certificate is not trusted, the message says so.
    """
    refused = list[str]()

    def on_error(error: KafkaError) -> None:
        if refuses(error.name(), error.str()):
            refused.append(error.str())

    try:
        # librdkafka's admin, not kafka-python's: that one leaks sockets of failed attempts while a broker is
        # unavailable
        admin = AdminClient(client_settings(log.brokers, error_cb=on_error))
        try:
            yield admin
        except KafkaException:
            admin.poll(0)  # a call that lets the client report connection errors to `on_error`
            raise
    except KafkaException as error:
        reason = refused[-1] if refused else error.args[0].str()
        hint = "correct log.security" if log.brokers.security is not None else ""
        raise Retriable(f"Kafka at {log.brokers}: {reason}", hint, retry_after=2.0) from error


def _check_partitions(log: Log, name: str, found: int) -> None:
    if found != log.partitions:
        raise UsageError(
            f"topic {name} has {found} partitions, the topology has {log.partitions}",
            "a topic's partition count is fixed: correct log.partitions, or use a new topology name",
        )


def _compacted(log: Log) -> dict[str, str]:
    return {
        "cleanup.policy": "compact",
        "min.compaction.lag.ms": str(int(log.min_compaction_lag * 1000)),
        "delete.retention.ms": str(_WEEK_MS),
        "max.message.bytes": str(MAX_MESSAGE),
    }


def client_settings(brokers: Brokers, **more: Any) -> dict[str, Any]:
    """Return settings for a librdkafka client; names in `more` have underscores instead of dots.

    librdkafka's own log lines are dropped, because the failed call returns the error anyway.
    """
    settings = {name if name == "error_cb" else name.replace("_", "."): value for name, value in more.items()}
    return {**brokers.librdkafka(), "error_cb": lambda error: None, "logger": _SILENT, **settings}


def _partition_counts(admin: AdminClient) -> dict[str, int]:
    return {name: len(topic.partitions) for name, topic in admin.list_topics(timeout=5.0).topics.items()}


def _make(admin: AdminClient, topic: NewTopic) -> None:
    try:
        admin.create_topics([topic])[topic.topic].result(TIMEOUT)
    except KafkaException as error:
        code = error.args[0].code()
        if code == KafkaError.TOPIC_EXCEPTION:  # another topic's name differs only in `.` and `_`
            remedy = "list its table without a word under `filter_policy: accept`, or leave it out of `tables:`"
            raise UsageError(f"Kafka refuses topic {topic.topic}: {error.args[0].str()}", remedy) from error
        if code != KafkaError.TOPIC_ALREADY_EXISTS:  # another capture has just created it
            raise


def _when_ready(admin: AdminClient, wanted: Mapping[str, object]) -> dict[str, int]:
    """Return the number of partitions of each wanted topic, once all partitions have a leader. Raises Retriable
    otherwise."""
    deadline = time.monotonic() + TIMEOUT
    while True:
        topics = admin.list_topics(timeout=TIMEOUT).topics
        ready = {
            name: len(topic.partitions)
            for name, topic in topics.items()
            if topic.partitions and all(partition.leader >= 0 for partition in topic.partitions.values())
        }
        if ready.keys() >= wanted.keys():
            return ready
        if time.monotonic() > deadline:
            raise Retriable(f"Kafka has no leader for {', '.join(sorted(wanted.keys() - ready.keys()))}")
        time.sleep(0.05)
