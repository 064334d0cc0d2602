"""The login of kafka-python's clients, which do not get tokens of an OAuth 2.0 server themselves."""

from __future__ import annotations

from typing import Any

from cdc.model.brokers import Brokers
from cdc.process.http_token import ClientToken


def python_settings(brokers: Brokers) -> dict[str, Any]:
    """Return the keyword arguments for a client of kafka-python, with what gives it tokens if it needs them."""
    settings = brokers.kafka_python()
    if brokers.takes_tokens and brokers.security is not None:
        from kafka.net.sasl.oauth import AbstractTokenProvider

        class Provider(AbstractTokenProvider):  # type: ignore[misc]  # kafka-python has no types
            """Gives kafka-python tokens."""

            def __init__(self, token: ClientToken) -> None:
                self._of = token

            def token(self) -> str:
                """Return a valid token."""
                return self._of.token()

        settings["sasl_oauth_token_provider"] = Provider(ClientToken(brokers.security))
    return settings
