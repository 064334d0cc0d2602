"""Unusual keys and claims of an OpenID Connect issuer: they give nobody a role, and take it from nobody."""

from __future__ import annotations

from typing import Any

import pytest

from cdc.model.errors import Retriable
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
    """As RFC 7517 demands. An issuer adds such a key before it signs with it. Only a set without any usable key fails."""
    with issuing() as issuer:
        token, usable = issuer.token(), issuer.key.as_dict(private=False)
        for one in STRANGE:
            assert publishing(issuer, one, usable).verified(token).name == "anna", one
        assert publishing(issuer, *STRANGE, usable, *STRANGE).verified(token).name == "anna"
        for keys in (STRANGE, []):
            with pytest.raises(Retriable, match="none of its keys"):
                publishing(issuer, *keys).verified(token)
