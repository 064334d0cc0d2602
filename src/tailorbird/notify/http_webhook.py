"""Send one event to a webhook by HTTP POST."""

from __future__ import annotations

import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from http.client import HTTPException
from typing import Any

from cdc.model.errors import Retriable, Skippable
from cdc.topology.hooks.webhook import Webhook
from tailorbird.client.http_redirects import NoRedirect
from tailorbird.notify.cloud_events import signed

_TIMEOUT = 10.0
_AGAIN = frozenset({408, 425, 429})


def post(hook: Webhook, event: Mapping[str, Any]) -> None:
    """Send an event and wait for the answer, at most 10 seconds for each step of the connection.

    Raises Retriable if it should be sent again: no answer, a status of 5xx, or one that asks to wait. Raises Skippable
    for any other status than 2xx."""
    body, headers = signed(event, hook.secret, int(time.time()))
    request = urllib.request.Request(hook.url, body, headers, method="POST")
    try:
        trusted = ssl.create_default_context(cafile=hook.ca_file or None)
        # no proxy of the environment: the receiver is what the topology names
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=trusted), NoRedirect
        )
        with opener.open(request, timeout=_TIMEOUT) as answer:
            answer.read(1)
    except urllib.error.HTTPError as error:
        with error:
            what = f"webhook {hook.name} answers {error.code}"
            if error.code >= 500 or error.code in _AGAIN:
                raise Retriable(what) from error
            raise Skippable(what, "check its `url` and `secret`") from error
    except (OSError, HTTPException) as error:
        raise Retriable(f"webhook {hook.name}: {getattr(error, 'reason', error)}") from error
