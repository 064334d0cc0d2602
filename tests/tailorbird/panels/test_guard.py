"""The wall before the pages: nothing in without a session, nothing out, and limits to trying."""

from __future__ import annotations

import contextlib
import re
import socket as socketlib
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from cdc.model.errors import UsageError
from tailorbird.operate.probes.tcp_probe import port_is_free
from tailorbird.web.dashboard.guard.access import ANYBODY, Access, refuse_open
from tailorbird.web.dashboard.guard.file_passwords import load_passwords
from tailorbird.web.dashboard.guard.http_guard import SameOrigin, StrictHeaders
from tailorbird.web.dashboard.guard.http_login import LoginWall
from tailorbird.web.dashboard.guard.http_serve import guard, pages_app, refuse_taken
from tailorbird.web.dashboard.guard.passwords import Attempts, hashed_password, is_right, read_passwords, safe_next
from tests.support.waiting import wait_for

USERS = {
    "ada": hashed_password("a right long password", b"0123456789abcdef"),
    "bob": hashed_password("a right long password", b"fedcba9876543210"),
}


async def secret(request: Request) -> PlainTextResponse:
    return PlainTextResponse("secret")


async def live(socket: WebSocket) -> None:
    await socket.accept()
    await socket.close()


@contextlib.contextmanager
def served(*, secure: bool = False) -> Iterator[httpx.Client]:
    """A browser at guarded pages, which a real server serves."""
    routes = [Route(path, secret) for path in ("/", "/rows", "/health")]
    app = Starlette(routes=[*routes, WebSocketRoute("/live", live)])
    app.add_middleware(LoginWall, users=USERS, secure=secure)
    app.add_middleware(SameOrigin)
    app.add_middleware(StrictHeaders)
    with running(app) as browser:
        yield browser


@contextlib.contextmanager
def running(app: Starlette) -> Iterator[httpx.Client]:
    """Run a server; yield a browser at its pages."""
    port = next(port for port in range(18_800, 18_880) if port_is_free("127.0.0.1", port))
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=port, log_level="critical"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    wait_for(lambda: server.started, "no server", 20)
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", follow_redirects=False, trust_env=False) as browser:
        yield browser
    server.should_exit = True
    thread.join(20)


@pytest.fixture
def browser() -> Iterator[httpx.Client]:
    with served() as found:
        yield found


def own(browser: httpx.Client) -> dict[str, str]:
    return {"Origin": str(browser.base_url).rstrip("/")}


def socket(browser: httpx.Client, **headers: str) -> None:
    """Open a websocket and close it; InvalidStatus where it is refused."""
    address = str(browser.base_url).replace("http", "ws").rstrip("/") + "/live"
    with connect(address, additional_headers=headers, proxy=None):
        pass


def login(browser: httpx.Client, name: str, password: str, *, to: str = "/", token: str | None = None) -> int:
    """The status of a login through the form."""
    form = browser.get("/login", params={"next": to}).text
    found = re.search(r'name="token" value="([^"]+)"', form)
    assert found is not None
    said = {"name": name, "password": password, "next": to, "token": found[1] if token is None else token}
    answer = browser.post("/login", data=said, headers=own(browser))
    return answer.status_code


def test_nothing_is_shown_without_a_session(browser: httpx.Client) -> None:
    """Pages redirect to the login, programs get an error, websockets are closed; only health answers."""
    answer = browser.get("/rows?q=a", headers={"Accept": "text/html"})
    assert (answer.status_code, answer.headers["location"]) == (303, "/login?next=%2Frows%3Fq%3Da")
    assert browser.get("/rows").status_code == 401
    assert browser.get("/health").status_code == 200
    with pytest.raises(InvalidStatus, match="403"):
        socket(browser)
    assert browser.get("/", headers={"Cookie": "tailorbird=x"}).status_code == 401


def test_a_right_password_opens_a_session_until_logout(browser: httpx.Client) -> None:
    """Its cookie is kept from scripts and plain HTTP; after logging out it opens nothing."""
    assert login(browser, "ada", "a right long password") == 303
    assert browser.get("/").text == "secret"
    cookie = f"tailorbird={browser.cookies['tailorbird']}"
    socket(browser, Cookie=cookie, **own(browser))
    assert browser.post("/logout", headers=own(browser)).status_code == 303
    assert browser.get("/", headers={"Cookie": cookie}).status_code == 401
    assert "form-action 'self'" in browser.get("/login").headers["content-security-policy"]
    with served(secure=True) as other:
        form = other.get("/login")
        said = form.headers["set-cookie"]
        assert said.startswith("__Host-tailorbird-form=")
        assert {"Secure", "HttpOnly", "Path=/", "SameSite=strict"} <= {part.strip() for part in said.split(";")}


def test_forged_requests_are_refused(browser: httpx.Client) -> None:
    """A form without its token, or with another's, and one that another site sends."""
    assert login(browser, "ada", "a right long password", token="") == 403
    assert login(browser, "ada", "a right long password", token="x" * 32) == 403
    assert login(browser, "ada", "a right long password", token="ü") == 403
    answer = browser.post("/login", data={"name": "ada"}, headers={"Origin": "https://evil.example"})
    assert answer.status_code == 403
    assert browser.post("/logout", headers={"Sec-Fetch-Site": "cross-site"}).status_code == 403
    assert browser.post("/login", content=b"x" * 50_000).status_code == 413
    with pytest.raises(InvalidStatus, match="403"):
        socket(browser, Origin="https://evil.example")


@pytest.mark.parametrize("tries", [100, pytest.param(1_000, marks=pytest.mark.matrix)])
def test_many_wrong_passwords_are_mostly_not_looked_at(browser: httpx.Client, tries: int) -> None:
    """Ten per name are; then the name waits at this address, and the right password with it."""
    found = [login(browser, "ada", f"wrong {i}") for i in range(tries)]
    assert (found.count(401), found.count(429)) == (10, tries - 10)
    assert login(browser, "ada", "a right long password") == 429
    assert browser.get("/").status_code == 401


def test_wrong_passwords_of_one_address_lock_no_one_out_elsewhere(browser: httpx.Client) -> None:
    """Nor other users of the same address."""
    other = httpx.HTTPTransport(local_address="127.0.0.2")
    with httpx.Client(base_url=browser.base_url, transport=other) as elsewhere:
        assert [login(browser, "ada", f"wrong {i}") for i in range(11)] == [401] * 10 + [429]
        assert login(browser, "bob", "a right long password") == 303
        assert login(elsewhere, "ada", "a right long password") == 303


def test_an_address_that_tries_many_names_waits() -> None:
    attempts = Attempts(each=100)
    for number in range(100):
        assert attempts.seconds_to_wait("a", float(number)) == 0
        attempts.wrong("a", float(number))
    assert attempts.seconds_to_wait("a", 100.0) > 0
    attempts.undo("a")
    assert attempts.seconds_to_wait("a", 100.0) == 0
    attempts.undo("unknown")


def test_attempts_are_forgotten_in_time_and_bounded() -> None:
    """Of names and addresses alike; the oldest give way."""
    attempts = Attempts(each=3, within=60, most=2)
    for at in (0.0, 1.0, 2.0):
        assert attempts.seconds_to_wait("a", at) == 0
        attempts.wrong("a", at)
    assert attempts.seconds_to_wait("a", 3.0) == 57
    assert attempts.seconds_to_wait("a", 60.5) == 0
    attempts.wrong("b", 4.0)
    attempts.wrong("c", 5.0)
    assert attempts.seconds_to_wait("a", 5.0) == 0


ELSEWHERE = ["https://evil.example", "//evil.example", "/\\evil.example", "\\/evil", "", "evil", "/a\nb", "/a\\b"]


@pytest.mark.parametrize("path", [*ELSEWHERE, "javascript:x"])
def test_a_login_leads_nowhere_else(path: str, browser: httpx.Client) -> None:
    """An open redirect could be abused in links."""
    assert safe_next(path) == "/"
    assert safe_next("/rows/sales?f.country=DE&q=//x") == "/rows/sales?f.country=DE&q=//x"
    form = browser.get("/login", params={"next": path}).text
    assert 'name="next" value="/"' in form


def test_hashes_are_argon2_of_one_password() -> None:
    """Neither another password nor another name has it."""
    assert USERS["ada"].startswith("$argon2id$v=19$m=19456,t=2,p=1$")
    assert is_right(USERS, "ada", "a right long password")
    assert not is_right(USERS, "ada", "a right long passwore")
    assert not is_right(USERS, "eve", "a right long password")
    assert not is_right(USERS, "ada", "x" * 2_000)


def test_a_file_that_is_none_is_refused(tmp_path: Path) -> None:
    """By its line, without showing a hash; so is one that others may read."""
    line = f"ada:{USERS['ada']}"
    for text, what in (
        ("", "p has no users"),
        ("ada", "p:1: not a line"),
        ("ada:plain", "p:1: not a line"),
        (f"{line}\n{line}", "p:2: ada twice"),
        (line.replace("m=19456", "m=64"), "p:1: a hash of 64 KiB"),
        (line.replace("ada", "a da"), "p:1: not a line"),
    ):
        with pytest.raises(UsageError, match=what) as caught:
            read_passwords(text, file="p")
        assert "argon2id" not in str(caught.value)
    file = tmp_path / "passwords"
    file.write_text(f"# who may look\n\n{line}\n")
    file.chmod(0o644)
    with pytest.raises(UsageError, match="is readable by other users"):
        load_passwords(str(file))
    file.chmod(0o600)
    assert load_passwords(str(file)) == {"ada": USERS["ada"]}


def test_beyond_this_machine_a_login_and_tls_are_needed() -> None:
    """Unless a proxy is said to do both."""
    with pytest.raises(UsageError, match="without a login"):
        refuse_open("0.0.0.0", ANYBODY, loopback=False)
    with pytest.raises(UsageError, match="without TLS"):
        refuse_open("0.0.0.0", Access(users=USERS), loopback=False)
    with pytest.raises(UsageError, match="needs its key"):
        refuse_open("0.0.0.0", Access(users=USERS, certificate="c"), loopback=False)
    refuse_open("0.0.0.0", Access(users=USERS, certificate="c", key="k"), loopback=False)
    refuse_open("0.0.0.0", Access(behind_proxy=True), loopback=False)
    refuse_open("127.0.0.1", ANYBODY, loopback=True)
    assert "argon2" not in repr(Access(users=USERS))


def test_an_address_that_can_not_be_served_is_refused() -> None:
    """One of another machine, and a port in use; each with the remedy."""
    with pytest.raises(UsageError, match=r"it is not an IPv4 address of this machine; try --host 127\.0\.0\.1"):
        refuse_taken("192.0.2.1", 18_799)
    with socketlib.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UsageError, match=f"the port is in use; try --port {port + 1}"):
            refuse_taken("127.0.0.1", port)


@pytest.mark.parametrize("users", [{}, USERS])
def test_every_response_has_the_strict_policy(users: dict[str, str]) -> None:
    """Pages, errors, refusals of the login and of foreign hosts: no script that is not a file of this server runs."""
    app = pages_app()
    guard(app, host="127.0.0.1", access=Access(users=users))

    @app.get("/page")
    def page() -> str:
        return "secret"

    with running(app) as browser:
        for path, headers in (("/page", {}), ("/none", {}), ("/page", {"Host": "evil.example"}), ("/docs", {})):
            answer = browser.get(path, headers=headers)
            policy = answer.headers["content-security-policy"]
            assert "default-src 'none'; script-src 'self';" in policy
            assert "unsafe" not in policy
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert (answer.status_code == 200) == (path == "/page" and not headers and not users)
