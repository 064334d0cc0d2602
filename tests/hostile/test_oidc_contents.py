"""Unusual keys and claims of an OpenID Connect issuer: they give nobody a role, and take it from nobody."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cdc.model.errors import Retriable
from cdc.oidc.claims import OidcRefused, OidcSettings, user_of
from cdc.oidc.http_oidc import OidcIssuer
from tests.support.oidc_issuer import Issuer, issuing

pytestmark = pytest.mark.timeout(60)

POINT = "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU"
STRANGE: list[Any] = [
    {"kty": "AKP", "alg": "ML-DSA-44", "pub": "AA", "kid": "quantum"},
    {"kty": "EC", "crv": "P-999", "x": POINT, "y": POINT, "kid": "curve"},
    {"kty": "EC", "crv": "P-256", "x": POINT, "y": POINT, "kid": "not on the curve"},
    {"kty": "OKP", "crv": "Ed999", "x": POINT, "kid": "other curve"},
    {"kty": "OKP", "crv": "Ed25519", "x": "AA", "kid": "short"},
    {"kty": "RSA", "kid": "empty"},
    {"kty": "RSA", "n": 7, "e": [], "kid": "numbers"},
    {"kty": ["RSA"], "kid": "list"},
    {"kty": "oct", "k": "c2VjcmV0", "kid": "shared"},
    {"kid": "no type"},
    {},
    "text",
    7,
    None,
]


class Published:
    """A key as the issuer lists it."""

    def __init__(self, content: Any) -> None:
        self._content = content

    def as_dict(self, *, private: bool) -> Any:
        return self._content


def publishing(issuer: Issuer, *keys: Any) -> OidcIssuer:
    issuer.published = [Published(one) for one in keys]  # type: ignore[misc]
    return OidcIssuer(issuer.settings())


def test_keys_that_are_not_understood_are_ignored() -> None:
    """As RFC 7517 demands. An issuer adds such a key before it signs with it. Only a set without a usable key fails."""
    with issuing() as issuer:
        token, usable = issuer.token(), issuer.key.as_dict(private=False)
        for one in STRANGE:
            assert publishing(issuer, one, usable).verified(token).name == "anna", one
        assert publishing(issuer, *STRANGE, usable, *STRANGE).verified(token).name == "anna"
        for keys in (STRANGE, []):
            with pytest.raises(Retriable, match="none of its keys"):
                publishing(issuer, *keys).verified(token)


SETTINGS = OidcSettings(
    issuer="https://id.example", client_id="tailorbird", roles={"admin": frozenset({"boss@acme.example", "owners"})}
)


def role(settings: OidcSettings, **claims: Any) -> str:
    token = {"iss": settings.issuer, "aud": settings.client_id, "sub": "anna", "iat": 1000, "exp": 2000, **claims}
    return user_of(token, settings, 1500.0).role


def test_an_unverified_address_gives_no_role() -> None:
    """At many issuers users enter any address. It is refused as a role, too, not only as a name."""
    settings = replace(SETTINGS, roles_claim="email")
    assert role(settings, email="boss@acme.example", email_verified=True) == "admin"
    for more in ({}, {"email_verified": False}, {"email_verified": "true"}, {"email_verified": 1}):
        with pytest.raises(OidcRefused, match="has not verified"):
            role(settings, email="boss@acme.example", **more)
    assert role(SETTINGS, email="boss@acme.example", groups="owners") == "admin", "no role depends on the address"


@pytest.mark.parametrize("value", [7, 0.5, True, False, {"owners": 1}, [["owners"]], [None], "", "own"])
def test_a_claim_that_is_neither_a_list_nor_a_text_gives_no_role(value: Any) -> None:
    for name, claims in (("groups", {"groups": value}), ("a.b", {"a": {"b": value}})):
        with pytest.raises(OidcRefused, match="has no role"):
            role(replace(SETTINGS, roles_claim=name), **claims)
