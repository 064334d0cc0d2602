"""Requirements for pages that other machines can reach: a login and TLS."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from cdc.model.errors import UsageError
from cdc.oidc.claims import OidcSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Protection of the pages. `users` gives argon2 hashes by user name. `oidc` is an issuer where users log in.

    Without both, no login is needed. `certificate` and `key` are files for TLS, or empty. `behind_proxy`: an external
    proxy provides TLS, and a login if there is no other."""

    users: Mapping[str, str] = field(default_factory=dict, repr=False)
    oidc: OidcSettings | None = None
    certificate: str = ""
    key: str = ""
    behind_proxy: bool = False

    @property
    def secure(self) -> bool:
        """Return whether the server itself serves TLS."""
        return bool(self.certificate)


ANYBODY = Access()


def refuse_open(host: str, access: Access, *, loopback: bool) -> None:
    """Raise UsageError if other machines could reach `host` without a login, or without TLS."""
    if bool(access.certificate) != bool(access.key):
        raise UsageError("a certificate needs its key", "--tls-cert FILE --tls-key FILE")
    if access.oidc is not None and not access.oidc.url and not loopback:
        raise UsageError("the issuer must send browsers back to this page", "`url: https://…` in the file of --oidc")
    if loopback or access.behind_proxy:
        return
    if not access.users and access.oidc is None:
        remedy = "--auth FILE, --oidc FILE, or --behind-proxy"
        raise UsageError(f"other machines can reach {host} without a login", remedy)
    if not access.secure:
        raise UsageError(
            f"other machines can reach {host}, and would send passwords without TLS",
            "--tls-cert FILE --tls-key FILE, or --behind-proxy",
        )
