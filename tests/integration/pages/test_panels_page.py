"""Use a dashboard's panels in a browser: the page shows what DuckDB computes from the same rows."""

from __future__ import annotations

import csv
import io
import json
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, quote, urlsplit

import pytest
import yaml
from playwright.sync_api import Browser, Page, expect
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from tests.integration.pages.conftest import drawn
from tests.integration.pages.looking import (
    GROUPS,
    HEATMAP,
    HISTOGRAM,
    NEWEST,
    ORDERS,
    REVENUE,
    SERIES,
    TERMS,
    TEXT,
    ask,
    check,
    figure,
    panel,
    serious,
    span_of,
)
from tests.support.browser import OPEN

if TYPE_CHECKING:
    from tests.integration.pages.conftest import ServedPages

pytestmark = pytest.mark.integration


def test_every_panel_equals_duckdb(panels_page: Page, served: ServedPages) -> None:
    """Numbers, series, bars, histogram, heatmap, tables; markup in titles and values is text; the page shows the
    positions.
    """
    check(panels_page, served)
    expect(panels_page).to_have_title("Sales <now>")
    expect(panel(panels_page, TEXT)).to_contain_text("<b>Plain</b> words.")
    expect(panel(panels_page, GROUPS)).to_contain_text("<b>bold</b>")
    expect(panels_page.get_by_test_id("foot")).to_contain_text(re.compile(r"Shows shop: change \d+"))
    expect(panel(panels_page, REVENUE).get_by_test_id("age")).to_have_text("current")
    newest = (
        panel(panels_page, NEWEST).get_by_test_id("table-row").evaluate_all("all => all.map(r => r.cells[0].innerText)")
    )
    expected = served.rows.execute(
        f"SELECT id FROM sales WHERE {span_of(panels_page, served)} ORDER BY sold_at DESC LIMIT 6"
    ).fetchall()
    assert newest == [str(key) for (key,) in expected]


def test_a_click_filters_all_panels_and_the_url_restores_it(
    panels_page: Page, served: ServedPages, browser: Browser
) -> None:
    """Bars, series names, cells and facets filter; back undoes; the link shows the same to another reader."""
    panel(panels_page, SERIES).get_by_role("button", name="DE", exact=True).click()
    check(panels_page, served, "country = 'DE'")
    panel(panels_page, TERMS).locator("[data-testid=term][data-value='Product 1']").click()
    check(panels_page, served, "country = 'DE' AND product = 'Product 1'")
    expect(panels_page.get_by_test_id("chip")).to_have_count(2)
    other = browser.new_page(viewport={"width": 1280, "height": 900})
    other.goto(panels_page.url)
    check(other, served, "country = 'DE' AND product = 'Product 1'")
    other.close()
    panels_page.go_back()
    check(panels_page, served, "country = 'DE'")
    panels_page.get_by_test_id("facet-country").locator("summary").click()
    panels_page.get_by_test_id("facet-country").locator("[data-kind=none]").check()
    check(panels_page, served, "(country = 'DE' OR country IS NULL)")
    panels_page.get_by_test_id("clear").click()
    check(panels_page, served)
    panels_page.get_by_test_id("search").fill("produ 7")
    expect(panels_page.get_by_test_id("clear")).to_be_visible()
    check(panels_page, served, "regexp_matches(product, '^Product 7$')")


def test_a_bar_of_a_histogram_filters_by_its_ends(panels_page: Page, served: ServedPages, browser: Browser) -> None:
    """The first end is included, the second excluded; the link restores the filter, the chip removes it, and the
    histogram zooms in.
    """
    bar = panel(panels_page, HISTOGRAM).get_by_test_id("histogram-bar").first
    low, high = bar.get_attribute("data-low"), bar.get_attribute("data-high")
    bar.click()
    within = f"amount >= {low} AND amount < {high}"
    check(panels_page, served, within)
    assert figure(panels_page, ORDERS) > 0
    assert panel(panels_page, HISTOGRAM).get_by_test_id("histogram-bar").count() > 1
    other = browser.new_page(viewport={"width": 1280, "height": 900})
    other.goto(panels_page.url)
    check(other, served, within)
    other.close()
    expect(panels_page.get_by_test_id("chip")).to_contain_text(f"{low} to {high}")
    panels_page.get_by_test_id("clear").click()
    check(panels_page, served)


def test_time_is_chosen_by_range_by_dragging_and_by_keys(panels_page: Page, served: ServedPages) -> None:
    """Choose time by a quick range, by dragging over the series, and by arrow keys alone."""
    panels_page.get_by_test_id("range").select_option("last 7 days")
    drawn(panels_page)
    assert "range=last+7+days" in panels_page.url
    few = figure(panels_page, ORDERS)
    panels_page.get_by_test_id("range").select_option("all")
    drawn(panels_page)
    assert figure(panels_page, ORDERS) == 600 > few
    expect(panel(panels_page, SERIES).get_by_test_id("panel-note")).to_have_text("1 rows are outside this axis.")
    panels_page.get_by_test_id("range").select_option("last 30 days")
    drawn(panels_page)
    box = panel(panels_page, SERIES).get_by_test_id("series").bounding_box()
    assert box is not None
    panels_page.mouse.move(box["x"] + box["width"] * 0.3, box["y"] + 80)
    panels_page.mouse.down()
    panels_page.mouse.move(box["x"] + box["width"] * 0.6, box["y"] + 80, steps=4)
    panels_page.mouse.up()
    check(panels_page, served)
    assert "from=" in panels_page.url
    panel(panels_page, SERIES).get_by_test_id("series").focus()
    for key in ("ArrowRight", "ArrowRight", "Shift+ArrowRight", "Shift+ArrowRight", "Enter"):
        panels_page.keyboard.press(key)
    check(panels_page, served)
    said = parse_qs(urlsplit(panels_page.url).query)
    assert said["from"][0].endswith("T00:00:00.000Z")


def test_the_keyboard_is_enough(panels_page: Page, served: ServedPages) -> None:
    """Tab reaches the filters and the bars; Enter and Space select; Escape closes what is open."""
    panels_page.keyboard.press("Tab")
    assert panels_page.evaluate("document.activeElement.innerText") == "Skip to the panels"
    panels_page.get_by_test_id("facet-paid").locator("summary").focus()
    panels_page.keyboard.press("Enter")
    panels_page.keyboard.press("Tab")
    panels_page.keyboard.press("Space")
    drawn(panels_page)
    chosen = panels_page.get_by_test_id("facet-paid").locator("input:checked").get_attribute("data-value")
    check(panels_page, served, f"paid = {chosen}")
    panels_page.keyboard.press("Escape")
    assert panels_page.get_by_test_id("facet-paid").get_attribute("open") is None
    panel(panels_page, HEATMAP).locator(".heat").first.focus()
    panels_page.keyboard.press("ArrowDown")
    panels_page.keyboard.press("ArrowRight")
    assert "heat" in panels_page.evaluate("document.activeElement.className")
    panels_page.keyboard.press("Enter")
    drawn(panels_page)
    assert {"from", "to", "f.country", "f.paid"} <= parse_qs(urlsplit(panels_page.url).query).keys()


def test_new_rows_are_pushed_once_the_barrier_moves(panels_page: Page, served: ServedPages) -> None:
    """They are pushed to every panel; the total equals DuckDB's with them."""
    before = figure(panels_page, ORDERS)
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    row: dict[str, Any] = dict.fromkeys(served.rows.execute("SELECT * FROM sales LIMIT 0").fetchdf().columns)
    row |= {"id": 10_000 + int(before), "country": "DE", "amount": "12.50", "sold_at": now, "paid": True}
    served.index.put([row])
    served.rows.execute(
        "INSERT INTO sales (id, country, amount, sold_at, paid) VALUES (?, ?, ?, ?, ?)",
        [row["id"], "DE", "12.50", now.removesuffix("Z"), True],
    )
    expect(panel(panels_page, ORDERS).get_by_test_id("value")).to_have_attribute("data-y", str(int(before) + 1))
    expect(panel(panels_page, NEWEST).get_by_test_id("table-row").first).to_contain_text(str(row["id"]))
    check(panels_page, served)


def test_a_view_is_saved_as_yaml(panels_page: Page, served: ServedPages) -> None:
    """The YAML declares the same panels over the selection, and the topology reader accepts it as a dashboard."""
    panel(panels_page, SERIES).get_by_role("button", name="it's", exact=True).click()
    drawn(panels_page)
    panels_page.get_by_test_id("save").click()
    expect(panels_page.get_by_test_id("yaml-text")).to_have_value(re.compile("where"))
    said = yaml.safe_load(panels_page.get_by_test_id("yaml-text").input_value())
    assert said["sales"]["panels"][0]["where"] == ["country = 'it''s'"]
    assert said["sales"]["range"] == "last 30 days"
    assert len(said["sales"]["panels"]) == 11
    panels_page.get_by_test_id("yaml-close").click()


def test_an_invalid_link_shows_the_reason(browser: Browser, served: ServedPages) -> None:
    """Unknown columns, broken ranges and values of another type show a reason, not a broken page."""
    for query, said in (
        ("f.nope=1", "unknown column nope"),
        ("range=yesterday", "range 'yesterday'"),
        ("f.id=x%22%3E", "a whole number"),
        ("from=2026-02-01&to=2026-01-01", "a time range"),
    ):
        page = browser.new_page()
        page.goto(f"{served.url}?{query}")
        expect(page.get_by_test_id("banner")).to_contain_text(said)
        page.close()


def fits(page: Page) -> None:
    """Nothing scrolls sideways on a laptop and on a phone, light and dark, and axe finds nothing serious."""
    for width, scheme in ((390, "dark"), (1280, "light")):
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]  # two of the schemes
        page.set_viewport_size({"width": width, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.evaluate("document.body.scrollWidth") <= width
        assert serious(page) == []


def test_pages_fit_laptops_and_phones(browser: Browser, served: ServedPages) -> None:
    """Contrast, names, roles, order and widths are checked for the panels, the rows and an open row."""
    page = browser.new_page(viewport={"width": 390, "height": 800}, color_scheme="light")
    page.goto(served.url)
    drawn(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    fits(page)
    page.goto(f"{served.url}rows/sales")
    expect(page.get_by_test_id("row").first).to_be_visible()
    fits(page)
    page.get_by_test_id("open").first.click()
    expect(page.get_by_test_id("row-columns")).to_be_visible()
    fits(page)
    page.close()


def column(page: Page, name: str) -> list[str]:
    return page.locator(f"[data-testid=row] td[data-column={name}]").all_inner_texts()


def test_drilled_to_sorted_paged_and_opened(panels_page: Page, served: ServedPages) -> None:
    """The selection is kept; every order and page equals DuckDB's; a row shows all columns in the query's order."""
    panel(panels_page, TERMS).locator("[data-testid=term][data-value='Product 1']").click()
    drawn(panels_page)
    where = f"{span_of(panels_page, served)} AND product = 'Product 1'"
    panel(panels_page, TERMS).get_by_test_id("drill").click()
    total = served.one(f"SELECT count(*) FROM sales WHERE {where}")
    expect(panels_page.get_by_test_id("rows-note")).to_have_attribute("data-total", str(total))
    assert total > 50
    panels_page.get_by_test_id("sort-amount").click()
    expect(panels_page.locator("th[aria-sort=descending]")).to_have_text("Amount ▼")
    order = f"SELECT id FROM sales WHERE {where} AND amount IS NOT NULL ORDER BY amount"
    first = [str(key) for (key,) in served.rows.execute(f"{order} DESC LIMIT 5").fetchall()]
    expect(panels_page.get_by_test_id("row").first.locator("td[data-column=id]")).to_have_text(first[0])
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
    expect(panels_page.get_by_test_id("explain")).to_have_text(f"tailorbird explain {served.topology} sales {key}")
    panels_page.get_by_test_id("ask-origins").click()  # no join has ever run here
    expect(panels_page.get_by_test_id("origins-error")).to_contain_text(re.compile("layout|HBase"))


def test_downloads_hold_every_row_and_no_formula(served: ServedPages, tmp_path: Path) -> None:
    """CSV and JSON contain every selected row; a spreadsheet executes no value."""
    url = f"{served.url}api/rows/sales.csv?range=all&columns=id,note,amount&sort=id"
    with OPEN.open(url, timeout=20) as answer:
        assert answer.headers["Content-Disposition"] == 'attachment; filename="sales.csv"'
        head, *rows = csv.reader(io.StringIO(answer.read().decode(), newline=""))
    assert head == ["id", "note", "amount"]
    expected = served.rows.execute("SELECT id, note, amount FROM sales ORDER BY id").fetchall()
    assert [row[0] for row in rows] == [str(key) for key, _, _ in expected]
    for (_, note, amount), (_, text, number) in zip(rows, expected, strict=True):
        assert note in (text or "", f"'{text}")
        assert not note.startswith(("=", "+", "-", "@"))
        assert amount == ("" if number is None else str(number))
    with OPEN.open(url.replace(".csv", ".json"), timeout=20) as answer:
        text = answer.read()
    found = json.loads(text)
    assert [(one["id"], one["note"]) for one in found] == [(key, note) for key, note, _ in expected]
    # as docs/dashboard.md explains for Parquet
    (tmp_path / "sales.json").write_bytes(text)
    parquet = f"{tmp_path}/sales.parquet"
    served.rows.execute(f"COPY (SELECT * FROM read_json('{tmp_path}/sales.json')) TO '{parquet}' (FORMAT parquet)")
    total = served.one(f"SELECT sum(amount::DECIMAL(10,2)) FROM read_parquet('{parquet}')")
    assert total == served.one("SELECT sum(amount) FROM sales")


HOSTILE = ["{!func}1", '_query_:"{!lucene}*:*"', "*:*", "barrier-0", "x' OR 1=1", "../../etc/passwd"]


def test_invalid_requests_are_refused_and_leak_nothing(served: ServedPages) -> None:
    """Unknown keys, columns, sorts, panels and assets are refused; no page shows barriers as rows."""
    for text in HOSTILE:
        said = quote(text, safe="")
        assert ask(served, f"/api/rows/sales/row?key={said}")[0] == 404
        for name in ("columns", "sort", "page", "panel"):
            assert ask(served, f"/api/rows/sales?{name}={said}")[0] == 400, (name, text)
        assert ask(served, f"/assets/{said}")[0] == 404
    for name in ("_positions", "_kind", "_id"):
        assert ask(served, f"/api/rows/sales?columns={name}")[0] == 400
    assert ask(served, "/api/rows/sales?q=" + "x" * 17_000)[0] == 400
    status, text = ask(served, "/?next=https://evil.example/&q=%3C/script%3E%3Cscript%3Ealert(1)")
    assert status == 200
    assert "evil.example" not in text
    assert "alert(1)" not in text


def test_other_sites_are_refused(served: ServedPages) -> None:
    """A websocket opened by a foreign page, its requests, and host names that it points here are refused."""
    address = served.url.replace("http", "ws") + "live/sales"
    for origin in (
        "http://evil.example",
        "null",
        served.url.replace("http:", "https:").replace("127.0.0.1", "127.0.0.1.evil"),
    ):
        with (
            pytest.raises(InvalidStatus, match="403"),
            connect(address, additional_headers={"Origin": origin}, proxy=None),
        ):
            pass
    own = {"Origin": served.url.rstrip("/")}
    with connect(address, additional_headers=own, proxy=None) as socket:
        socket.send("no message")
        with pytest.raises(Exception, match="1008"):
            socket.recv(timeout=10)
    assert ask(served, "/api/x", "POST", Origin="http://evil.example")[0] == 403
    assert ask(served, "/api/x", "POST", Sec_Fetch_Site="cross-site")[0] == 403
    assert ask(served, "/", Host="evil.example")[0] == 400


def test_verification_and_dead_letters_have_pages(browser: Browser, served: ServedPages) -> None:
    """Every page links to them, without a script. Unknown state (no server at Kafka's address) is not shown as healthy.
    Nothing scrolls sideways, and axe finds nothing serious.
    """
    page = browser.new_page(viewport={"width": 390, "height": 800}, color_scheme="dark")
    page.goto(f"{served.url}rows/sales")
    page.get_by_role("link", name="Dead letters").click()
    expect(page.get_by_test_id("sentence")).to_contain_text("dead letters are unknown")
    expect(page.get_by_test_id("command")).to_have_text("tailorbird stack status")
    fits(page)
    page.get_by_role("link", name="Proof").click()
    expect(page.get_by_test_id("sentence")).to_contain_text("declares no checks")
    expect(page.get_by_test_id("command")).to_have_text(f"tailorbird verify {served.topology}")
    fits(page)
    expect(page.get_by_role("link", name="Fleet")).to_have_count(0)
    assert page.locator("script").count() == 0
    page.close()


def test_the_overview_equals_status(panels_page: Page, served: ServedPages) -> None:
    """Parts that run here are shown as moving, parts that do not are shown as unknown, as text and as a graph of the
    data flow.
    """
    panels_page.get_by_role("link", name="Overview").click()
    expect(panels_page.get_by_test_id("node")).to_have_count(8)
    shown = panels_page.locator("[data-node='dashboard sales']")
    expect(shown).to_have_attribute("data-state", "moving")
    expect(panels_page.locator("[data-node='join sales']")).to_have_attribute("data-state", "elsewhere")
    expect(panels_page.get_by_test_id("sentence")).to_have_text(
        "All processes on this machine make progress. "
        "Unknown here: capture s, join sales, join tickets, index sales, index tickets."
    )
    expect(panels_page.locator("#graph path")).to_have_count(7)
    expect(shown.get_by_test_id("flow")).to_contain_text(re.compile(r"^from sales: shows all up to .+ ago$"))
    assert panels_page.evaluate("document.body.scrollWidth") <= 1280
    assert serious(panels_page) == []
    panels_page.set_viewport_size({"width": 390, "height": 800})
    assert panels_page.evaluate("document.body.scrollWidth") <= 390
