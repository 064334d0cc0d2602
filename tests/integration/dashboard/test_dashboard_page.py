"""Use the dashboard in a browser: rows, facets, histogram, search, freshness, and live changes."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

if TYPE_CHECKING:
    from tests.integration.dashboard.conftest import IndexedTable

pytestmark = pytest.mark.integration

HOSTILE = ["<img src=x onerror=\"document.title='taken'\">", "<b>bold</b>", "{{ 7*7 }}", "</td></tr><script>1</script>"]


def eventually(condition: Callable[[], bool], *, seconds: float = 20.0) -> bool:
    """Return whether the condition becomes true before the deadline."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def cells(page: Page, name: str) -> Locator:
    return page.locator(f"[data-testid=row] td[data-column={name}]")


def counts(page: Page, facet: str) -> dict[str, int]:
    lines = page.get_by_test_id(f"facet-{facet}").locator(".tb-value")
    texts: list[list[str]] = [text.split("\n") for text in lines.all_inner_texts()]
    return {parts[0]: int(parts[-1]) for parts in texts}


def bars(page: Page) -> list[int]:
    found: list[Any] = page.get_by_test_id("bar").evaluate_all("bars => bars.map(b => +b.dataset.count)")
    return [int(count) for count in found]


def box(page: Page, facet: str, value: str) -> Any:
    return page.get_by_test_id(f"facet-{facet}").get_by_role("checkbox", name=value, exact=True)


def test_page_shows_the_newest_rows_counts_and_histogram(page: Page) -> None:
    """Newest rows first, exact values, every facet value with its count, every dated row in a bar; tombstones and
    barriers are hidden.
    """
    expect(page.get_by_test_id("total")).to_have_text("120")
    expect(page).to_have_title("Help <desk>")
    expect(page.get_by_test_id("title")).to_have_text("Help <desk>")
    expect(page.get_by_test_id("row")).to_have_count(50)
    times = cells(page, "opened_on").all_inner_texts()
    assert times == sorted(times, reverse=True)
    assert times[0] == "2026-04-28 10:00:51"
    assert cells(page, "cost").first.inner_text() == "111.50"
    assert counts(page, "mood") == {'say "hi"': 30, "grün & süß": 30, "(empty)": 30, "(none)": 30}
    assert counts(page, "urgent") == {"no": 80, "yes": 40}
    assert sum(bars(page)) == 120
    assert len(bars(page)) > 20


def test_markup_in_values_is_text(page: Page) -> None:
    """A cell value that looks like HTML or a template reaches the DOM as text, and no script in it runs."""
    page.get_by_test_id("search").fill("onerror")
    expect(cells(page, "remark")).to_have_text([HOSTILE[0]] * 2)
    page.get_by_test_id("search").fill("bold")
    expect(cells(page, "remark")).to_have_text([HOSTILE[1]] * 2)
    page.get_by_test_id("search").fill("")
    expect(page.get_by_test_id("row")).to_have_count(50)
    assert {"{{ 7*7 }}", "</td></tr><script>1</script>"} <= set(cells(page, "remark").all_inner_texts())
    assert page.locator("[data-testid=row] td img, [data-testid=row] td b, [data-testid=row] td script").count() == 0
    expect(page).to_have_title("Help <desk>")


SYNTAX = ['"unbalanced', "{!func}1", "mood:x OR *:*", "* ?", "a) OR (b", "\\", "AND", '_query_:"{!lucene}*:*"']


def test_no_search_text_breaks_the_page(page: Page) -> None:
    """Solr's syntax, typed by a user, is a search for words: the page stays live and shows no row that it should
    hide."""
    for text in SYNTAX:
        page.get_by_test_id("search").fill("mülle tick 77")
        expect(page.get_by_test_id("total")).to_have_text("1")
        of_words = re.search(r"\w", text) is not None
        page.get_by_test_id("search").fill(text)
        expect(page.get_by_test_id("total"), text).to_have_text("0" if of_words else "120")
        expect(page.get_by_test_id("total-note"), text).to_have_text(re.compile("^of 120$") if of_words else "all rows")
        expect(page.get_by_test_id("status"), text).to_have_text("Live")


def test_search_finds_words_and_their_beginnings(page: Page) -> None:
    """Words match in any order, by prefix, with umlauts and apostrophes."""
    page.get_by_test_id("search").fill("mülle tick 77")
    expect(page.get_by_test_id("total")).to_have_text("1")
    expect(cells(page, "title")).to_have_text(["Ticket 77 of Müller's"])


def test_facets_refine_one_another(page: Page) -> None:
    """Several values of one facet widen the result, several facets narrow it; quotes, umlauts, the empty text and NULL
    match exactly.
    """
    box(page, "mood", 'say "hi"').click()
    expect(page.get_by_test_id("total")).to_have_text("30")
    box(page, "mood", "(empty)").click()
    expect(page.get_by_test_id("total")).to_have_text("60")
    box(page, "mood", "(none)").click()
    expect(page.get_by_test_id("total")).to_have_text("90")
    box(page, "urgent", "yes").click()
    expect(page.get_by_test_id("total")).to_have_text("30")
    expect(cells(page, "urgent")).to_have_text(["yes"] * 30)
    assert counts(page, "mood") == {'say "hi"': 10, "grün & süß": 10, "(empty)": 10, "(none)": 10}
    assert counts(page, "urgent") == {"no": 60, "yes": 30}
    assert set(cells(page, "mood").all_inner_texts()) == {'say "hi"', "", "—"}
    page.get_by_test_id("chip").filter(has_text="Urgent: yes").click()
    expect(page.get_by_test_id("total")).to_have_text("90")
    page.get_by_test_id("clear").click()
    expect(page.get_by_test_id("total")).to_have_text("120")
    expect(page.get_by_test_id("chip")).to_have_count(0)
    assert page.get_by_role("checkbox", checked=True).count() == 0


def test_a_set_is_counted_and_filtered_by_member(page: Page) -> None:
    """A row with several members counts for each of them; the cell shows all; a selected value finds all rows with
    it."""
    assert counts(page, "tags") == {"new": 60, "hot": 30, "(none)": 60}
    box(page, "tags", "new").click()
    expect(page.get_by_test_id("total")).to_have_text("60")
    assert set(cells(page, "tags").all_inner_texts()) == {"hot, new", "new"}
    box(page, "tags", "hot").click()
    box(page, "tags", "new").click()
    expect(page.get_by_test_id("total")).to_have_text("30")
    expect(cells(page, "tags")).to_have_text(["hot, new"] * 30)


def test_keyboard_alone_is_enough(page: Page) -> None:
    """A facet can be selected and a bar chosen without a pointer."""
    box(page, "mood", "grün & süß").focus()
    page.keyboard.press("Space")
    expect(page.get_by_test_id("total")).to_have_text("30")
    before = bars(page)
    page.get_by_test_id("bar").first.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    expect(page.get_by_test_id("chip").filter(has_text="2026")).to_have_count(1)
    expect(page.get_by_test_id("total")).to_have_text(str(before[1]))


def test_a_bar_opens_its_days(page: Page) -> None:
    """A click on a bar shows the rows that the bar counted, in finer bars; dragging over several bars shows their
    rows."""
    counted = bars(page)
    chosen = max(range(len(counted)), key=lambda i: counted[i])
    page.get_by_test_id("bar").nth(chosen).click()
    expect(page.get_by_test_id("total")).to_have_text(str(counted[chosen]))
    assert eventually(lambda: sum(bars(page)) == counted[chosen])
    page.get_by_test_id("clear").click()
    expect(page.get_by_test_id("total")).to_have_text("120")
    first, last = (page.get_by_test_id("bar").nth(i).bounding_box() for i in (1, len(counted) - 2))
    assert first
    assert last
    page.mouse.move(first["x"] + 2, first["y"] + 20)
    page.mouse.down()
    page.mouse.move(last["x"] + 2, last["y"] + 20, steps=5)
    page.mouse.up()
    expect(page.get_by_test_id("total")).to_have_text(str(sum(counted[1:-1])))


def test_changes_appear_by_themselves_with_their_freshness(page: Page, indexed: IndexedTable) -> None:
    """A new row, its update and its deletion appear without a click; the time from commit to visibility is measured."""
    expect(page.get_by_test_id("freshness")).to_have_text("—")
    new = page.locator("[data-testid=row]", has_text="Brand new")
    indexed.put(500, title="Brand new", opened_on="2026-04-30T12:00:00Z", cost="9.99", urgent=False)
    expect(new).to_have_count(1)
    expect(cells(page, "title").first).to_have_text("Brand new")
    expect(page.get_by_test_id("total")).to_have_text("121")
    latency = int(new.get_by_test_id("row-latency").get_attribute("data-ms") or -1)
    assert 200 <= latency < 20_000
    shown = page.get_by_test_id("freshness")
    assert int(shown.get_attribute("data-ms") or -1) == latency
    expect(page.get_by_test_id("newest-change")).to_have_text(re.compile(r"^(now|\d+ s ago)$"))
    indexed.put(500, title="Brand new, changed", opened_on="2026-04-30T12:00:00Z", cost="10.00", urgent=False)
    expect(new).to_contain_text("10.00")
    indexed.delete(500)
    expect(new).to_have_count(0)
    expect(page.get_by_test_id("total")).to_have_text("120")


def test_the_page_reports_that_solr_is_unavailable_and_recovers(page: Page, indexed: IndexedTable) -> None:
    """A banner appears, the last rows stay, and the page becomes live again by itself."""
    indexed.line.cut()
    expect(page.get_by_test_id("banner")).to_contain_text("does not answer")
    expect(page.get_by_test_id("status")).to_have_text("Not live")
    expect(page.get_by_test_id("row")).to_have_count(50)
    indexed.line.repair()
    expect(page.get_by_test_id("status")).to_have_text("Live")
    expect(page.get_by_test_id("banner")).to_be_hidden()


def test_without_a_browser_no_query_is_sent(page: Page, indexed: IndexedTable) -> None:
    """The page sends one query per refresh while a browser is open, and none afterwards."""
    before = len(indexed.line.queries)
    assert eventually(lambda: len(indexed.line.queries) >= before + 3)
    page.close()
    settled: list[int] = []

    def quiet() -> bool:
        settled.append(len(indexed.line.queries))
        return len(settled) > 40 and len(set(settled[-40:])) == 1

    assert eventually(quiet)


def test_dashboards_link_to_one_another(page: Page, indexed: IndexedTable) -> None:
    """One process serves all dashboards of a topology: each page has its own title, columns and facets, and links to
    the others. A histogram appears only if there is a time column.
    """
    page.get_by_test_id("others").get_by_role("link", name="Moods & more").click()
    expect(page.get_by_test_id("title")).to_have_text("Moods & more")
    expect(page.get_by_test_id("row")).to_have_count(50)
    assert page.url == f"{indexed.url}dashboard/moods"
    assert counts(page, "mood") == {'say "hi"': 30, "grün & süß": 30, "(empty)": 30, "(none)": 30}
    expect(page.get_by_test_id("facet-tags")).to_have_count(0)
    expect(page.get_by_test_id("histogram")).to_have_count(0)
    page.get_by_test_id("others").get_by_role("link", name="Help <desk>").click()
    expect(page.get_by_test_id("title")).to_have_text("Help <desk>")
    assert eventually(lambda: sum(bars(page)) == 120)
    assert page.url == indexed.url


# the headings of some cells that are narrower than a word in them
WORDS_ARE_WHOLE = """cells => cells.filter(cell => {
  const style = getComputedStyle(cell), pen = document.createElement('canvas').getContext('2d')
  pen.font = style.font
  const width = cell.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight)
  return cell.innerText.trim().split(/\\s+/).some(word => pen.measureText(word).width > width + 1)
}).map(cell => cell.innerText)"""


def test_the_table_fits_a_laptops_window(browser: Browser, indexed: IndexedTable) -> None:
    """At 1280 pixels nothing scrolls sideways, however long a text or a word is: cells wrap, up to a number of lines;
    headings wrap between words.
    """
    page = browser.new_page(viewport={"width": 1280, "height": 800})
    page.goto(indexed.url)
    expect(page.get_by_test_id("row")).to_have_count(50)
    assert page.evaluate("document.documentElement.scrollWidth") <= 1280
    middle = page.locator(".tb-table .q-table__middle")
    assert middle.evaluate("e => e.scrollWidth - e.clientWidth") <= 0
    heights = page.get_by_test_id("row").evaluate_all("rows => rows.map(row => row.offsetHeight)")
    assert max(heights) < 100
    assert page.locator("td[data-column=mood] span").evaluate_all("spans => spans.every(s => s.offsetHeight < 60)")
    page.set_viewport_size({"width": 1000, "height": 800})
    page.locator(".tb-table").evaluate("table => table.classList.add('many')")  # as with more columns
    assert page.locator(".tb-table th").evaluate_all(WORDS_ARE_WHOLE) == []
    page.close()


def test_a_narrow_window_needs_no_sideways_scrolling(browser: Browser, indexed: IndexedTable) -> None:
    """On a phone the rows appear as cards, and a button opens the filters."""
    page = browser.new_page(viewport={"width": 380, "height": 800}, color_scheme="dark")
    page.goto(indexed.url)
    expect(page.get_by_test_id("row").first).to_be_visible(timeout=20_000)
    assert page.evaluate("document.documentElement.scrollWidth") <= 380
    expect(page.get_by_test_id("facets")).to_be_hidden()
    page.get_by_test_id("filters-button").click()
    expect(page.get_by_test_id("facets")).to_be_visible()
    page.close()


def test_a_page_that_lacks_rows_is_not_live(page: Page, indexed: IndexedTable) -> None:
    """While changes wait as dead letters, the status label and the banner say so and show the command."""
    indexed.refuse(1204)
    expect(page.get_by_test_id("status")).to_have_text("Incomplete")
    banner = page.get_by_test_id("banner")
    expect(banner).to_contain_text("1\u202f204 changes were refused.")
    expect(banner).to_contain_text(f"tailorbird dead-letters list {indexed.topology}")
    indexed.refuse(0)
    expect(page.get_by_test_id("status")).to_have_text("Live")
    expect(banner).to_be_hidden()
