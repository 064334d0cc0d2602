"""Read `webhooks:` of a topology file."""

from __future__ import annotations

from urllib.parse import urlsplit

from cdc.grammar.forms import FILLED, TEXT, listed, matching, one_of
from cdc.grammar.keys import DeclaredKey, Keys, Section
from cdc.grammar.values import Value
from cdc.model.tls import is_loopback
from cdc.topology.hooks.webhook import WEBHOOK_EVENTS, Webhook

_URL = "https?://.+"


def _url(value: Value) -> str:
    text = value.text()
    try:
        parts = urlsplit(text)
        host, scheme = parts.hostname or "", parts.scheme
        valid = host and scheme in ("http", "https") and parts.port != 0 and parts.username is None
    except ValueError:
        host, scheme, valid = "", "", False
    if not valid:
        value.fail("no URL of a webhook", "https://host/path, without a user; receivers check `secret`")
    if scheme == "http" and not is_loopback(host):
        value.fail(f"an unencrypted URL of host {host}", "https://…; http only for this machine")
    return text


def _events(value: Value) -> tuple[str, ...]:
    found = tuple(dict.fromkeys(item.one_of(*WEBHOOK_EVENTS) for item in value.items()))
    return found or value.fail("an empty list", "one event at least, or no key: all of them")


WEBHOOK: Keys = {
    "url": DeclaredKey(
        form=matching(_URL, _url, "https://hooks.example/tailorbird"),
        about="Receives each event by POST; https, or http on this machine.",
        required=True,
    ),
    "events": DeclaredKey(
        form=listed(one_of(*WEBHOOK_EVENTS), most=len(WEBHOOK_EVENTS)), about="What to report. Default: all events."
    ),
    "secret": DeclaredKey(form=FILLED, about="The key of the signature in the header `webhook-signature`."),
    "ca_file": DeclaredKey(form=TEXT, about="The CA of the receiver's certificate. Default: the system's."),
}


def read_webhook(name: str, s: Section) -> Webhook:
    """Read one webhook."""
    return Webhook(
        name=name,
        url=s.take("url"),
        events=s.take("events", WEBHOOK_EVENTS, read=_events),
        secret=s.take("secret", ""),
        ca_file=s.take("ca_file", ""),
    )
