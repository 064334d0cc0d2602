"""Logins at an OpenID Connect issuer: an attacker with a token, a code or a link of another login gets nothing."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from joserfc.jwk import ECKey
from playwright.sync_api import expect
from starlette.applications import Starlette

from cdc.model.errors import Retriable, TopologyError, UsageError
from cdc.oidc.claims import OidcRefused, OidcSettings
from cdc.oidc.http_oidc import OidcIssuer, load_oidc
from ingest.gateway.http_api import TenantApis
from tailorbird.operate.probes.tcp_probe import port_is_free
from tailorbird.web.dashboard.guard.access import Access, refuse_open
from tailorbird.web.dashboard.guard.http_oidc_login import OidcLogin
from tailorbird.web.dashboard.guard.http_serve import guard, pages_app
from tailorbird.web.fleet.http_fleet import FleetApi
from tailorbird.web.fleet.http_fleet_page import FleetSessions, serve_fleet_page
from tests.ingest.fleet.test_commands import Http, SessionHandler
from tests.support.browser import headless
from tests.support.oidc_issuer import CLIENT, Issuer, issuing, written
from tests.tailorbird.panels.test_guard import USERS, login, running

pytestmark = pytest.mark.timeout(60)


@pytest.fixture(scope="module")
def served() -> Iterator[Issuer]:
    with issuing() as found:
        yield found


@pytest.fixture
def issuer(served: Issuer) -> Issuer:
    served.claims.clear()
    served.metadata.clear()
    served.redeemed.clear()
    served.published = [served.key]
    return served


def unsigned(token: str, header: dict[str, Any], signature: bytes) -> str:
    """Return a token with another header and signature."""
    _, claims, _ = token.split(".")
    first, last = (
        base64.urlsafe_b64encode(one).rstrip(b"=").decode() for one in (json.dumps(header).encode(), signature)
    )
    return f"{first}.{claims}.{last}"


# ID tokens


def test_a_valid_token_has_a_user_and_a_role(issuer: Issuer) -> None:
    """The highest one of its groups; the name is a claim that the operator chooses."""
    client = OidcIssuer(issuer.settings())
    user = client.verified(issuer.token())
    assert (user.name, user.role) == ("anna", "view")
    assert client.verified(issuer.token(groups=["x", "owners", "staff"])).role == "admin"
    assert client.verified(issuer.token(groups="staff")).role == "view"
    nested = OidcIssuer(issuer.settings(roles_claim="realm_access.roles", name_claim="email"))
    claims: dict[str, Any] = {
        "realm_access": {"roles": ["owners"]},
        "email": "anna@acme.example",
        "email_verified": True,
    }
    assert nested.verified(issuer.token(**claims)).name == "anna@acme.example"
    with pytest.raises(OidcRefused, match="not verified"):
        nested.verified(issuer.token(**claims | {"email_verified": False}))


NOW = int(time.time())


@pytest.mark.parametrize(
    ("claims", "why"),
    [
        ({"iss": "https://evil.example"}, "another issuer"),
        ({"iss": None}, "another issuer"),
        ({"aud": "another"}, "another client"),
        ({"aud": None}, "another client"),
        ({"aud": {"tailorbird": 1}}, "another client"),
        ({"aud": [CLIENT, "another"]}, "issued to another client"),
        ({"aud": CLIENT, "azp": "another"}, "issued to another client"),
        ({"exp": NOW - 3600}, "has expired"),
        ({"exp": None}, "has no time"),
        ({"exp": True}, "not a time"),
        ({"exp": "9999999999"}, "not a time|not signed"),
        ({"iat": None}, "has no time"),
        ({"iat": NOW + 3600}, "from the future"),
        ({"nbf": NOW + 3600}, "from the future"),
        ({"groups": ["guests"]}, "no role"),
        ({"groups": None}, "no role"),
        ({"groups": [{"staff": 1}, 7]}, "no role"),
        ({"sub": ""}, "no claim sub"),
        ({"sub": "a\nb"}, "no claim sub"),
        ({"sub": 7}, "no claim sub|not signed"),
    ],
)
def test_a_token_of_another_issuer_client_or_time_is_refused(issuer: Issuer, claims: dict[str, Any], why: str) -> None:
    with pytest.raises(OidcRefused, match=why):
        OidcIssuer(issuer.settings()).verified(issuer.token(**claims))


def test_a_token_that_the_issuer_did_not_sign_is_refused(issuer: Issuer) -> None:
    """Without a signature, with another key, with the public key as a shared secret, changed, or no token at all."""
    client, token = OidcIssuer(issuer.settings()), issuer.token()
    client.verified(token)
    header, claims, signature = token.split(".")
    public = json.dumps(issuer.key.as_dict(private=False)).encode()
    confused = base64.urlsafe_b64encode(b'{"alg":"HS256","kid":"first"}').rstrip(b"=").decode()
    shared = hmac.digest(public, f"{confused}.{claims}".encode(), hashlib.sha256)
    changed = base64.urlsafe_b64encode(b'{"iss":"x","groups":["owners"]}').rstrip(b"=").decode()
    forged = [
        unsigned(token, {"alg": "none"}, b""),
        unsigned(token, {"alg": "None", "kid": "first"}, b""),
        unsigned(token, {"alg": "HS256", "kid": "first"}, shared),
        unsigned(token, {"alg": "ES256", "kid": "first", "jwk": issuer.key.as_dict(private=False)}, b"x" * 64),
        issuer.token(key=ECKey.generate_key("P-256", {"kid": "first"})),
        issuer.token(header={"kid": "unknown"}),
        f"{header}.{changed}.{signature}",
        f"{header}.{claims}.", "..", "a.b.c", "", "x" * 20_000, "é.é.é",
    ]  # fmt: skip
    for one in forged:
        with pytest.raises(OidcRefused):
            client.verified(one)
    with pytest.raises(OidcRefused, match="not an ID token"):
        client.verified(issuer.token(header={"typ": "at+jwt"}))


def test_keys_are_renewed_but_not_at_every_forged_token(issuer: Issuer) -> None:
    """An issuer changes its keys; an attacker cannot make the gateway ask for them again and again."""
    now = [time.time()]
    client = OidcIssuer(issuer.settings(), lambda: now[0])
    client.verified(issuer.token())
    newer, asked = ECKey.generate_key("P-256", {"kid": "newer"}), issuer.asked_for_keys
    issuer.published = [newer]
    token = issuer.token(key=newer, header={"kid": "newer"})
    now[0] += 31
    assert client.verified(token).name == "anna"
    for _ in range(20):
        with pytest.raises(OidcRefused):
            client.verified(issuer.token())
    assert issuer.asked_for_keys == asked + 1


def test_an_issuer_that_is_not_the_configured_one_is_refused(issuer: Issuer) -> None:
    """Its metadata names another issuer, lacks PKCE, or leads to no address; an absent one is retried."""
    for metadata, why in (
        ({"issuer": "https://evil.example"}, "names itself"),
        ({"code_challenge_methods_supported": ["plain"]}, "PKCE"),
        ({"authorization_endpoint": "javascript:x"}, "authorization_endpoint"),
    ):
        issuer.metadata = metadata
        with pytest.raises(UsageError, match=why):
            OidcIssuer(issuer.settings()).login_url("http://127.0.0.1/login/callback", "s", "n", "v")
    with pytest.raises(Retriable, match="is the issuer available"):
        OidcIssuer(issuer.settings(issuer="http://127.0.0.1:1")).verified("a.b.c")


# dashboards


def page(settings: OidcSettings, users: dict[str, str] | None = None) -> Starlette:
    app = pages_app()

    @app.get("/page")
    def secret() -> str:
        return "secret"

    guard(app, host="127.0.0.1", access=Access(users=users or {}, oidc=settings), url="http://127.0.0.1:9")
    return app


def begun(browser: httpx.Client, to: str = "/page") -> tuple[str, str]:
    """Begin a login; return the address of the issuer's page, and that of the callback to which it leads."""
    answer = browser.get("/login/oidc", params={"next": to})
    assert answer.status_code == 303, answer.text
    back = httpx.get(answer.headers["location"], trust_env=False).headers["location"]
    return answer.headers["location"], back.partition("127.0.0.1:9")[2]


@pytest.fixture
def browser(issuer: Issuer) -> Iterator[httpx.Client]:
    with running(page(issuer.settings())) as found:
        yield found


def test_a_login_at_the_issuer_opens_the_page(browser: httpx.Client, issuer: Issuer) -> None:
    """With PKCE, state and nonce; the session's cookie is the same as after a login with a password."""
    assert browser.get("/page").status_code == 401
    assert 'href="/login/oidc?next=%2Fpage"' in browser.get("/login", params={"next": "/page"}).text
    assert "password" not in browser.get("/login").text
    assert browser.post("/login", headers={"Origin": str(browser.base_url).rstrip("/")}).status_code == 200
    asked, back = begun(browser)
    query = parse_qs(urlsplit(asked).query)
    assert query["code_challenge_method"] == ["S256"]
    assert len(query["nonce"][0]) == len(query["state"][0]) == 43
    answer = browser.get(back)
    assert (answer.status_code, answer.headers["location"]) == (303, "/page")
    cookies = answer.headers.get_list("set-cookie")
    assert any(one.startswith("tailorbird=") and "HttpOnly" in one for one in cookies)
    assert any(one.startswith('tailorbird-oidc=""') for one in cookies)
    assert browser.get("/page").json() == "secret"
    assert len(issuer.redeemed[0]["code_verifier"]) >= 43
    assert issuer.redeemed[0]["code_verifier"] not in asked


def test_an_answer_of_another_login_is_refused(browser: httpx.Client, issuer: Issuer) -> None:
    """A replayed one, one with another state, code or issuer, and one for another browser, whose user would
    otherwise work in the attacker's account."""
    _, back = begun(browser)
    sealed = browser.cookies["tailorbird-oidc"]
    with httpx.Client(base_url=browser.base_url, trust_env=False) as victim:
        assert victim.get(back).status_code == 403
        assert victim.get("/page").status_code == 401
    assert browser.get(back).status_code == 303
    browser.cookies.clear()
    replayed = browser.get(back, headers={"Cookie": f"tailorbird-oidc={sealed}"})
    assert (replayed.status_code, "completed before" in replayed.text) == (403, True)
    attacks: dict[str, Callable[[str], str]] = {
        "another login": lambda url: url.replace("state=", "state=x"),
        "values of state": lambda url: f"{url}&state=x",
        "values of code": lambda url: re.sub("code=[^&]*", "", url),
        "another issuer": lambda url: re.sub("iss=[^&]*", "iss=https%3A%2F%2Fevil.example", url),
        "refused the login": lambda url: re.sub("code=[^&]*", "code=guessed", url),
        "access_denied": lambda url: re.sub("code=[^&]*", "error=access_denied", url),
    }
    for why, attack in attacks.items():
        _, back = begun(browser)
        answer = browser.get(attack(back))
        assert (answer.status_code, why in answer.text) == (403, True), (why, answer.text)
        assert browser.get("/page").status_code == 401
    assert browser.get("/login/callback?error=<script>").status_code == 403


@pytest.mark.parametrize(
    "claims", [{"nonce": "another"}, {"nonce": None}, {"aud": "another"}, {"groups": ["guests"]}, {"exp": NOW - 999}]
)
def test_a_token_that_is_not_of_this_login_opens_nothing(
    browser: httpx.Client, issuer: Issuer, claims: dict[str, Any]
) -> None:
    """A stolen token of the same issuer and client has another nonce."""
    issuer.claims.update(claims)
    _, back = begun(browser)
    assert browser.get(back).status_code == 403
    assert browser.get("/page").status_code == 401


def test_an_old_login_and_a_foreign_target_are_refused(browser: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """A login ends after ten minutes, and leads to pages of this server only."""
    _, back = begun(browser, "https://evil.example/")
    assert browser.get(back).headers["location"] == "/"
    _, back = begun(browser)
    real = time.time
    with monkeypatch.context() as later:
        later.setattr(time, "time", lambda: real() + 700)
        assert browser.get(back).status_code == 403


def test_passwords_work_beside_the_issuer_and_without_it(issuer: Issuer) -> None:
    """Someone must get in while the issuer is unavailable."""
    with running(page(issuer.settings(issuer="http://127.0.0.1:1"), USERS)) as browser:
        assert "/login/oidc" in browser.get("/login").text
        assert browser.get("/login/oidc").status_code == 503
        assert login(browser, "ada", "a right long password") == 303
        assert browser.get("/page").json() == "secret"


def test_a_public_page_needs_its_own_address(issuer: Issuer) -> None:
    """Otherwise the issuer would lead browsers to loopback."""
    with pytest.raises(UsageError, match="url: https"):
        refuse_open("0.0.0.0", Access(oidc=issuer.settings(), certificate="c", key="k"), loopback=False)
    public = issuer.settings(url="https://pages.example")
    refuse_open("0.0.0.0", Access(oidc=public, certificate="c", key="k"), loopback=False)
    with pytest.raises(UsageError, match="without TLS"):
        refuse_open("0.0.0.0", Access(oidc=public), loopback=False)


# the file


def test_the_file_of_an_issuer_is_read_strictly(issuer: Issuer, tmp_path: Path) -> None:
    """It is private, its mistakes have lines, and its secret appears nowhere."""
    file = written(issuer, tmp_path / "oidc.yml")
    found = load_oidc(file)
    assert (found, found.roles["admin"]) == (issuer.settings(), {"owners"})
    assert "client:secret" not in repr(found)
    good = file.read_text()
    for text, why in (
        (good.replace(issuer.url, "http://id.example"), "with https"),
        (good.replace("client_id", "client"), "client_id"),
        (good.replace("view: [staff]", "owner: [staff]"), "unknown key owner"),
        (re.sub("roles: .*", "roles: {}", good), "no values"),
        (good + "url: https://pages.example/path\n", "without a path"),
        ("", "empty"),
    ):
        file.write_text(text)
        with pytest.raises(TopologyError, match=why):
            load_oidc(file)
    file.chmod(0o644)
    with pytest.raises(UsageError, match="accessible to other users"):
        load_oidc(file)
    secret = file.with_name("client.secret")
    secret.touch(mode=0o644)
    written(issuer, file, client_secret="${file:client.secret}")
    with pytest.raises(UsageError, match=r"client\.secret is accessible to other users"):
        load_oidc(file)


# the gateway's API, and the fleet page


def test_the_api_accepts_id_tokens_with_the_role_of_their_groups(issuer: Issuer) -> None:
    """The audit names the user; a refused token is audited like a wrong one."""
    session_handler = SessionHandler()
    api = TenantApis([session_handler.commands], oidc=OidcIssuer(issuer.settings()))
    http = Http(api)

    def asks(method: str, path: str, token: str) -> int:
        body: dict[str, str] | None = {} if method == "PUT" else None
        return http.request(method, path, headers={"Authorization": f"Bearer {token}"}, json=body).status_code

    assert asks("GET", "/v1/agents", issuer.token()) == 200
    assert asks("GET", "/v1/tokens", issuer.token()) == 403
    assert asks("GET", "/v1/tokens", issuer.token(groups=["owners"])) == 200
    assert asks("PUT", "/v1/revoked-certificates/ab", issuer.token(groups=["owners"])) == 200
    assert asks("GET", "/v1/agents", issuer.token(aud="another")) == 401
    assert asks("GET", "/v1/agents", unsigned(issuer.token(), {"alg": "none"}, b"")) == 401
    who = [line.get("who") for line in session_handler.audit.lines]
    assert "oidc:anna" in who
    http = Http(TenantApis([session_handler.commands]))
    assert asks("GET", "/v1/agents", issuer.token()) == 401, "without --oidc"


class Api(FleetApi):
    """Stands for a gateway: it knows the tokens that it was asked with."""

    asked: ClassVar[list[str]] = []

    def __init__(self, token: str) -> None:
        self._shown = token

    def ask(self, method: str, path: str, body: Any = None, **query: Any) -> Any:
        Api.asked.append(self._shown)
        return []

    def page(self, path: str, **query: Any) -> tuple[list[Any], int]:
        return self.ask("GET", path, **query), 0


def test_the_fleet_page_has_the_rights_of_the_users_token(issuer: Issuer) -> None:
    """The session reaches the tab through a cookie that is valid once, and only in a request of the page itself."""
    app = pages_app()
    serve_fleet_page(app, FleetSessions(Api), OidcLogin(OidcIssuer(issuer.settings()), "http://127.0.0.1:9"))
    guard(app, host="127.0.0.1", access=Access())
    with running(app) as browser:
        assert '"oidc":true' in browser.get("/").text.replace(" ", "")
        _, back = begun(browser)
        answer = browser.get(back)
        assert (answer.status_code, answer.headers["location"]) == (303, "/#entered")
        assert "SameSite=strict" in next(
            one for one in answer.headers.get_list("set-cookie") if one.startswith("tailorbird-entered")
        )
        evil = browser.post("/api/entered", headers={"Origin": "https://evil.example"})
        assert evil.status_code == 403
        ticket = {"Cookie": f"tailorbird-entered={browser.cookies['tailorbird-entered']}"}
        session = browser.post("/api/entered", headers=ticket).json()["session"]
        assert browser.post("/api/entered", headers=ticket).status_code == 400
        assert browser.get("/api/state", headers={"X-Tailorbird-Session": session}).status_code == 200
    assert {OidcIssuer(issuer.settings()).verified(one).name for one in Api.asked} == {"anna"}


@pytest.mark.long
def test_a_browser_returns_from_the_issuer_to_the_fleet_page(issuer: Issuer) -> None:
    """Through real redirects, cookies and the page's own policy; the address has no secret."""
    port = next(port for port in range(18_800, 18_880) if port_is_free("127.0.0.1", port))
    url, app = f"http://127.0.0.1:{port}", pages_app()
    serve_fleet_page(app, FleetSessions(Api), OidcLogin(OidcIssuer(issuer.settings()), url))
    guard(app, host="127.0.0.1", access=Access())
    with running(app) as served_at, headless() as chromium:
        assert str(served_at.base_url).rstrip("/") == url
        page = chromium.new_page()
        page.goto(url)
        page.get_by_test_id("oidc").click()
        expect(page.get_by_test_id("status")).to_have_text("Live")
        expect(page.get_by_test_id("token")).to_be_hidden()
        assert page.url == f"{url}/"
        page.reload()
        expect(page.get_by_test_id("status")).to_have_text("Live")
