"""The rows behind a dashboard: drilled to, sorted, paged, downloaded, looked at; and what no other site may do."""

from __future__ import annotations

import csv
import http.client
import io
import json
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

import pytest
from playwright.sync_api import Page, expect
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from tests.integration.panels.conftest import OPEN, drawn
from tests.integration.panels.test_panels_page import TERMS, panel, span_of

if TYPE_CHECKING:
    from tests.integration.panels.conftest import SalesPage

pytestmark = pytest.mark.integration


def column(page: Page, name: str) -> list[str]:
    return page.locator(f"[data-testid=row] td[data-column={name}]").all_inner_texts()


def test_drilled_to_sorted_paged_and_opened(panels_page: Page, shop_page: SalesPage) -> None:
    """What was chosen goes along; every order and page is DuckDB's; a row shows all columns in the query's order."""
    panel(panels_page, TERMS).locator("[data-testid=term][data-value='Product 1']").click()
    drawn(panels_page)
    where = f"{span_of(panels_page, shop_page)} AND product = 'Product 1'"
    panel(panels_page, TERMS).get_by_test_id("drill").click()
    total = shop_page.one(f"SELECT count(*) FROM sales WHERE {where}")
    expect(panels_page.get_by_test_id("rows-note")).to_have_attribute("data-total", str(total))
    assert total > 50
    panels_page.get_by_test_id("sort-amount").click()
    expect(panels_page.locator("th[aria-sort=descending]")).to_have_text("Amount ▼")
    order = f"SELECT id FROM sales WHERE {where} AND amount IS NOT NULL ORDER BY amount"
    first = [str(key) for (key,) in shop_page.rows.execute(f"{order} DESC LIMIT 5").fetchall()]
    expect(panels_page.get_by_test_id("row").first.locator("td").first).to_have_text(first[0])
    assert column(panels_page, "id")[:5] == first
    panels_page.get_by_test_id("next").click()
    expect(panels_page.get_by_test_id("page")).to_contain_text("Page 2 of")
    panels_page.go_back()
    expect(panels_page.get_by_test_id("page")).to_contain_text("Page 1 of")
    panels_page.get_by_test_id("columns").locator("summary").click()
    panels_page.get_by_test_id("columns").locator("[data-column=note]").uncheck()
    expect(panels_page.locator("td[data-column=note]")).to_have_count(0)
    panels_page.get_by_test_id("columns").locator("[data-column=quantity]").check()
    expect(panels_page.locator("td[data-column=quantity]").first).to_be_visible()
    panels_page.keyboard.press("Escape")
    key = column(panels_page, "id")[0]
    panels_page.get_by_test_id("open").first.click()
    expect(panels_page.get_by_test_id("row-columns")).to_contain_text("Changed at the source")
    expect(panels_page.get_by_test_id("explain")).to_have_text(f"tailorbird explain {shop_page.topology} sales {key}")


def test_downloads_hold_every_row_and_no_formula(shop_page: SalesPage) -> None:
    """CSV and JSON of what is chosen, whole; a spreadsheet executes nothing of it."""
    url = f"{shop_page.url}api/rows/sales.csv?range=all&columns=id,note,amount&sort=id"
    with OPEN.open(url, timeout=20) as answer:
        assert answer.headers["Content-Disposition"] == 'attachment; filename="sales.csv"'
        head, *rows = csv.reader(io.StringIO(answer.read().decode(), newline=""))
    assert head == ["id", "note", "amount"]
    expected = shop_page.rows.execute("SELECT id, note, amount FROM sales ORDER BY id").fetchall()
    assert [row[0] for row in rows] == [str(key) for key, _, _ in expected]
    for (_, note, amount), (_, text, number) in zip(rows, expected, strict=True):
        assert note in (text or "", f"'{text}")
        assert not note.startswith(("=", "+", "-", "@"))
        assert amount == ("" if number is None else str(number))
    with OPEN.open(url.replace(".csv", ".json"), timeout=20) as answer:
        found = json.load(answer)
    assert [(one["id"], one["note"]) for one in found] == [(key, note) for key, note, _ in expected]


def ask(shop_page: SalesPage, path: str, method: str = "GET", **headers: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", urlsplit(shop_page.url).port or 0, timeout=20)
    connection.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
    answer = connection.getresponse()
    text = answer.read().decode(errors="replace")
    connection.close()
    return answer.status, text


HOSTILE = ["{!func}1", '_query_:"{!lucene}*:*"', "*:*", "barrier-0", "x' OR 1=1", "../../etc/passwd"]


def test_nothing_gets_in_and_nothing_out(shop_page: SalesPage) -> None:
    """Keys, columns, sorts, panels and assets that are none are refused; barriers are nobody's rows."""
    for text in HOSTILE:
        said = quote(text, safe="")
        assert ask(shop_page, f"/api/rows/sales/row?key={said}")[0] == 404
        for name in ("columns", "sort", "page", "panel"):
            assert ask(shop_page, f"/api/rows/sales?{name}={said}")[0] == 400, (name, text)
        assert ask(shop_page, f"/assets/{said}")[0] == 404
    for name in ("_positions", "_kind", "_id"):
        assert ask(shop_page, f"/api/rows/sales?columns={name}")[0] == 400
    assert ask(shop_page, "/api/rows/sales?q=" + "x" * 17_000)[0] == 400
    status, text = ask(shop_page, "/?next=https://evil.example/&q=%3C/script%3E%3Cscript%3Ealert(1)")
    assert status == 200
    assert "evil.example" not in text
    assert "alert(1)" not in text


def test_other_sites_are_refused(shop_page: SalesPage) -> None:
    """A websocket that a foreign page opens, requests that it sends, and names that it points here."""
    address = shop_page.url.replace("http", "ws") + "live/sales"
    for origin in (
        "http://evil.example",
        "null",
        shop_page.url.replace("http:", "https:").replace("127.0.0.1", "127.0.0.1.evil"),
    ):
        with (
            pytest.raises(InvalidStatus, match="403"),
            connect(address, additional_headers={"Origin": origin}, proxy=None),
        ):
            pass
    own = {"Origin": shop_page.url.rstrip("/")}
    with connect(address, additional_headers=own, proxy=None) as socket:
        socket.send("no message")
        with pytest.raises(Exception, match="1008"):
            socket.recv(timeout=10)
    assert ask(shop_page, "/_nicegui/x", "POST", Origin="http://evil.example")[0] == 403
    assert ask(shop_page, "/_nicegui/x", "POST", Sec_Fetch_Site="cross-site")[0] == 403
    assert ask(shop_page, "/", Host="evil.example")[0] == 400
