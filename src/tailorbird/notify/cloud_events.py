"""CloudEvents 1.0 in structured JSON, with the signature of Standard Webhooks."""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
import hmac
import json
from collections.abc import Mapping
from typing import Any

CONTENT_TYPE = "application/cloudevents+json; charset=utf-8"
_PREFIX = "whsec_"


def cloud_event(topology: str, kind: str, subject: str, *, ended: bool, since_ms: int, at_ms: int, data: Any) -> Any:
    """Return an event as a JSON object. It has the same id at every attempt, so that receivers can ignore repeats.

    `since_ms` is when the condition was first seen. `ended`: it does not hold any more."""
    state = "ended" if ended else "began"
    return {
        "specversion": "1.0",
        "id": hashlib.sha256(f"{topology} {kind} {subject} {since_ms} {state}".encode()).hexdigest()[:32],
        "source": f"/tailorbird/{topology}",
        "type": f"io.tailorbird.{kind}.{state}",
        "subject": subject,
        "time": dt.datetime.fromtimestamp(at_ms / 1000, dt.UTC).isoformat(timespec="milliseconds"),
        "datacontenttype": "application/json",
        "data": {
            **data,
            "since": dt.datetime.fromtimestamp(since_ms / 1000, dt.UTC).isoformat(timespec="milliseconds"),
        },
    }


def signed(event: Mapping[str, Any], secret: str, now: int) -> tuple[bytes, dict[str, str]]:
    """Return body and headers of a request. `now`: seconds since 1970. Without a secret there is no signature.

    The signature is HMAC-SHA256 over `id.timestamp.body`. The key is the secret, or what it encodes after `whsec_`."""
    body = json.dumps(event, ensure_ascii=False, separators=(",", ":")).encode()
    headers = {"Content-Type": CONTENT_TYPE, "webhook-id": str(event["id"]), "webhook-timestamp": str(now)}
    if secret:
        encoded = secret.startswith(_PREFIX)
        key = base64.b64decode(secret.removeprefix(_PREFIX)) if encoded else secret.encode()
        digest = hmac.digest(key, f"{event['id']}.{now}.".encode() + body, "sha256")
        headers["webhook-signature"] = f"v1,{base64.b64encode(digest).decode()}"
    return body, headers
