"""A browser for tests of pages, and the checks that run at the end of each page."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.request import ProxyHandler, build_opener

from playwright.sync_api import Browser, Page, expect, sync_playwright

_ARGUMENTS = (
    "--no-sandbox --disable-gpu --no-first-run --disable-background-networking"
    " --disable-component-update --disable-sync"
).split()
OPEN = build_opener(ProxyHandler({}))


@contextmanager
def headless() -> Iterator[Browser]:
    """Start this machine's headless Chromium; waits may take 20 s, since the machine may be busy."""
    found = [path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))]
    assert found, "no chromium: run tests/install-browser.sh"
    expect.set_options(timeout=20_000)
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=found[0], headless=True, args=_ARGUMENTS)
        yield browser
        browser.close()


@contextmanager
def watched(page: Page, own: str) -> Iterator[Page]:
    """Yield a page and close it. At the end no host but `own` was contacted, no script failed or opened a dialog, and
    the page's own policy refused nothing."""
    foreign: list[str] = []
    faults: list[str] = []
    page.on("request", lambda r: None if r.url.startswith((own, "data:")) else foreign.append(r.url))
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("dialog", lambda dialog: faults.append(dialog.message))
    page.on("console", lambda line: faults.append(line.text) if "Content Security Policy" in line.text else None)
    yield page
    page.close()
    assert foreign == []
    assert faults == []


def answers(url: str) -> bool:
    """Return whether a page is served there."""
    try:
        with OPEN.open(url, timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
