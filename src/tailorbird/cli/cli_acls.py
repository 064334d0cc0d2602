"""`tailorbird acls`: print what each role must be allowed to do in Kafka."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cdc.topology.roles import KafkaRole
    from cdc.topology.topology import Topology


def acls(
    file: Annotated[str, typer.Argument(metavar="TOPOLOGY", help="The topology's YAML file.")],
    role: Annotated[str | None, typer.Option("--role", help="Only this role.")] = None,
    commands: Annotated[bool, typer.Option("--commands", help="Print the calls of kafka-acls.sh.")] = False,
    apply: Annotated[bool, typer.Option("--apply", help="Give the grants, as the login under log.security.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per grant and line.")] = False,
) -> None:
    """Print the grants that each role needs in Kafka, for access control lists, or give them with --apply.

    Contacts no server without --apply. A principal is the login of the role under `log.security.roles` of the topology,
    else `ROLE`, to which --apply grants nothing.

    Example: tailorbird acls topologies/shop.yml --role capture --commands
    """
    from cdc.model.errors import UsageError
    from cdc.process.file_topology import read_file
    from cdc.process.grants import grants
    from cdc.process.kafka_admin import allow
    from cdc.topology.roles import ROLES

    topology = read_file(file)
    if role is not None and role not in ROLES:
        raise UsageError(f"there is no role {role}", f"one of {', '.join(ROLES)}")
    chosen = [one for one in ROLES if role in (None, one)]
    if apply:
        _check_logins(topology, chosen)
    for one in chosen:
        principal = principal_of(topology, one)
        if apply:
            allow(topology.log.brokers, principal, grants(topology, one))
            typer.echo(f"granted to {principal}, the login of the role {one}:", err=as_json or commands)
        for grant in grants(topology, one):
            if as_json:
                typer.echo(json.dumps({"role": one, "principal": principal, **dataclasses.asdict(grant)}))
            elif commands:
                typer.echo(grant.command(principal, topology.log.bootstrap_servers))
            else:
                name = f"{grant.name}*" if grant.prefixed else grant.name
                typer.echo(f"{one:<9}{', '.join(grant.operations):<28}{grant.resource:<17}{name}  ({grant.why})")


def principal_of(topology: Topology, role: KafkaRole) -> str:
    """Return Kafka's name of a role's login; of a certificate it is the subject, as Kafka writes it by default.

    `User:ROLE` stands for a login that the topology lacks. Raises UsageError for an unreadable certificate.
    """
    return login_of(topology, role) or f"User:{role}"


def login_of(topology: Topology, role: KafkaRole) -> str | None:
    """Return Kafka's name of the login that the topology has for a role, None if there is none that this host can read.

    Raises UsageError for an unreadable certificate.
    """
    from cdc.model.brokers import KafkaSecurity

    found = topology.log.roles.get(role, topology.log.brokers.security)
    if not isinstance(found, KafkaSecurity) or (found.username is None and found.certificate_file is None):
        return None
    return f"User:{found.username or _subject(found.certificate_file or '')}"


def _check_logins(topology: Topology, roles: Sequence[KafkaRole]) -> None:
    """Raise the error of a role that has no login here: nobody knows to which principal its rights must be granted."""
    from cdc.model.errors import TopologyError, UsageError

    for role in roles:
        found = topology.log.roles.get(role)
        if isinstance(found, TopologyError):
            raise found
        if login_of(topology, role) is None:
            raise UsageError(
                f"{topology.file}: log.security has no login for the role {role}, so --apply grants nothing",
                f"add {role} to log.security.roles, or grant the rights of one role by --role",
            )


def _subject(file: str) -> str:
    from pathlib import Path

    from cryptography import x509

    from cdc.model.errors import UsageError

    try:
        return x509.load_pem_x509_certificate(Path(file).read_bytes()).subject.rfc4514_string()
    except (OSError, ValueError) as error:
        raise UsageError(f"{file}: {error}", "certificate_file: a certificate in PEM") from error
