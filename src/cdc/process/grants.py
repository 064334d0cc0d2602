"""Grants that each role of a topology needs in Kafka: the source of `tailorbird acls`, of the check at the start of
each process, and of its test.

Operations have Kafka's names. READ or WRITE includes DESCRIBE, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from cdc.model import naming
from cdc.topology.roles import KafkaRole
from cdc.topology.topology import Topology

Resource = Literal["topic", "group", "transactional-id"]
Operation = Literal["CREATE", "READ", "WRITE", "ALTER", "DESCRIBE"]
GROUPS = "tailorbird-"  # all consumer groups begin so; nothing is ever committed in them


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """Operations that a role needs on one resource, or with `prefixed` on all whose names begin with `name`.

    `why` is the reason for people."""

    resource: Resource
    name: str
    prefixed: bool
    operations: tuple[Operation, ...]
    why: str

    def covers(self, name: str) -> bool:
        """Return whether the grant is about the resource `name`."""
        return name.startswith(self.name) if self.prefixed else name == self.name

    def command(self, principal: str, servers: str) -> str:
        """Return the command line that gives the grant to a principal."""
        operations = " ".join(f"--operation {one.capitalize()}" for one in self.operations)
        pattern = " --resource-pattern-type prefixed" if self.prefixed else ""
        return (
            f"kafka-acls.sh --bootstrap-server {servers} --command-config admin.properties --add --allow-principal "
            f"'{principal}' {operations} --{self.resource} '{self.name}'{pattern}"
        )


def grants(topology: Topology, role: KafkaRole) -> tuple[Grant, ...]:
    """Return all that a role needs for this topology. Without one of them, a process of the role does not start."""
    return tuple(_GRANTS[role](topology))


def _capture(topology: Topology) -> Iterator[Grant]:
    name = topology.name
    for source in topology.sources.values():
        if source.agent is None:
            yield _prefix(f"{name}.{source.name}.", "publish changes; find rows for repairs", "CREATE", "READ", "WRITE")
            yield Grant(
                resource="transactional-id", name=naming.transactional_id(name, source.name), prefixed=False,
                operations=("WRITE",), why="commit rows and position together",
            )  # fmt: skip
    for topic in (naming.schemas_topic, naming.history_topic, naming.quarantine_topic):
        yield _topic(topic(name), "publish and read back", "CREATE", "READ", "WRITE")
    yield _topic(naming.positions_topic(name), "positions; ALTER adds partitions", "CREATE", "READ", "WRITE", "ALTER")
    yield _topic(naming.dead_letter_topic(name), "publish dead letters", "CREATE", "WRITE")
    yield _topic(naming.signals_topic(name), "requests for snapshots", "CREATE", "READ")
    yield _groups()


def _gateway(topology: Topology) -> Iterator[Grant]:
    """A gateway writes what its agents capture, also of sources that are added later."""
    own = f"{topology.name}."
    yield _prefix(own, "publish what agents capture; the fleet's state", "CREATE", "READ", "WRITE")
    yield _topic(naming.positions_topic(topology.name), "add partitions", "ALTER")
    yield Grant(
        resource="transactional-id", name=own, prefixed=True, operations=("WRITE",), why="commit rows and position",
    )  # fmt: skip
    yield _groups()


def _join(topology: Topology) -> Iterator[Grant]:
    name = topology.name
    for source in topology.sources.values():
        yield _prefix(f"{name}.{source.name}.", "changes of the tables", "READ")
    yield _topic(naming.schemas_topic(name), "columns of the tables", "READ")
    yield _topic(naming.positions_topic(name), "positions for barriers", "READ")
    yield _topic(naming.dead_letter_topic(name), "publish and settle dead letters", "READ", "WRITE")
    for table in topology.tables.values():
        if table.sink == "kafka":
            yield _topic(naming.upsert_topic(name, table.name), "write the joined table", "CREATE", "READ", "WRITE")
    yield _groups()


def _indexer(topology: Topology) -> Iterator[Grant]:
    why = "publish and settle dead letters"
    yield _topic(naming.dead_letter_topic(topology.name), why, "CREATE", "READ", "WRITE")
    yield _groups()


def _console(topology: Topology) -> Iterator[Grant]:
    yield _prefix(f"{topology.name}.", "verify, status, wait, tail, dashboards", "READ")
    yield _topic(naming.checks_topic(topology.name), "store the results of checks", "CREATE", "WRITE")
    yield _groups()


def _operator(topology: Topology) -> Iterator[Grant]:
    own = f"{topology.name}."
    why = "apply, snapshot, rewind, schema, dead-letters, fleet token"
    yield _prefix(own, why, "CREATE", "READ", "WRITE")
    yield _topic(naming.positions_topic(topology.name), "add partitions", "ALTER")
    yield Grant(resource="transactional-id", name=own, prefixed=True, operations=("WRITE",), why="rewind, schema")
    yield _groups()


def _topic(name: str, why: str, *operations: Operation) -> Grant:
    return Grant(resource="topic", name=name, prefixed=False, operations=operations, why=why)


def _prefix(name: str, why: str, *operations: Operation) -> Grant:
    return Grant(resource="topic", name=name, prefixed=True, operations=operations, why=why)


def _groups() -> Grant:
    why = "Kafka's client asks for it, though it commits nothing"
    return Grant(resource="group", name=GROUPS, prefixed=True, operations=("DESCRIBE",), why=why)


_GRANTS = {
    "capture": _capture, "gateway": _gateway, "join": _join, "indexer": _indexer, "console": _console,
    "operator": _operator,
}  # fmt: skip
