"""Ask Kafka whether this process may do what its role needs (`cdc.process.grants`), before the process begins.

Kafka returns the operations that a client may execute on a topic (KIP-430), so no right to list access rules is needed.
The right to a transactional id cannot be asked for; a capture finds out when it begins its session.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

from cdc.model.brokers import Brokers, refuses
from cdc.model.errors import Retriable, UsageError
from cdc.process.grants import Grant, grants
from cdc.process.kafka_admin import DENIED, WantedTopic, create_topics
from cdc.topology.roles import KafkaRole
from cdc.topology.topology import Topology

_TIMEOUT = 10.0
_LOOKED_AT = 100  # topics of one prefix
_PROBE = "tailorbird-check"  # ends the name of a topic or group that stands for those that do not exist yet
_DENIED = (
    KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
)  # fmt: skip


def check_grants(topology: Topology, role: KafkaRole) -> None:
    """Return if Kafka lets this process do all that its role needs; without `log.security` nothing is asked.

    Raises UsageError that names principal, operation, resource and remedy, and Retriable while Kafka is unavailable.
    """
    brokers = topology.log.brokers
    if brokers.security is None:
        return
    refused = list[str]()

    def on_error(error: KafkaError) -> None:
        if refuses(error.name(), error.str()):
            refused.append(error.str())

    try:
        settings: dict[str, Any] = {**brokers.librdkafka(), "log_level": 0, "error_cb": on_error}
        with AdminClient(settings) as admin:
            lacking = list(_lacking(admin, brokers, grants(topology, role)))
    except KafkaException as error:
        reason = refused[-1] if refused else error.args[0].str()
        raise Retriable(f"Kafka at {brokers}: {reason}", "correct log.security", retry_after=2.0) from error
    if lacking:
        raise denied(topology, lacking, role)


def granted(topology: Topology, role: KafkaRole) -> Topology:
    """Return the topology, for a command that reports by itself that Kafka is unavailable.

    Raises UsageError like `check_grants`.
    """
    with suppress(Retriable):
        check_grants(topology, role)
    return topology


def denied(topology: Topology, lacking: Iterable[str], role: KafkaRole | None = None) -> UsageError:
    """Return the error for missing rights, such as `READ on topic shop.signals`."""
    brokers = topology.log.brokers
    who = f"{principal_of(brokers)} (role {role})" if role else principal_of(brokers)
    command = f"tailorbird acls {topology.file}{f' --role {role}' if role else ''} --commands"
    what = f"Kafka at {brokers} denies {who}: {', '.join(dict.fromkeys(lacking))}"
    return UsageError(what, f"grant it: `{command}` prints how")


def principal_of(brokers: Brokers) -> str:
    """Return the name of this client for people: Kafka's principal, or the certificate that contains it."""
    security = brokers.security
    if security is not None and security.username is not None:
        return f"User:{security.username}"
    return f"certificate {security.certificate_file}" if security and security.certificate_file else "User:ANONYMOUS"


def _lacking(admin: AdminClient, brokers: Brokers, wanted: Iterable[Grant]) -> Iterator[str]:
    wanted = list(wanted)
    topics = [one for one in wanted if one.resource == "topic"]
    needed = _needed(topics, list(admin.list_topics(timeout=_TIMEOUT).topics))
    allowed = _allowed(admin, brokers, needed)
    for topic, operations in needed.items():
        for operation in operations:
            if operation not in allowed[topic]:
                yield f"{operation} on topic {topic.replace(_PROBE, '*')}"
    for one in wanted:
        if one.resource == "group" and _is_denied(_group(admin, one.name + _PROBE)):
            yield f"DESCRIBE on group {one.name}*"


def _needed(topics: Iterable[Grant], visible: Iterable[str]) -> Mapping[str, list[str]]:
    """Return the operations to ask for, by topic. Kafka shows only topics that this client may describe."""
    found, visible = dict[str, list[str]](), list(visible)
    for one in topics:
        known = sorted(filter(one.covers, visible))[:_LOOKED_AT] if one.prefixed else [one.name]
        for topic in known or [one.name + _PROBE]:
            found.setdefault(topic, []).extend(one.operations)
    return found


def _allowed(admin: AdminClient, brokers: Brokers, needed: Mapping[str, list[str]]) -> Mapping[str, set[str]]:
    """Return the operations that Kafka allows, by topic. Of a topic that does not exist, only CREATE can be asked."""
    found, missing = dict[str, set[str]](), list[str]()
    asked = admin.describe_topics(
        TopicCollection(list(needed)), include_authorized_operations=True, request_timeout=_TIMEOUT
    )
    for topic, future in asked.items():
        try:
            found[topic] = {one.name for one in future.result(_TIMEOUT).authorized_operations or ()}
        except KafkaException as error:
            if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                missing.append(topic)
            elif _is_denied(error):
                found[topic] = set()
            else:
                raise
    found |= {topic: set(needed[topic]) for topic in missing}
    if made := [topic for topic in missing if "CREATE" in needed[topic]]:
        tried = create_topics(brokers, [WantedTopic(name=one) for one in made], validate_only=True, timeout=_TIMEOUT)
        for topic, refused in tried.items():
            if refused.code in DENIED:
                found[topic].discard("CREATE")
    return found


def _group(admin: AdminClient, group: str) -> KafkaException | None:
    return _failure(admin.describe_consumer_groups([group], request_timeout=_TIMEOUT)[group])


def _failure(future: Any) -> KafkaException | None:
    try:
        future.result(_TIMEOUT)
    except KafkaException as error:
        return error
    return None


def _is_denied(error: KafkaException | None) -> bool:
    return error is not None and error.args[0].code() in _DENIED
