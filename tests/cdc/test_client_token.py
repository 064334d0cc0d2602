"""Tokens for kafka-python: fetched once, again before they expire, and never in a message."""

from __future__ import annotations

import pytest
from kafka.net.sasl.oauth import SaslMechanismOAuth

from cdc.model.brokers import Brokers, KafkaSecurity
from cdc.model.errors import Retriable, UsageError
from cdc.process.http_token import ClientToken
from cdc.process.kafka_login import python_settings
from tests.support.oidc_issuer import CLIENT, SECRET, issuing


def security(url: str, secret: str = SECRET) -> KafkaSecurity:
    return KafkaSecurity(
        protocol="SASL_SSL", mechanism="OAUTHBEARER", username=CLIENT, password=secret, token_url=url, scope="kafka"
    )


def test_a_token_is_fetched_once_and_again_before_it_expires(monkeypatch: pytest.MonkeyPatch) -> None:
    """kafka-python gets the token that the server gave for the client and the scope."""
    now = [1000.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    with issuing() as issuer:
        settings = python_settings(Brokers("k:9", security(f"{issuer.url}/token")))
        sasl = SaslMechanismOAuth(**settings)
        first = sasl.auth_bytes()
        assert first.startswith(b"n,,\x01auth=Bearer ey")
        now[0] += 230
        assert sasl.auth_bytes() == first
        assert issuer.redeemed == [{"grant_type": "client_credentials", "scope": "kafka"}]
        now[0] += 20
        sasl.auth_bytes()
        assert len(issuer.redeemed) == 2


def test_refusals_name_the_key_and_not_the_secret() -> None:
    """A wrong secret is an error of the topology; a server that does not answer may answer later."""
    with issuing() as issuer:
        with pytest.raises(UsageError, match=r"token_url .*401") as refused:
            ClientToken(security(f"{issuer.url}/token", "guess")).token()
        assert "guess" not in str(refused.value) + refused.value.hint
        url = f"{issuer.url}/token"
    with pytest.raises(Retriable, match="gives no token"):
        ClientToken(security(url)).token()
