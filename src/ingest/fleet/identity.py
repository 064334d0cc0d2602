"""Identities of agents and gateways in a fleet, as certificates contain them.

An identity is the subject alternative name `tailorbird://TENANT/agents/NAME`. A message header repeats it, but only the
certificate proves it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from cdc.model.errors import UsageError

_TENANT = re.compile(r"[a-z][a-z0-9]{0,19}")
_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,62}[a-z0-9])?")
_URI = re.compile(r"tailorbird://([^/]*)/(agents|gateways)/([^/]*)")


@dataclass(frozen=True, slots=True)
class FleetIdentity:
    """An agent or a gateway of a tenant."""

    tenant: str
    role: str  # agents | gateways
    name: str

    @property
    def uri(self) -> str:
        """Return the subject alternative name for a certificate."""
        return f"tailorbird://{self.tenant}/{self.role}/{self.name}"


def identity(tenant: str, role: str, name: str) -> FleetIdentity:
    """Return the identity for names that a user supplies. Raises UsageError for an invalid name."""
    if not _TENANT.fullmatch(tenant):
        raise UsageError(f"{tenant!r} is not a valid tenant name", "a letter a-z, then at most 19 of a-z and 0-9")
    if not _NAME.fullmatch(name):
        raise UsageError(f"{name!r} is not a valid agent or gateway name", "use a-z, 0-9, dots and dashes")
    return FleetIdentity(tenant, role, name)


def identity_of(names: Iterable[str]) -> FleetIdentity | None:
    """Return the identity in a certificate's subject alternative names; None if there is none, or more than one."""
    found = [_URI.fullmatch(name) for name in names if name.startswith("tailorbird:")]
    if len(found) != 1 or found[0] is None:
        return None
    tenant, role, name = found[0].groups()
    if not _TENANT.fullmatch(tenant) or not _NAME.fullmatch(name):
        return None
    return FleetIdentity(tenant, role, name)
