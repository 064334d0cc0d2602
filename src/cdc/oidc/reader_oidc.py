"""Read the file of an OpenID Connect issuer (docs/security.md, OpenID Connect), as strictly as a topology."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from cdc.oidc.claims import ROLES, OidcSettings, Role
from cdc.topology.values import Section, Value, YamlFile

_URL = re.compile(r"https://[^\s/?#@]+|http://(127\.0\.0\.1|localhost|\[::1\])(:\d+)?")


def read_oidc(text: str, *, file: str, environ: Mapping[str, str], content: Callable[[str], str]) -> OidcSettings:
    """Parse a file's text. Raises TopologyError (exit 2) for the first mistake. The other parameters are those of
    `read_policy`."""
    reader = YamlFile(file, environ, content)
    node = reader.composed(text, "YAML as in docs/security.md")
    if node is None:
        reader.fail(1, "(top)", "the file is empty", "issuer, client_id, roles")
    top = Value(node, "", reader).section()
    settings = OidcSettings(
        issuer=top.take("issuer", _issuer),
        client_id=top.take("client_id", _some),
        client_secret=top.take("client_secret", _some, ""),
        url=top.take("url", _site, ""),
        ca=top.take("ca", _some, ""),
        name_claim=top.take("name_claim", _some, "sub"),
        roles_claim=top.take("roles_claim", _some, "groups"),
        roles=top.take("roles", lambda v: _roles(v.section())),
    )
    top.end()
    return settings


def _some(value: Value) -> str:
    text = value.text()
    if not text:
        value.fail("an empty text", "a text")
    return text


def _issuer(value: Value) -> str:
    """Read the address of an issuer, which may have a path."""
    text = value.text()
    site = re.match(r"https?://[^/?#]*", text)
    if site is None or not _URL.fullmatch(site[0]) or "?" in text or "#" in text:
        value.fail(repr(text), "the issuer's URL with https, exactly as in its tokens")
    return text


def _site(value: Value) -> str:
    text = value.text().rstrip("/")
    if not _URL.fullmatch(text):
        value.fail(repr(text), "an https URL without a path, such as https://pages.example.com")
    return text


def _roles(section: Section) -> Mapping[Role, frozenset[str]]:
    nothing: tuple[str, ...] = ()
    found = {role: frozenset(section.take(role, Value.texts, nothing)) for role in ROLES}
    section.end()
    if not any(found.values()):
        section.value.fail("no values", f"values of the claim for at least one of {', '.join(ROLES)}")
    return {role: values for role, values in found.items() if values}
