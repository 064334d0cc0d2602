"""Take the pictures of docs/images from the pages of the other tests here.

TAILORBIRD_TESTS_SCREENSHOTS=docs/images .venv/bin/python -m pytest -m matrix tests/integration/panels/test_pictures.py
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import Browser, Page

from tests.integration.panels.conftest import drawn
from tests.support.browser import watched

if TYPE_CHECKING:
    from tests.integration.panels.conftest import SalesPage

FOLDER = os.environ.get("TAILORBIRD_TESTS_SCREENSHOTS", "")
pytestmark = [pytest.mark.integration, pytest.mark.matrix]


def _overview(page: Page) -> None:
    page.get_by_test_id("node").first.wait_for()


def _rows(page: Page) -> None:
    page.get_by_test_id("row").first.wait_for()
    page.get_by_test_id("columns").locator("summary").click()


@pytest.mark.parametrize(
    ("name", "path", "look", "width", "height", "drawn_width", "scheme"),
    [
        ("panels", "", drawn, 1280, 900, 860, "light"),
        ("panels-dark", "", drawn, 1280, 900, 860, "dark"),
        ("panels-phone", "", drawn, 390, 844, 300, "light"),
        ("overview", "overview", _overview, 1280, 500, 760, "light"),
        ("rows", "rows/sales?f.country=DE", _rows, 1280, 800, 760, "light"),
    ],
)
def test_a_picture(
    chromium: Browser,
    shop_page: SalesPage,
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
    made = chromium.new_page(
        viewport={"width": width, "height": height},
        device_scale_factor=drawn_width / width,
        color_scheme=scheme,
        locale="en-US",
    )
    with watched(made, shop_page.url) as page:
        page.goto(shop_page.url + path)
        look(page)
        whole = name in ("panels", "panels-dark")
        page.screenshot(path=Path(FOLDER or tmp_path) / f"{name}.jpg", type="jpeg", quality=80, full_page=whole)
