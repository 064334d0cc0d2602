"""Read the file of an OpenID Connect issuer (docs/security.md, OpenID Connect), as strictly as a topology."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from cdc.grammar.forms import FILLED, TEXTS, matching
from cdc.grammar.keys import DeclaredKey, Keys, Section, section
from cdc.grammar.values import Value, YamlFile
from cdc.oidc.claims import ROLES, OidcSettings, Role

_URL = re.compile(r"https://[^\s/?#@]+|http://(127\.0\.0\.1|localhost|\[::1\])(:\d+)?")


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


_SITE = "https?://.+"
ROLE_VALUES: Keys = {role: DeclaredKey(form=TEXTS, about="Values of the claim that give the role.") for role in ROLES}
OIDC: Keys = {
    "issuer": DeclaredKey(
        form=matching(_SITE, _issuer), about="The issuer's URL, exactly as in its tokens.", required=True
    ),
    "client_id": DeclaredKey(form=FILLED, about="The client's name at the issuer.", required=True),
    "client_secret": DeclaredKey(form=FILLED, about="The client's secret; take it from a variable."),
    "url": DeclaredKey(form=matching(_SITE, _site), about="The URL under which browsers reach the pages."),
    "ca": DeclaredKey(form=FILLED, about="PEM file of the authorities that the issuer's certificate is checked with."),
    "name_claim": DeclaredKey(form=FILLED, about="The claim with the user's name.", default="sub"),
    "roles_claim": DeclaredKey(form=FILLED, about="The claim with the user's groups or roles.", default="groups"),
    "roles": DeclaredKey(form=section(ROLE_VALUES), about="Values of the claim for each role.", required=True),
}


def read_oidc(text: str, *, file: str, environ: Mapping[str, str], content: Callable[[str], str]) -> OidcSettings:
    """Parse a file's text. Raises TopologyError (exit 2) for the first mistake. The other parameters are those of
    `read_policy`."""
    reader = YamlFile(file, environ, content)
    node = reader.composed(text, "YAML as in docs/security.md")
    if node is None:
        reader.fail(1, "(top)", "the file is empty", "issuer, client_id, roles")
    top = Section(Value(node, "", reader), OIDC)
    settings = OidcSettings(
        issuer=top.take("issuer"),
        client_id=top.take("client_id"),
        client_secret=top.take("client_secret", ""),
        url=top.take("url", ""),
        ca=top.take("ca", ""),
        name_claim=top.take("name_claim"),
        roles_claim=top.take("roles_claim"),
        roles=top.take("roles", read=lambda v: _roles(Section(v, ROLE_VALUES))),
    )
    top.end()
    return settings


def _roles(section: Section) -> Mapping[Role, frozenset[str]]:
    found = {role: frozenset(section.take(role, ())) for role in ROLES}
    section.end()
    if not any(found.values()):
        section.value.fail("no values", f"values of the claim for at least one of {', '.join(ROLES)}")
    return {role: values for role, values in found.items() if values}
