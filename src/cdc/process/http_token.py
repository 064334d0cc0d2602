"""Tokens of an OAuth 2.0 server for kafka-python (SASL OAUTHBEARER): the grant of client credentials (RFC 6749, 4.4).

librdkafka and Java's client get their tokens themselves.
"""

from __future__ import annotations

import base64
import json
import ssl
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from typing import Any

from cdc.model.brokers import KafkaSecurity
from cdc.model.errors import Retriable, UsageError

_TIMEOUT = 10.0
_SHARE = 0.8  # of its life, after which a token is replaced
_LARGEST = 1 << 20


class ClientToken:
    """The token of one client. It is fetched when it is first needed, and again before it expires; safe for threads."""

    def __init__(self, security: KafkaSecurity) -> None:
        self._security, self._lock = security, threading.Lock()
        self._token, self._until = "", 0.0

    def token(self) -> str:
        """Return a valid token. Raises Retriable while the server does not answer, and UsageError if it refuses the
        client."""
        with self._lock:
            if time.monotonic() >= self._until:
                answer = self._fetched()
                life = answer.get("expires_in", 60)
                self._token = str(answer["access_token"])
                self._until = time.monotonic() + _SHARE * float(life)
            return self._token

    def _fetched(self) -> dict[str, Any]:
        one = self._security
        form = {"grant_type": "client_credentials", **({"scope": one.scope} if one.scope else {})}
        login = f"{one.username}:{one.password}"  # as it is: Kafka's other clients do not encode it either
        request = urllib.request.Request(
            one.token_url or "",
            urllib.parse.urlencode(form).encode(),
            {"Authorization": f"Basic {base64.b64encode(login.encode()).decode()}", "Accept": "application/json"},
        )
        try:
            trusted = ssl.create_default_context(cafile=one.token_ca_file) if request.type == "https" else None
            with urllib.request.urlopen(request, timeout=_TIMEOUT, context=trusted) as response:
                found: dict[str, Any] = json.loads(response.read(_LARGEST))
            found["access_token"]
        except urllib.error.HTTPError as error:
            with error:
                what = f"log.security.token_url {one.token_url} answers {error.code} {error.reason}"
            if error.code >= 500:
                raise Retriable(what) from error
            raise UsageError(what, "check log.security.username, password and scope") from error
        except (OSError, ValueError, KeyError) as error:
            raise Retriable(f"log.security.token_url {one.token_url} gives no token: {error}") from error
        return found
