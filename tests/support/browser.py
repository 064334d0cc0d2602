"""A browser that tests look at pages with, and what they see to beside."""

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
    """Headless Chromium of this machine; a page that is waited for may take 20 s, since a busy machine is slow, not
    wrong."""
    found = [path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))]
    assert found, "no chromium: run tests/install-browser.sh"
    expect.set_options(timeout=20_000)
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=found[0], headless=True, args=_ARGUMENTS)
        yield browser
        browser.close()


@contextmanager
def watched(page: Page, own: str) -> Iterator[Page]:
    """A page, closed at the end: then nothing was asked of another host than `own`, no script failed or asked anything
    in a dialog, and nothing was refused by the page's own policy."""
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
    """Whether a page is served there."""
    try:
        with OPEN.open(url, timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
