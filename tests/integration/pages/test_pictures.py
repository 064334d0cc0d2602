"""Take the pictures of docs/images from the pages of the other tests here: `make pictures`.

Without that, `make matrix` takes them into a folder that it removes. The fleet's picture is in test_fleet_page.py.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import Browser, Page

from tests.integration.pages.conftest import drawn
from tests.support.browser import watched

if TYPE_CHECKING:
    from tests.integration.pages.conftest import ServedPages

FOLDER = os.environ.get("TAILORBIRD_TESTS_SCREENSHOTS", "")
pytestmark = [pytest.mark.integration, pytest.mark.matrix]


def _overview(page: Page) -> None:
    page.get_by_test_id("node").first.wait_for()


def _rows(page: Page) -> None:
    page.get_by_test_id("row").first.wait_for()
    page.get_by_test_id("columns").locator("summary").click()


def _desk(page: Page) -> None:
    page.get_by_test_id("row").first.wait_for()
    page.get_by_test_id("series").wait_for()


@pytest.mark.parametrize(
    ("name", "path", "look", "width", "height", "drawn_width", "scheme"),
    [
        ("panels", "", drawn, 1280, 900, 860, "light"),
        ("panels-dark", "", drawn, 1280, 900, 860, "dark"),
        ("panels-phone", "", drawn, 390, 844, 300, "light"),
        ("overview", "overview", _overview, 1280, 500, 760, "light"),
        ("rows", "rows/sales?f.country=DE", _rows, 1280, 1000, 760, "light"),
        ("desk", "dashboard/desk", _desk, 1280, 900, 760, "light"),
        ("desk-phone", "dashboard/desk", _desk, 390, 844, 300, "dark"),
    ],
)
def test_a_picture(
    browser: Browser,
    served: ServedPages,
    name: str,
    path: str,
    look: Callable[[Page], None],
    width: int,
    height: int,
    drawn_width: int,
    scheme: Any,
    tmp_path: Path,
) -> None:
    """The documentation shows the page that is served; a page of panels is shown whole."""
    made = browser.new_page(
        viewport={"width": width, "height": height},
        device_scale_factor=drawn_width / width,
        color_scheme=scheme,
        locale="en-US",
    )
    with watched(made, served.url) as page:
        page.goto(served.url + path)
        look(page)
        whole = name in ("panels", "panels-dark")
        page.screenshot(path=Path(FOLDER or tmp_path) / f"{name}.jpg", type="jpeg", quality=80, full_page=whole)
