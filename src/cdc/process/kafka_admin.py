"""Administrate Kafka with kafka-python: create topics with their settings, add partitions, grant rights.

No other module changes these (ADR 88). Brokers must have answered another client before: kafka-python
leaves the sockets of failed attempts to the garbage collector, so nothing may try again and again with it while Kafka
is unavailable. Its client is closed after each call, unless a `TopicMaker` keeps it for several.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from typing import Any

from cdc.model.brokers import Brokers
from cdc.model.errors import Retriable, UsageError
from cdc.process.grants import Grant
from cdc.process.kafka_login import python_settings

TIMEOUT = 30.0  # seconds that one call waits for the brokers
_BATCH = 200  # topics of one request
# error codes of Kafka's protocol
INVALID_TOPIC, TOPIC_DENIED, CLUSTER_DENIED, EXISTS = 17, 29, 31, 36
DENIED = (TOPIC_DENIED, CLUSTER_DENIED)


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedTopic:
    """A topic to create: its name, number of partitions and replicas, and settings."""

    name: str
    partitions: int = 1
    replication: int = 1
    config: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminRefusal:
    """Kafka's refusal of one topic: the code of its protocol, and its message."""

    code: int
    text: str


def create_topics(
    brokers: Brokers, topics: Sequence[WantedTopic], *, validate_only: bool = False, timeout: float = TIMEOUT
) -> dict[str, AdminRefusal]:
    """Create topics; return the refusals by name, without those of topics that exist.

    `validate_only`: create nothing, only ask whether Kafka would. Raises Retriable if Kafka does not answer.
    """
    if not topics:
        return {}
    with _opened(brokers, timeout) as admin:
        return _created(admin, topics, validate_only=validate_only)


class TopicMaker:
    """Creates topics like `create_topics`, with a client that stays open until `close` or an error."""

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers
        self._open = ExitStack()
        self._admin: Any = None

    def create(self, topics: Sequence[WantedTopic]) -> dict[str, AdminRefusal]:
        """Create topics; return the refusals by name, without those of topics that exist. Raises Retriable."""
        if not topics:
            return {}
        try:
            with _translated(self._brokers):
                if self._admin is None:
                    self._admin = self._open.enter_context(_opened(self._brokers, TIMEOUT))
                return _created(self._admin, topics)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the connections. Safe to call at any time."""
        self._admin = None
        self._open.close()


def _created(admin: Any, topics: Sequence[WantedTopic], *, validate_only: bool = False) -> dict[str, AdminRefusal]:
    refused: dict[str, AdminRefusal] = {}
    for at in range(0, len(topics), _BATCH):
        wanted = {
            one.name: {
                "num_partitions": one.partitions, "replication_factor": one.replication, "configs": dict(one.config)
            }
            for one in topics[at : at + _BATCH]
        }  # fmt: skip
        answer = admin.create_topics(wanted, validate_only=validate_only, raise_errors=False)
        refused |= dict(_refusals(answer["topics"]))
    return {name: one for name, one in refused.items() if one.code != EXISTS}


def add_partitions(brokers: Brokers, topic: str, partitions: int) -> None:
    """Give a topic more partitions. Raises Retriable if Kafka does not answer, or refuses."""
    with _opened(brokers, TIMEOUT) as admin:
        admin.create_partitions({topic: partitions})


def allow(brokers: Brokers, principal: str, wanted: Sequence[Grant]) -> None:
    """Add access control lists that give grants to a principal, on all hosts. Grants that it has stay as they are.

    Raises Retriable if Kafka does not answer, and UsageError if it refuses.
    """
    from kafka.admin import ACL, ACLOperation, ACLPermissionType, ACLResourcePatternType, ResourcePattern, ResourceType

    rules = [
        ACL(
            principal, "*", ACLOperation[operation], ACLPermissionType.ALLOW,
            ResourcePattern(
                ResourceType[grant.resource.replace("-", "_").upper()], grant.name,
                ACLResourcePatternType.PREFIXED if grant.prefixed else ACLResourcePatternType.LITERAL,
            ),
        )
        for grant in wanted
        for operation in grant.operations
    ]  # fmt: skip
    with _opened(brokers, TIMEOUT) as admin:
        failed = admin.create_acls(rules)["failed"]
    if failed:
        reasons = ", ".join(sorted({one.__name__ for one in failed}))
        remedy = "log in as an administrator of Kafka, whose brokers have an authorizer"
        raise UsageError(f"Kafka at {brokers} refuses to grant {len(failed)} operations ({reasons})", remedy)


def _refusals(topics: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, AdminRefusal]]:
    for one in topics:
        if one["error_code"]:
            text = one.get("error_message") or f"error {one['error_code']}"
            yield one["name"], AdminRefusal(code=one["error_code"], text=text)


@contextmanager
def _opened(brokers: Brokers, timeout: float) -> Iterator[Any]:
    """Open kafka-python's administration client for the block. Its errors become Retriable."""
    from kafka import KafkaAdminClient
    from kafka.admin.client import KafkaNetClient

    made: list[Any] = []

    def client(**settings: Any) -> Any:
        made.append(KafkaNetClient(**settings))
        return made[-1]

    milliseconds = round(timeout * 1000)
    with _translated(brokers):
        try:
            admin = KafkaAdminClient(
                **python_settings(brokers), kafka_client=client, request_timeout_ms=milliseconds,
                bootstrap_timeout_ms=milliseconds,
            )  # fmt: skip
            with closing(admin):
                yield admin
        finally:
            for one in made:  # an attempt to connect that failed leaves it open
                one.close()


@contextmanager
def _translated(brokers: Brokers) -> Iterator[None]:
    from kafka.errors import KafkaError

    try:
        yield
    except (KafkaError, RuntimeError, OSError) as error:  # RuntimeError: the brokers have no controller at the moment
        raise Retriable(f"Kafka at {brokers}: {error}", retry_after=2.0) from error
