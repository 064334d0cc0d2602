"""Who is at the other end of a stream, as its certificate says; pure.

The subject's alternative name `tailorbird://TENANT/agents/NAME` is the identity; what a message's header says must be
the same, and counts for nothing alone.
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
        """As it stands in a certificate."""
        return f"tailorbird://{self.tenant}/{self.role}/{self.name}"


def identity(tenant: str, role: str, name: str) -> FleetIdentity:
    """An identity of names that people give; UsageError says which is none."""
    if not _TENANT.fullmatch(tenant):
        raise UsageError(f"{tenant!r} is no tenant's name", "a small letter, then at most 19 small letters and digits")
    if not _NAME.fullmatch(name):
        raise UsageError(f"{name!r} is no name of an agent or a gateway", "small letters, digits, dots and dashes")
    return FleetIdentity(tenant, role, name)


def identity_of(names: Iterable[str]) -> FleetIdentity | None:
    """The identity among a certificate's alternative names; None where there is none, or more than one."""
    found = [_URI.fullmatch(name) for name in names if name.startswith("tailorbird:")]
    if len(found) != 1 or found[0] is None:
        return None
    tenant, role, name = found[0].groups()
    if not _TENANT.fullmatch(tenant) or not _NAME.fullmatch(name):
        return None
    return FleetIdentity(tenant, role, name)
