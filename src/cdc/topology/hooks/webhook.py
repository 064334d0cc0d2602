"""Receivers of events about a topology, as they are declared in its file."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, get_args

WebhookEvent = Literal["source_stopped", "table_incomplete", "verify_different", "slot_exceeded"]
WEBHOOK_EVENTS: tuple[WebhookEvent, ...] = get_args(WebhookEvent)


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhook:
    """A URL that receives CloudEvents, signed with `secret` if that is set. `ca_file`: its certificate authority, if it
    is not one of the system's. `repr` omits the secret, and the URL, which may contain one."""

    name: str
    url: str = field(repr=False)
    events: tuple[WebhookEvent, ...] = WEBHOOK_EVENTS
    secret: str = field(default="", repr=False)
    ca_file: str = ""
