"""Who reaches the pages, and how: what an address beyond this machine must come with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from cdc.model.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """`users` are argon2 hashes by name, none where everybody may look; `certificate` and `key` are files of TLS, empty
    without. `behind_proxy`: somebody else's proxy does both.
    """

    users: Mapping[str, str] = field(default_factory=dict, repr=False)
    certificate: str = ""
    key: str = ""
    behind_proxy: bool = False

    @property
    def secure(self) -> bool:
        """Whether the server itself speaks TLS."""
        return bool(self.certificate)


ANYBODY = Access()


def refuse_open(host: str, access: Access, *, loopback: bool) -> None:
    """UsageError where others than this machine could look, or listen, without a login and TLS."""
    if bool(access.certificate) != bool(access.key):
        raise UsageError("a certificate needs its key", "--tls-cert FILE --tls-key FILE")
    if loopback or access.behind_proxy:
        return
    if not access.users:
        raise UsageError(
            f"{host} is reached by others, and nobody is asked who they are", "--auth FILE, or --behind-proxy"
        )
    if not access.secure:
        raise UsageError(
            f"{host} is reached by others, who would send passwords in the clear",
            "--tls-cert FILE --tls-key FILE, or --behind-proxy",
        )
