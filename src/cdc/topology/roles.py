"""Roles of Kafka clients. A process connects with the login of its role (`log.security.roles`), or with that of all."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal, get_args

from cdc.model.brokers import Brokers, KafkaSecurity
from cdc.model.errors import TopologyError, UsageError

if TYPE_CHECKING:
    from cdc.topology.topology import Topology

KafkaRole = Literal["capture", "gateway", "join", "indexer", "console", "operator"]
ROLES: tuple[KafkaRole, ...] = get_args(KafkaRole)


def as_role(topology: Topology, role: KafkaRole) -> Topology:
    """Return the topology with the login of a role.

    Raises the TopologyError of a secret that this host lacks. Only the host of a role needs its secrets. Raises
    UsageError if the topology has no login for the role.
    """
    found, brokers = topology.log.roles.get(role), topology.log.brokers
    if isinstance(found, TopologyError):
        raise found
    if found is None:
        found = brokers.security
        if found is not None and not has_login(found):
            what = f"{topology.file}: log.security has no login for the role {role}"
            raise UsageError(what, f"add roles: {{{role}: …}} to it, or username and password for all other roles")
    return replace(topology, log=replace(topology.log, brokers=Brokers(brokers.servers, found)))


def has_login(security: KafkaSecurity) -> bool:
    """Return whether the settings are complete: SASL needs a user name."""
    return security.mechanism is None or security.username is not None
