"""Create the topics of a source. Safe to repeat, and to run while captures of other sources do the same.

The change topics of a source's first tables exist from the start, and those that a query of the topology names, so that
readers find them. With more tables, a topic is created when its table has a first record: most tables of a server with
thousands are empty or never change.
"""

from __future__ import annotations

import logging
import re
import time
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]  # missing in __all__ only

from cdc.model import dead_letter_end, naming
from cdc.model.brokers import Brokers, refuses
from cdc.model.errors import Retriable, UsageError
from cdc.model.identifiers import fold_identifier
from cdc.process.kafka_admin import (
    DENIED,
    INVALID_TOPIC,
    AdminRefusal,
    TopicMaker,
    WantedTopic,
    add_partitions,
    create_topics,
)
from cdc.topology.copies import declared_tables
from cdc.topology.topology import Log, Source, Topology
from ingest.log.kafka_defaults import own_settings

MAX_MESSAGE = 16 * 1024 * 1024  # maximum bytes of a record batch; `images.MAX_IMAGE` keeps records below it
_SILENT = logging.Logger("librdkafka", level=logging.CRITICAL + 1)
TIMEOUT = 30.0  # seconds that one call waits for the brokers
_PLACES = 8  # partitions of `…positions` that sources outside the topology file share
_WEEK_MS = 7 * 24 * 3600 * 1000
AT_ONCE = 100  # so many change topics of a source exist before their tables have a record
# How a topic gets another number of partitions.
RECREATE = (
    "delete the topic while capture is stopped: capture creates it again and reads its tables; then rebuild joins"
)
_NOT_YET = (  # errors of a broker that has not heard of a new topic, or that it leads its partitions
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.FENCED_LEADER_EPOCH,
)
_BATCH = 200  # topics that one request describes
_LOOK, _LONGEST_LOOK = 0.05, 0.8  # seconds between looks at new topics: each costs a broker as much as a new topic
_NAME = re.compile(r"`([^`]+)`|\"([^\"]+)\"|([\w$]+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceTopics:
    """Names of a source's topics, number of partitions of its change topics, and its partition of `…positions`.

    `changes` are the `naming.change_topic` of its tables. `open_ended`: more may appear, for tables that the topology
    does not list. `merged` are the topics of merged tables. `made` are the topics of changes in Kafka that are known to
    exist (`naming.Routing`).
    """

    changes: tuple[str, ...]
    partitions: int
    schemas: str
    history: str
    quarantine: str
    positions: str
    positions_partition: int
    open_ended: bool = False
    merged: frozenset[str] = frozenset()
    made: frozenset[str] = frozenset()

    def may_contain(self, topic: str) -> bool:
        """Return whether a topic in Kafka may contain tables that the topology does not list."""
        return self.open_ended or topic in self.merged


def source_topics(topology: Topology, source: Source) -> SourceTopics:
    """Return names and partitions of a source's topics.

    The partition of `…positions` is the source's index in the topology file. Sources outside the file share a fixed
    number of partitions, by the hash of their name.
    """
    names = list(topology.sources)
    place = names.index(source.name) if source.name in names else zlib.crc32(source.name.encode()) % _PLACES
    return SourceTopics(
        changes=tuple(naming.change_topic(topology.name, table) for table in declared_tables(source)),
        partitions=topology.log.partitions,
        schemas=naming.schemas_topic(topology.name),
        history=naming.history_topic(topology.name),
        quarantine=naming.quarantine_topic(topology.name),
        positions=naming.positions_topic(topology.name),
        positions_partition=place,
        open_ended=source.filter_policy == "accept",
        merged=frozenset(naming.change_topic(topology.name, one.table_id) for one in source.merged),
    )


def make_topics(topology: Topology, source: Source) -> SourceTopics:
    """Create the topics of a source that do not exist: those of all sources, and the change topics of its first tables.

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
    routed = topology.routing.topic
    first = {routed(name) for name in (*topics.changes[:AT_ONCE], *filter(is_named(topology), topics.changes))}
    wanted: dict[str, tuple[int, dict[str, str]]] = dict.fromkeys(sorted(first), (log.partitions, compacted))
    wanted[topics.schemas] = wanted[topics.history] = (1, compacted)
    places = max(len(topology.sources), topics.positions_partition + 1)
    wanted[topics.positions] = (places, compacted)
    wanted[naming.quarantine_topic(topology.name)] = wanted[naming.signals_topic(topology.name)] = (1, passing)
    wanted[naming.dead_letter_topic(topology.name)] = (1, dead_letter_end.TOPIC)
    with _answering(log) as admin:
        found = _partition_counts(admin)
        missing = [
            WantedTopic(name=name, partitions=partitions, replication=log.replication_factor, config=config)
            for name, (partitions, config) in wanted.items()
            if name not in found
        ]
        _make(log, missing)
        if found.get(topics.positions, places) < places:
            add_partitions(log.brokers, topics.positions, places)
        found |= _when_ready(admin, wanted)
    made = frozenset(name for name in map(routed, topics.changes) if name in found)
    for name in sorted(made):
        _check_partitions(log, name, found[name])
    return replace(topics, made=made)


def shared_topics(topology: Topology, topics: SourceTopics) -> frozenset[str]:
    """Return the topics that all sources share, which exist from the start."""
    return frozenset(
        (topics.schemas, topics.history, topics.quarantine, topics.positions, naming.dead_letter_topic(topology.name))
    )


def is_named(topology: Topology) -> Callable[[str], bool]:
    """Return the function that says whether a change topic is one of a table that a query may read, by its name.

    It may also name topics that no query reads, because queries are not parsed here.
    """
    names = {
        fold_identifier(next(filter(None, found)))
        for table in topology.tables.values()
        for found in _NAME.findall(table.query)
    }

    def named(topic: str) -> bool:
        table = naming.table_of(topology.name, topic)
        return table is None or fold_identifier(table.table) in names

    return named


class NewTopics:
    """Creates change topics that do not exist, over connections that stay open for the block.

    All methods raise Retriable while Kafka is unavailable, and UsageError for a topic that Kafka refuses, or that has
    another number of partitions than the topology. `pause`: seconds until the next `look`; 0 if no topic is under way.
    """

    def __init__(self, log: Log) -> None:
        self._log, self._maker = log, TopicMaker(log.brokers)
        self._stack = ExitStack()
        self._left, self.pause, self._deadline = list[str](), 0.0, 0.0
        self._settings: Mapping[str, str] | None = None  # of new topics; None: the brokers' were not read yet

    def __enter__(self) -> NewTopics:
        self._admin = self._stack.enter_context(_answering(self._log))
        self._stack.callback(self._maker.close)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    def request(self, names: Sequence[str]) -> None:
        """Create topics, without waiting until their brokers accept requests."""
        if not names:
            return
        log = self._log
        if self._settings is None:
            self._settings = own_settings(self._admin, _compacted(log))
        wanted = [
            WantedTopic(name=name, partitions=log.partitions, replication=log.replication_factor, config=self._settings)
            for name in names
        ]
        refusals = self._maker.create(wanted)
        # a client that may not create topics can use those that exist
        denied = [name for name, refused in refusals.items() if refused.code in DENIED]
        there = _existing(self._admin, denied) if denied else set[str]()
        _check_refusals(log, {name: refused for name, refused in refusals.items() if name not in there})
        if not self._left:
            self._deadline, self.pause = time.monotonic() + TIMEOUT, _LOOK
        self._left += names

    def look(self) -> list[str]:
        """Return requested topics that are ready since the last call."""
        # brokers learn of topics in the order of their creation, so later ones are not asked for before they are ready
        some, later = self._left[:_BATCH], self._left[_BATCH:]
        found = _described(self._admin, some) if some else {}
        for name, partitions in found.items():
            _check_partitions(self._log, name, partitions)
        self._left = [name for name in some if name not in found] + later
        if found:
            self._deadline, self.pause = time.monotonic() + TIMEOUT, min(_LOOK + len(self._left) / 1000, _LONGEST_LOOK)
        elif time.monotonic() > self._deadline:
            raise _without_leader(self._left)
        else:
            self.pause = min(2 * self.pause, _LONGEST_LOOK)
        if not self._left:
            self.pause = 0.0
        return list(found)


def make_topic(log: Log, name: str, partitions: int, config: Mapping[str, str]) -> int:
    """Create a topic if it does not exist, wait until it is writable, and return its number of partitions.

    Raises Retriable while Kafka is unavailable.
    """
    with _answering(log) as admin:
        if name not in _partition_counts(admin):
            replicas = log.replication_factor
            _make(log, [WantedTopic(name=name, partitions=partitions, replication=replicas, config=config)])
        return _when_ready(admin, [name])[name]


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
        # librdkafka is asked first: kafka-python leaks sockets of failed attempts while a broker is unavailable
        with AdminClient(client_settings(log.brokers, error_cb=on_error)) as admin:
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
            f"a topic's partition count is fixed: correct log.partitions, or {RECREATE}",
        )


def partitions_added(name: str, written: int) -> UsageError:
    """Return the error for a topic that got more partitions than its records were `written` to."""
    return UsageError(
        f"topic {name} got more partitions than the {written} that its records were written to: later changes of a "
        "row would be in another partition, and no reader could order them",
        f"set log.partitions to the number you want, then {RECREATE}",
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


def _existing(admin: AdminClient, wanted: Sequence[str]) -> set[str]:
    """Return which of these topics exist. Asks only for them: a list of all topics grows with each batch."""
    found: set[str] = set()
    for at in range(0, len(wanted), _BATCH):
        names = TopicCollection(list(wanted[at : at + _BATCH]))
        for name, answer in admin.describe_topics(names, request_timeout=TIMEOUT).items():
            try:
                answer.result(TIMEOUT)
            except KafkaException as error:
                if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise
            else:
                found.add(name)
    return found


def _make(log: Log, topics: Sequence[WantedTopic]) -> None:
    """Create topics. Raises UsageError for a name that Kafka refuses, and Retriable for other refusals."""
    _check_refusals(log, create_topics(log.brokers, topics))


def _check_refusals(log: Log, refusals: Mapping[str, AdminRefusal]) -> None:
    for name, refused in refusals.items():
        if refused.code == INVALID_TOPIC:  # another topic's name differs only in `.` and `_`
            remedy = "list its table without a word under `filter_policy: accept`, or leave it out of `tables:`"
            raise UsageError(f"Kafka refuses topic {name}: {refused.text}", remedy)
        raise Retriable(f"Kafka at {log.brokers}: topic {name}: {refused.text}", retry_after=2.0)


def _when_ready(admin: AdminClient, wanted: Collection[str]) -> dict[str, int]:
    """Return the number of partitions of each wanted topic, once all partitions have a leader. Raises Retriable
    otherwise."""
    deadline, ready, left, pause = time.monotonic() + TIMEOUT, dict[str, int](), sorted(wanted), _LOOK
    while left:
        # brokers learn of topics in the order of their creation, so later ones are not asked for before they are ready
        some, later = left[:_BATCH], left[_BATCH:]
        found = _described(admin, some)
        ready |= found
        left = [name for name in some if name not in found] + later
        if found:
            deadline, pause = time.monotonic() + TIMEOUT, _LOOK
        elif time.monotonic() > deadline:
            raise _without_leader(left)
        if len(found) < len(some):
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_LOOK)
    return ready


def _without_leader(names: Sequence[str]) -> Retriable:
    shown = ", ".join(names[:10]) + (f" and {len(names) - 10} more topics" if len(names) > 10 else "")
    return Retriable(f"Kafka has no leader for {shown}")


def _described(admin: AdminClient, names: list[str]) -> dict[str, int]:
    """Return the number of partitions of those topics whose partitions all have a leader."""
    ready: dict[str, int] = {}
    for name, answer in admin.describe_topics(TopicCollection(names), request_timeout=TIMEOUT).items():
        try:
            partitions = answer.result(TIMEOUT).partitions
        except KafkaException as error:
            if error.args[0].code() not in _NOT_YET:
                raise
            continue  # the broker that answered does not know it yet
        if partitions and all(partition.leader is not None for partition in partitions):
            ready[name] = len(partitions)
    # a broker may describe a topic before it accepts requests as the leader of its partitions
    newest = OffsetSpec.latest()  # type: ignore[no-untyped-call]  # typed nowhere
    asked = {TopicPartition(name, number): newest for name, count in ready.items() for number in range(count)}
    for at, answer in admin.list_offsets(asked, request_timeout=TIMEOUT).items() if asked else ():
        try:
            answer.result(TIMEOUT)
        except KafkaException as error:
            if error.args[0].code() not in _NOT_YET:
                raise
            ready.pop(at.topic, None)
    return ready
