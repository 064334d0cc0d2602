"""An OpenID Connect issuer that fails or does not answer: clients cannot make it worse, and passwords keep working."""

from __future__ import annotations

import asyncio
import threading
import time
import urllib.request
from collections.abc import Callable
from typing import Any

import pytest

from cdc.model.errors import Retriable, UsageError
from cdc.oidc.claims import OidcSettings
from cdc.oidc.http_oidc import OidcIssuer
from cdc.oidc.proc_fetched import Fetched, FetchRunning
from tailorbird.web.dashboard.guard.access import Access
from tailorbird.web.dashboard.guard.http_serve import guard, pages_app
from tests.support.oidc_issuer import issuing
from tests.tailorbird.panels.test_guard import USERS, login, running

pytestmark = pytest.mark.timeout(60)

SETTINGS = OidcSettings(issuer="https://id.example", client_id="tailorbird")


class Blackhole:
    """Stands for the network: requests wait until `open` is set, and then fail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.open, self.begun, self.requests = threading.Event(), threading.Event(), 0
        monkeypatch.setattr(urllib.request.OpenerDirector, "open", self._request)

    def _request(self, *_: Any, **__: Any) -> Any:
        self.requests += 1
        self.begun.set()
        self.open.wait(30)
        raise TimeoutError("timed out")


@pytest.fixture
def blackhole(monkeypatch: pytest.MonkeyPatch) -> Blackhole:
    return Blackhole(monkeypatch)


def test_a_failed_request_is_not_repeated_at_once(blackhole: Blackhole) -> None:
    """Each of many forged tokens would otherwise wait for the issuer, and ask it again."""
    blackhole.open.set()
    now = [1e9]
    client = OidcIssuer(SETTINGS, lambda: now[0])
    for _ in range(20):
        with pytest.raises(Retriable, match="timed out"):
            client.verified("a.b.c")
    assert blackhole.requests == 1
    now[0] += 29
    with pytest.raises(Retriable, match="timed out"):
        client.verified("a.b.c")
    assert blackhole.requests == 1
    now[0] += 2
    with pytest.raises(Retriable, match="timed out"):
        client.verified("a.b.c")
    assert blackhole.requests == 2


def test_a_login_page_is_asked_for_every_five_seconds(blackhole: Blackhole) -> None:
    blackhole.open.set()
    now = [1e9]
    client = OidcIssuer(SETTINGS, lambda: now[0])
    for seconds, requests in ((0, 1), (0, 1), (4, 1), (2, 2), (0, 2)):
        now[0] += seconds
        with pytest.raises(Retriable, match="timed out"):
            client.login_url("https://x/login/callback", "s", "n", "v")
        assert blackhole.requests == requests


def test_only_one_thread_waits_for_the_issuer(blackhole: Blackhole) -> None:
    """The others are refused at once, and do not wait for a lock either."""
    client = OidcIssuer(SETTINGS)

    def waits() -> None:
        with pytest.raises(Retriable, match="timed out"):
            client.verified("a.b.c")

    first = threading.Thread(target=waits)
    first.start()
    try:
        assert blackhole.begun.wait(10)
        for call in (lambda: client.verified("a.b.c"), lambda: client.login_url("https://x", "s", "n", "v")):
            begun = time.monotonic()
            with pytest.raises(Retriable, match="being fetched"):
                call()
            assert time.monotonic() - begun < 5
    finally:
        blackhole.open.set()
        first.join(10)
    assert blackhole.requests == 1


def test_known_keys_outlast_a_failed_renewal() -> None:
    """A forged token makes the gateway ask for newer keys. If that fails, valid tokens are accepted all the same."""
    now = [time.time()]
    with issuing() as issuer:
        client, token = OidcIssuer(issuer.settings(), lambda: now[0]), issuer.token()
        assert client.verified(token).name == "anna"
        forged = issuer.token(header={"kid": "unknown"})
    now[0] += 31
    for _ in range(3):
        with pytest.raises(Retriable):
            client.verified(forged)
    assert client.verified(token).name == "anna"


def test_a_value_is_fetched_by_one_thread_and_rarely() -> None:
    """A value that was good stays good while a thread fetches the next; an error is repeated for a while."""
    now, answers = [0.0], list[Callable[[], int]]()

    def fetch() -> int:
        return answers.pop(0)()

    def fails(error: Exception) -> int:
        raise error

    def during() -> int:  # another thread at this moment
        assert found.value() == 1
        with pytest.raises(FetchRunning):
            found.newer()
        return 2

    found = Fetched("x", fetch, lambda: now[0], again=30, fresh=100)
    answers += [lambda: fails(FetchRunning("metadata")), lambda: 1]
    with pytest.raises(FetchRunning):
        found.value()
    assert (found.value(), found.newer(), answers) == (1, None, [])
    now[0] = 101
    answers.append(during)
    assert (found.value(), found.newer()) == (2, None)
    now[0] = 132
    answers.append(lambda: fails(UsageError("wrong", "correct it")))
    for _ in range(2):
        with pytest.raises(UsageError, match="wrong; correct it"):
            found.newer()
    assert found.value() == 2
    now[0] = 203
    answers.append(lambda: fails(KeyError("a mistake")))
    with pytest.raises(KeyError):
        found.value()
    with pytest.raises(Retriable, match="the last attempt failed"):
        found.value()
    now[0] = 100  # the clock was set back
    answers.append(lambda: 3)
    assert found.newer() == 3


def test_calls_of_an_issuer_leave_threads_for_other_work() -> None:
    """At most four run at once. The others wait without a thread."""
    gate, running_now, most, lock = threading.Event(), [0], [0], threading.Lock()

    def call() -> None:
        with lock:
            running_now[0] += 1
            most[0] = max(most[0], running_now[0])
        gate.wait(10)
        with lock:
            running_now[0] -= 1

    async def all_at_once() -> str:
        client = OidcIssuer(SETTINGS)
        calls = [asyncio.create_task(client.in_thread(call)) for _ in range(100)]
        await asyncio.sleep(0.1)
        other = await asyncio.wait_for(asyncio.to_thread(lambda: "other work"), 5)
        gate.set()
        await asyncio.gather(*calls)
        return other

    assert asyncio.run(all_at_once()) == "other work"
    assert most == [4]


def test_passwords_work_while_no_thread_is_free() -> None:
    """Their hashes have threads of their own, whatever occupies those for general use."""
    gate, app = threading.Event(), pages_app()

    @app.get("/page")
    async def page() -> str:
        for _ in range(100):
            asyncio.get_running_loop().run_in_executor(None, gate.wait, 20)
        return "occupied"

    guard(app, host="127.0.0.1", access=Access(users=USERS), url="http://127.0.0.1:9")
    try:
        with running(app) as browser:
            assert login(browser, "ada", "a right long password") == 303
            assert browser.get("/page").json() == "occupied"
            begun = time.monotonic()
            assert login(browser, "ada", "a right long password") == 303
            assert time.monotonic() - begun < 10
            gate.set()
    finally:
        gate.set()
