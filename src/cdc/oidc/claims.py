"""Users of an OpenID Connect issuer: their names and roles, from the claims of an ID token whose signature is valid."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from cdc.model.errors import UsageError

Role = Literal["view", "operate", "admin"]
ROLES: tuple[Role, ...] = get_args(Role)  # in increasing order: each role includes the ones before it
# asymmetric ones only: `none` has no signature, and with HS256 a public key would be a shared secret
ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "Ed25519")
LONGEST = 16_384  # characters of a token
_LEEWAY = 60.0  # seconds by which clocks may differ
_LONGEST_NAME = 200


class OidcRefused(UsageError):
    """A login or token of an issuer that is not accepted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OidcSettings:
    """An issuer, and how its users get roles.

    `roles` gives the values of the claim `roles_claim` that have a role; `name_claim` names the user in the audit.
    `url` is the address of the pages as browsers see it, without a path. `ca` is a file of authorities, or empty."""

    issuer: str
    client_id: str
    client_secret: str = field(default="", repr=False)
    url: str = ""
    ca: str = ""
    name_claim: str = "sub"
    roles_claim: str = "groups"
    roles: Mapping[Role, frozenset[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class OidcUser:
    """A user with a role, until `ends` (seconds since 1970)."""

    name: str
    role: Role
    ends: float

    def may(self, role: Role) -> bool:
        """Return whether the user's role includes another role."""
        return ROLES.index(self.role) >= ROLES.index(role)


def user_of(claims: Mapping[str, Any], settings: OidcSettings, now: float, nonce: str | None = None) -> OidcUser:
    """Return the user of an ID token. Raises OidcRefused for a token of another issuer, client, login or time.

    `nonce` is that of the login, or None for a token that a program shows. `now` is in seconds since 1970.
    """
    if claims.get("iss") != settings.issuer:
        raise OidcRefused("the token is from another issuer")
    audience = claims.get("aud")
    clients = [audience] if isinstance(audience, str) else audience
    if not isinstance(clients, list) or settings.client_id not in clients:
        raise OidcRefused("the token is for another client")
    if (len(clients) > 1 or "azp" in claims) and claims.get("azp") != settings.client_id:
        raise OidcRefused("the token was issued to another client")
    ends, issued, begins = (_seconds(claims, name) for name in ("exp", "iat", "nbf"))
    if ends is None or issued is None:
        raise OidcRefused("the token has no time")
    if now >= ends + _LEEWAY:
        raise OidcRefused("the token has expired")
    if max(issued, begins or 0.0) > now + _LEEWAY:
        raise OidcRefused("the token is from the future")
    if nonce is not None and claims.get("nonce") != nonce:
        raise OidcRefused("the token is of another login")
    if "email" in (settings.name_claim, settings.roles_claim) and claims.get("email_verified") is not True:
        raise OidcRefused("the issuer has not verified the user's email address")
    return OidcUser(name=_name(claims, settings), role=_role(claims, settings), ends=ends)


def _seconds(claims: Mapping[str, Any], name: str) -> float | None:
    value = claims.get(name)
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
        raise OidcRefused(f"the token's {name} is not a time")
    return value


def _name(claims: Mapping[str, Any], settings: OidcSettings) -> str:
    name = claims.get(settings.name_claim)
    if not isinstance(name, str) or not 0 < len(name) <= _LONGEST_NAME or not name.isprintable():
        raise OidcRefused(f"the token has no claim {settings.name_claim} with a name")
    return name


def _role(claims: Mapping[str, Any], settings: OidcSettings) -> Role:
    value: Any = claims.get(settings.roles_claim)
    if value is None:  # a path, such as Keycloak's realm_access.roles
        value = claims
        for part in settings.roles_claim.split("."):
            value = value.get(part) if isinstance(value, dict) else None
    values = [value] if isinstance(value, str) else value if isinstance(value, list) else []
    has = {one for one in values if isinstance(one, str)}
    found = [role for role in ROLES if has & settings.roles.get(role, frozenset())]
    if not found:
        raise OidcRefused(f"the user has no role: the claim {settings.roles_claim} has none of the configured values")
    return found[-1]
