"""Proof, Dead letters, Fleet: pages that say what `checks`, `dead-letters list` and the topology know."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from cdc.topology.reader import read_topology
from cdc.topology.topology import Topology
from tailorbird.operate.status.dead_letters import DeadLetterRow, OpenDeadLetters, remedy_of
from tailorbird.verify.checks.check_status import check_statuses
from tailorbird.verify.checks.runs import CheckResult, CheckRun, ended
from tailorbird.web.dashboard.pages.http_listed import listed_html
from tailorbird.web.dashboard.pages.http_panels import ASSETS, filled_html
from tailorbird.web.dashboard.panels.listed import ListedPage, dead_letters_page, fleet_page, proof_page

NOW = 1_800_000_000_000
SHOP = """
name: t
sources: {shop: {type: mysql, hostname: h, username: u, password: p, database: shop, tables: [orders], server_id: 1%s}}
tables: {orders_wide: {query: SELECT o.id FROM shop.orders o, row_key: [id]}}
indexes: {main: {table: orders_wide}}
"""


def topology(more: str = "", agent: str = "") -> Topology:
    return read_topology(SHOP % agent + more, file="t.yml", environ={})


CHECKED = topology("checks: {hourly: {every: 1h}, daily: {every: 1d}}\n")


def checked(**more: Any) -> CheckResult:
    values: dict[str, Any] = {"stage": "index", "table": "orders_wide", "outcome": "equal", "rows": 12_345}
    values |= {"differing": 0, "moving": 3, "cut": "stamp 7", "at_ms": NOW - 60_000, "seconds": 1.5}
    return CheckResult(**(values | more))


def run(*found: CheckResult, check: str = "hourly", error: str = "") -> CheckRun:
    return ended(check, None, found, began_ms=NOW - 61_000, now_ms=NOW - 60_000, turn=0, error=error)


def proof(*runs: CheckRun) -> ListedPage:
    return proof_page(CHECKED, check_statuses(CHECKED, {one.check: one for one in runs}, NOW), NOW)


def dead_letter(**more: Any) -> DeadLetterRow:
    values: dict[str, Any] = {
        "id": "3f2a9c01de", "stage": "capture", "of": "shop.shop.orders", "key": '{"id": 1}', "position": "b.1:4 row 0",
        "reason": "a zero date", "table": "shop.shop.orders", "reads": True, "first_ms": NOW - 9000,
        "last_ms": NOW - 5000, "count": 2, "partition": 0, "offset": 1,
    }  # fmt: skip
    return DeadLetterRow(**(values | more))


def served(page: ListedPage) -> str:
    """The page as a browser gets it."""
    answer = listed_html("A <title>", page, {"/": "Sales <now>"}, NOW)
    assert "script-src 'self'" in answer.headers["content-security-policy"]
    return bytes(answer.body).decode()


def cells(page: ListedPage, part: int) -> Sequence[Sequence[str]]:
    found = page.parts[part]
    assert all(len(row) == len(found.heads) for row in found.rows)
    return found.rows


def test_proof_says_what_each_check_found() -> None:
    """The page shows rows, differences, times and positions. A difference comes at the top with its command.

    "All equal" appears only if everything is equal.
    """
    different = checked(outcome="different", differing=1, findings=({"key": {"id": 7}, "difference": "missing"},))
    page = proof(run(different))
    assert (page.sentence, page.well) == ("Check found a difference: hourly.", False)
    reported = [(one.heading, one.state, one.tone) for one in page.parts[:2]]
    assert reported == [("hourly", "DIFFERENT", "bad"), ("daily", "waiting", "plain")]
    assert cells(page, 0)[0] == (
        "index", "orders_wide", "different", "12,345", "1", "3", "stamp 7", "60 s ago", "id=7 missing",
    )  # fmt: skip
    assert page.parts[0].command == "tailorbird verify t.yml --stage index --table orders_wide"
    page = proof(run(checked()), run(checked(stage="log"), check="daily"))
    assert (page.sentence, page.well) == ("All compared rows are equal.", True)
    page = proof(run(checked()))
    assert page.sentence == "No difference is known; check is incomplete: daily."
    page = proof(run(checked()), run(check="daily", error="Kafka was unavailable"))
    assert "incomplete: daily" in page.sentence
    assert "failed: Kafka was unavailable" in page.parts[1].lines
    assert page.parts[-1].command == "tailorbird verify t.yml"


def test_what_is_not_known_is_no_proof() -> None:
    """Kafka unavailable, or no checks declared: never "equal", and what to do."""
    page = proof_page(CHECKED, None, NOW)
    assert not page.well
    assert "unknown" in page.sentence
    assert page.parts[0].command == "tailorbird stack status"
    page = proof_page(topology(), [], NOW)
    assert "declares no checks" in page.sentence
    page = dead_letters_page(CHECKED, None, [], NOW)
    assert (page.well, page.parts[0].command) == (False, "tailorbird stack status")
    assert dead_letters_page(CHECKED, [], [], NOW).sentence.startswith("There are no dead letters")


def test_dead_letters_are_listed_with_what_puts_them_through_again() -> None:
    """Counted by table, the newest with key, place, reason and each its own command."""
    waiting = [OpenDeadLetters(stage="capture", of="shop.shop.orders", dead_letters=3, reason="a zero date")]
    page = dead_letters_page(CHECKED, waiting, [dead_letter()], NOW)
    assert not page.well
    assert "shop.shop.orders: 3 changes were refused" in page.sentence
    assert cells(page, 0) == [("shop.shop.orders", "capture", "3 dead letters", "a zero date")]
    assert page.parts[0].command == "tailorbird dead-letters replay t.yml --all"
    (row,) = cells(page, 1)
    assert row[2:6] == ('{"id": 1}', "b.1:4 row 0", "a zero date", "5 s ago, 2 times")
    assert row[6] == remedy_of(dead_letter(), "t.yml").replace("`", "")
    assert list(page.parts[1].lines) == ["1 of 3"]


def test_the_fleet_page_names_who_captures() -> None:
    """And the command whose page shows how they are."""
    page = fleet_page(topology(agent=", agent: {names: [paris, rome], connection: shop-db}"))
    assert cells(page, 0) == [("shop", "paris, rome", "shop-db")]
    assert page.parts[1].command == "tailorbird fleet page"


def test_no_text_of_them_is_markup() -> None:
    """Reasons and keys come from rows that anybody may have written; so may what looks like a place of the page."""
    hostile = "<script>alert(1)</script>{{sentence}}\"'<img src=x onerror=alert(1)>"
    waiting = [OpenDeadLetters(stage="capture", of=hostile, dead_letters=1, reason=hostile)]
    text = served(dead_letters_page(CHECKED, waiting, [dead_letter(key=hostile, reason=hostile, of=hostile)], NOW))
    assert "<script" not in text
    assert "<img" not in text
    assert text.count("{{sentence}}") == text.count("onerror")
    assert re.search(r"<title>A &lt;title&gt;</title>", text)
    assert '<a class="link" href="/">Sales &lt;now&gt;</a>' in text
    assert "As of 2027-01-15 08:00:00 UTC" in text


def test_all_pages_begin_alike() -> None:
    """The head of a page is written once, whatever a title contains."""
    pages = {one.name: one.read_text() for one in ASSETS.iterdir() if one.name.endswith(".html")}
    head = pages.pop("head.html")
    assert len(pages) == 5
    for name, text in pages.items():
        assert text.startswith("{{head}}\n")
        assert "<meta" not in text
        answer = filled_html(name, defaultdict(str, title="{{head}}")).body
        assert bytes(answer).decode().startswith(head.replace("{{title}}", "{{head}}"))
