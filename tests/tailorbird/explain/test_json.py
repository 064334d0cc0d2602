"""The JSON of `tailorbird explain --json`: programs read it, so the page documents every key."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from tailorbird.verify.explain.explanation import ExplainedCell, Explanation, TracedEvent, TracedRow
from tailorbird.verify.explain.explanation_text import json_of, lines_of

PAGE = Path(__file__).parents[3] / "docs" / "explain.md"
ROW = TracedRow(row_key=b"\x01\x02", timestamp=6, values={"status": "paid"}, layout_id=1, batch=7, trace=())
EVENT = TracedEvent(node=2, alias="o", table="shop.shop.orders", topic="t", partition=0, offset=9)
CELL = ExplainedCell(
    column="status", value="paid", expression="o.status", events=(2,), event_values={"o.status": "open"}, agrees=False
)


def test_the_page_lists_every_key() -> None:
    """The three tables of the page have the keys of the object, of its cells and of its events, in their order."""
    found = json_of(Explanation(table="wide", row=ROW, events=(EVENT,), cells=(CELL,), groups={3: 1}))
    (section,) = re.findall(r"^## JSON\n(.*?)^## ", PAGE.read_text(), re.M | re.S)
    tables = re.findall(r"^\|---\|---\|\n((?:\|.*\n)+)", section, re.M)
    listed = [re.findall(r"`(\w+)`", "".join(line.split("|")[1] for line in table.splitlines())) for table in tables]
    assert [list(found), list(found["cells"][0]), list(found["events"][0])] == listed


def test_an_explanation_as_json() -> None:
    found = json_of(Explanation(table="wide", row=ROW, events=(), cells=(CELL,), groups={3: 1}, unknown="no lineage"))
    assert (found["timestamp_ms"], found["fence"], found["unknown"], found["groups"]) == (5, 12, "no lineage", {"3": 1})
    assert (found["cells"][0]["value"], found["cells"][0]["event_values"]) == ("paid", {"o.status": "open"})


def test_text_and_json_number_events_alike() -> None:
    """Both count from 1, whatever the nodes' numbers in the query."""
    cells = (CELL, replace(CELL, column="both", events=(2, 5)))
    found = Explanation(
        table="wide", row=ROW, events=(EVENT, replace(EVENT, node=5, alias="c")), cells=cells, groups={}
    )  # fmt: skip
    reported = json_of(found)
    assert [event["event"] for event in reported["events"]] == [1, 2]
    assert [cell["events"] for cell in reported["cells"]] == [[1], [1, 2]]
    lines = list(lines_of(replace(found, row=replace(ROW, values={"status": "paid", "both": "paid"}))))
    assert [re.findall(r"\[(\d)\]", line) for line in lines if "←" in line] == [["1"], ["1", "2"]]
    assert [line.split()[0] for line in lines if " topic t," in line] == ["[1]", "[2]"]
