"""Use the page of rows in a browser: rows, facets, rows over time, search, freshness, and live changes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.integration.pages.looking import serious
from tests.support.tickets import HOSTILE
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from tests.integration.pages.conftest import ServedPages

pytestmark = pytest.mark.integration


def cells(page: Page, name: str) -> Locator:
    return page.locator(f"[data-testid=row] td[data-column={name}]")


def counts(page: Page, facet: str) -> dict[str, int]:
    found: list[list[str]] = (
        page.get_by_test_id(f"facet-{facet}")
        .locator("label")
        .evaluate_all("all => all.map(one => [...one.querySelectorAll('span')].map(part => part.textContent))")
    )
    return {label: int(count) for label, count in found}


def bars(page: Page) -> list[int]:
    found: list[Any] = page.locator("[data-testid=timeline] td").evaluate_all("all => all.map(one => +one.dataset.y)")
    return [int(count) for count in found]


def choose(page: Page, facet: str, value: str) -> None:
    """Click a value of a facet, which is opened first."""
    place = page.get_by_test_id(f"facet-{facet}")
    if place.get_attribute("open") is None:
        place.locator("summary").click()
    place.get_by_role("checkbox", name=re.compile(f"^{re.escape(value)} ")).click()


def total(page: Page, rows: int) -> None:
    """Wait until so many rows are selected, and all parts show them."""
    expect(page.get_by_test_id("total")).to_have_attribute("data-count", str(rows))
    if rows:
        expect(page.get_by_test_id("rows-note")).to_have_attribute("data-total", str(rows))


def test_the_newest_rows_their_counts_and_their_days(rows_page: Page) -> None:
    """Newest rows first, exact values, every facet value with its count, every dated row in a bar; tombstones and
    barriers are hidden.
    """
    total(rows_page, 120)
    expect(rows_page).to_have_title("Help <desk>")
    expect(rows_page.get_by_test_id("title")).to_have_text("Help <desk>")
    times = cells(rows_page, "opened_on").all_inner_texts()
    assert times == sorted(times, reverse=True)
    assert times[0] == "2026-04-28 10:00:51"
    assert cells(rows_page, "cost").first.inner_text() == "111.50"
    assert counts(rows_page, "mood") == {'say "hi"': 30, "grün & süß": 30, "(empty)": 30, "(none)": 30}
    assert counts(rows_page, "urgent") == {"no": 80, "yes": 40}
    assert counts(rows_page, "tags") == {"new": 60, "hot": 30, "(none)": 60}
    assert sum(bars(rows_page)) == 120
    assert len(bars(rows_page)) > 20
    expect(rows_page.get_by_test_id("timeline")).to_contain_text("Opened on: rows over time, per")


def test_markup_in_values_is_text(rows_page: Page) -> None:
    """A cell value that looks like HTML or a template reaches the DOM as text, and no script in it runs."""
    for word, text in (("onerror", HOSTILE[0]), ("bold", HOSTILE[1])):
        rows_page.get_by_test_id("search").fill(word)
        expect(cells(rows_page, "remark")).to_have_text([text] * 2)
    rows_page.get_by_test_id("search").fill("")
    expect(rows_page.get_by_test_id("row")).to_have_count(50)
    assert {"{{ 7*7 }}", "</td></tr><script>1</script>"} <= set(cells(rows_page, "remark").all_inner_texts())
    assert rows_page.locator("[data-testid=row] td :is(img, b, script)").count() == 0
    expect(rows_page).to_have_title("Help <desk>")


SYNTAX = ['"unbalanced', "{!func}1", "mood:x OR *:*", "* ?", "a) OR (b", "\\", "AND", '_query_:"{!lucene}*:*"']


def test_no_search_text_breaks_the_page(rows_page: Page) -> None:
    """Words match in any order, by prefix, with umlauts and apostrophes. Solr's syntax is a search for words, too: the
    page stays live and shows no row that it should hide."""
    for text in SYNTAX:
        rows_page.get_by_test_id("search").fill("mülle tick 77")
        total(rows_page, 1)
        expect(cells(rows_page, "title")).to_have_text(["Ticket 77 of Müller's"])
        of_words = re.search(r"\w", text) is not None
        rows_page.get_by_test_id("search").fill(text)
        total(rows_page, 0 if of_words else 120)
        expect(rows_page.get_by_test_id("total-note"), text).to_have_text("of 120" if of_words else "all rows")
        expect(rows_page.get_by_test_id("status"), text).to_have_text("Live")


def test_facets_refine_one_another(rows_page: Page) -> None:
    """Several values of one facet widen the result, several facets narrow it; quotes, umlauts, the empty text and NULL
    match exactly; a row with several members counts for each of them.
    """
    for value, rows in (('say "hi"', 30), ("(empty)", 60), ("(none)", 90)):
        choose(rows_page, "mood", value)
        total(rows_page, rows)
    choose(rows_page, "urgent", "yes")
    total(rows_page, 30)
    expect(cells(rows_page, "urgent")).to_have_text(["yes"] * 30)
    assert counts(rows_page, "mood") == {'say "hi"': 10, "grün & süß": 10, "(empty)": 10, "(none)": 10}
    assert counts(rows_page, "urgent") == {"no": 60, "yes": 30}
    assert set(cells(rows_page, "mood").all_inner_texts()) == {'say "hi"', "", "—"}
    rows_page.get_by_test_id("chip").filter(has_text="Urgent: true").click()
    total(rows_page, 90)
    rows_page.get_by_test_id("clear").click()
    total(rows_page, 120)
    expect(rows_page.get_by_test_id("chip")).to_have_count(0)
    choose(rows_page, "tags", "new")
    total(rows_page, 60)
    assert set(cells(rows_page, "tags").all_inner_texts()) == {"hot, new", "new"}


def test_the_keyboard_is_enough(rows_page: Page) -> None:
    """A facet can be selected, a bar chosen and a row opened without a pointer, while rows are pushed."""
    rows_page.get_by_test_id("facet-mood").locator("summary").press("Enter")
    rows_page.get_by_test_id("facet-mood").get_by_role("checkbox", name="grün & süß").press("Space")
    total(rows_page, 30)
    rows_page.keyboard.press("Escape")
    expect(rows_page.get_by_test_id("timeline")).to_have_attribute("data-drawn", "2")
    before = bars(rows_page)
    some = next(i for i, rows in enumerate(before) if rows)
    rows_page.get_by_test_id("series").focus()
    for _ in range(some + 1):
        rows_page.keyboard.press("ArrowRight")
    rows_page.keyboard.press("Enter")
    total(rows_page, before[some])
    expect(rows_page.get_by_test_id("chip").filter(has_text="2026")).to_have_count(1)
    rows_page.get_by_test_id("open").first.press("Enter")
    expect(rows_page.get_by_test_id("row-columns")).to_contain_text("Changed at the source")
    rows_page.keyboard.press("Escape")
    expect(rows_page.get_by_test_id("row-detail")).to_be_hidden()
    expect(rows_page.get_by_test_id("open").first).to_be_focused()


def test_a_bar_opens_its_days(rows_page: Page) -> None:
    """A click on a bar shows the rows that the bar counted, in finer bars; dragging over several bars shows their
    rows."""
    counted = bars(rows_page)
    chosen = max(range(len(counted)), key=lambda i: counted[i])
    box = rows_page.get_by_test_id("series").bounding_box()
    assert box

    def x(bar: int) -> float:
        assert box
        return box["x"] + 48 + (bar + 0.5) / len(counted) * (box["width"] - 56)

    rows_page.mouse.click(x(chosen), box["y"] + 40)
    total(rows_page, counted[chosen])
    wait_for(lambda: sum(bars(rows_page)) == counted[chosen], "no finer bars", 20)
    rows_page.get_by_test_id("clear").click()
    total(rows_page, 120)
    wait_for(lambda: bars(rows_page) == counted, "not the bars from before", 20)
    rows_page.mouse.move(x(1), box["y"] + 40)
    rows_page.mouse.down()
    rows_page.mouse.move(x(len(counted) - 2), box["y"] + 40, steps=5)
    rows_page.mouse.up()
    total(rows_page, sum(counted[1:-1]))


def test_changes_appear_by_themselves_with_their_freshness(rows_page: Page, served: ServedPages) -> None:
    """A new row, its update and its deletion appear without a click; the time from commit to visibility is measured;
    the focus stays where it was."""
    expect(rows_page.get_by_test_id("freshness")).to_have_text("—")
    first = rows_page.get_by_test_id("open").first
    first.focus()
    held = rows_page.evaluate("document.activeElement.dataset.focus")
    new = rows_page.locator("[data-testid=row]", has_text="Brand new")
    served.tickets.put(500, title="Brand new", opened_on="2026-04-30T12:00:00Z", cost="9.99", urgent=False)
    expect(new).to_have_count(1)
    expect(cells(rows_page, "title").first).to_have_text("Brand new")
    total(rows_page, 121)
    latency = int(new.get_by_test_id("row-latency").get_attribute("data-ms") or -1)
    assert 200 <= latency < 20_000
    expect(rows_page.get_by_test_id("freshness")).to_have_attribute("data-ms", str(latency))
    expect(rows_page.get_by_test_id("newest-change")).to_have_text(re.compile(r"^(now|\d+ s ago)$"))
    assert rows_page.evaluate("document.activeElement.dataset.focus") == held
    served.tickets.put(500, title="Brand new, changed", opened_on="2026-04-30T12:00:00Z", cost="10.00", urgent=False)
    expect(new).to_contain_text("10.00")
    served.tickets.delete(500)
    expect(new).to_have_count(0)
    total(rows_page, 120)


# each step is [rows, now_ms, indexed_ms]; a row is [key, version, committed_ms, indexed_ms]
FRESHNESS = """async (steps) => {
  const { Freshness } = await import('/assets/freshness.js');
  const fresh = new Freshness();
  return steps.map(([rows, now_ms, indexed_ms]) => {
    if (rows === 'restart') return fresh.restart() ?? null;
    const all = rows.map(([key, version, committed_ms, indexed_ms]) => ({ key, version, committed_ms, indexed_ms }));
    fresh.observe({ rows: all, now_ms, indexed_ms });
    return [all.map((row) => fresh.of(row)), fresh.p50(now_ms)];
  });
}"""


def test_freshness_is_from_the_commit_to_first_sight(rows_page: Page) -> None:
    """A version counts once, when the page first saw it. What was there before, what another selection brings up and
    what moves up when a row leaves do not count. The median covers the last minute."""

    def observed(*steps: Any) -> list[Any]:
        found: list[Any] = rows_page.evaluate(FRESHNESS, list(steps))
        return found

    old, new = ["old", 2, 0, 100], ["new", 4, 100_000, 100_400]
    assert observed([[old], 100_000, 100], [[new, old], 100_900, 100_400], [[new, old], 101_900, 100_400]) == [
        [[None], None],
        [[900, None], 900],
        [[900, None], 900],
    ]
    changed = ["old", 4, 60_000, 60_100]
    assert observed([[old], 10, 100], [[changed], 60_300, 60_100])[1] == [[300], 300]
    assert observed([[["a", 2, 0, 500_000]], 600_000, 500_000], [[["b", 2, 0, 1]], 601_000, 1])[1] == [[None], None]
    assert observed([[], 1_000, 900], ["restart"], [[["a", 2, 1, 950]], 2_000, 950])[2] == [[None], None]
    steps = [
        [[[str(i), 2, 30_000 * (i + 1) - ms, 30_000 * (i + 1)]], 30_000 * (i + 1), 30_000 * (i + 1)]
        for i, ms in enumerate((100, 200, 900))
    ]
    medians = observed([[], 0, 0], *steps, [[], 125_000, 0], [[], 200_000, 0])
    assert [median for _, median in medians] == [None, 100, 150, 200, 900, None]


def test_the_page_reports_that_solr_is_unavailable_and_recovers(rows_page: Page, served: ServedPages) -> None:
    """A banner appears, the last rows stay, and the page becomes live again by itself. While changes wait as dead
    letters, the status label and the banner say so and show the command."""
    served.line.cut()
    banner = rows_page.get_by_test_id("banner")
    expect(banner).to_contain_text("does not answer")
    expect(rows_page.get_by_test_id("status")).to_have_text("Not live")
    expect(rows_page.get_by_test_id("row")).to_have_count(50)
    served.line.repair()
    expect(rows_page.get_by_test_id("status")).to_have_text("Live")
    expect(banner).to_be_hidden()
    served.tickets.barrier(incomplete=1204)
    expect(rows_page.get_by_test_id("status")).to_have_text("Incomplete")
    expect(banner).to_contain_text("1,204 changes were refused.")
    expect(banner).to_contain_text(f"tailorbird dead-letters list {served.topology}")
    served.tickets.barrier()
    expect(rows_page.get_by_test_id("status")).to_have_text("Live")
    expect(banner).to_be_hidden()


def test_without_a_browser_no_query_is_sent(rows_page: Page, served: ServedPages) -> None:
    """The server sends one query per refresh while a browser is open, and none afterwards."""
    before = len(served.line.queries)
    wait_for(lambda: len(served.line.queries) >= before + 3, "no queries", 20)
    rows_page.close()
    settled: list[int] = []

    def quiet() -> bool:
        settled.append(len(served.line.queries))
        return len(settled) > 15 and len(set(settled[-15:])) == 1

    wait_for(quiet, "queries without a viewer", 20)


def test_dashboards_link_to_one_another(rows_page: Page, served: ServedPages) -> None:
    """One process serves all dashboards of a topology: each page has its own title, columns and facets, and links to
    the others. Rows over time appear only if there is a time column.
    """
    rows_page.get_by_test_id("pages").get_by_role("link", name="Moods & more").click()
    expect(rows_page.get_by_test_id("title")).to_have_text("Moods & more")
    expect(rows_page.get_by_test_id("row")).to_have_count(50)
    assert rows_page.url == f"{served.url}dashboard/moods"
    expect(rows_page.get_by_test_id("facet-mood")).to_have_count(1)
    assert counts(rows_page, "mood") == {'say "hi"': 30, "grün & süß": 30, "(empty)": 30, "(none)": 30}
    expect(rows_page.get_by_test_id("facet-tags")).to_have_count(0)
    expect(rows_page.get_by_test_id("timeline")).to_be_hidden()
    rows_page.get_by_test_id("pages").get_by_role("link", name="Sales <now>").click()
    expect(rows_page.get_by_test_id("panel")).to_have_count(11)
    assert rows_page.url == served.url


# the texts of some cells that are narrower than a word in them
WORDS_ARE_WHOLE = """cells => cells.filter(cell => {
  const style = getComputedStyle(cell), pen = document.createElement('canvas').getContext('2d')
  pen.font = style.font
  const width = cell.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight)
  return cell.innerText.trim().split(/\\s+/).some(word => pen.measureText(word).width > width + 1)
}).map(cell => cell.innerText)"""


def test_the_page_fits_laptops_and_phones(browser: Browser, served: ServedPages) -> None:
    """At 1280 pixels nothing scrolls sideways, however long a text or a word is: cells wrap, up to a number of lines;
    headings wrap between words. On a phone the rows appear as cards. Axe finds nothing serious, light and dark.
    """
    page = browser.new_page(viewport={"width": 1280, "height": 800})
    page.goto(f"{served.url}dashboard/desk")
    expect(page.get_by_test_id("row")).to_have_count(50)
    assert page.evaluate("document.documentElement.scrollWidth") <= 1280
    assert page.locator("#rows .sideways").evaluate("e => e.scrollWidth - e.clientWidth") <= 0
    heights = page.get_by_test_id("row").evaluate_all("rows => rows.map(row => row.offsetHeight)")
    assert max(heights) < 100
    assert page.locator("td[data-column=mood] span").evaluate_all("spans => spans.every(s => s.offsetHeight < 60)")
    assert page.locator("#rows th").evaluate_all(WORDS_ARE_WHOLE) == []
    assert serious(page) == []
    page.set_viewport_size({"width": 1000, "height": 800})
    page.locator("#rows table").evaluate("table => table.classList.add('many')")  # as with more columns
    assert page.locator("#rows th").evaluate_all(WORDS_ARE_WHOLE) == []
    page.emulate_media(color_scheme="dark")
    page.set_viewport_size({"width": 380, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= 380
    expect(page.locator("#rows thead")).to_be_hidden()
    expect(page.get_by_test_id("filters")).to_be_visible()
    assert serious(page) == []
    page.close()
