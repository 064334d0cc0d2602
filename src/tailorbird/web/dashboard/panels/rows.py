"""The rows behind a dashboard, page by page, sorted as somebody wishes; and as CSV that no spreadsheet executes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cdc.stored.fields import FENCE, INDEXED_AT, TS, UNIQUE_KEY
from tailorbird.web.dashboard.panels.asking import rows_params
from tailorbird.web.dashboard.panels.columns import Misfit, PanelColumn
from tailorbird.web.dashboard.panels.fitting import FitBoard
from tailorbird.web.dashboard.panels.reading import Reported
from tailorbird.web.dashboard.panels.state import Chosen
from tailorbird.web.dashboard.query import Params, Shown
from tailorbird.web.dashboard.time import Span

SIZE, MOST_PAGES = 50, 1_000
MOST_ROWS = 100_000  # of a download
BATCH = 1_000  # rows of a download at a time
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsAsked:
    """Which rows, in which order and columns: `sort` is None for the newest first, `panel` whose rows (None: all)."""

    columns: tuple[PanelColumn, ...]
    sort: PanelColumn | None
    descending: bool
    page: int
    panel: int | None


def asked_of(board: FitBoard, said: Mapping[str, str]) -> RowsAsked:
    """What a URL asks for: `columns=a,b`, `sort=a` or `-a`, `page=2`, `panel=0`; Misfit for what is none of these."""
    names = [name for name in said.get("columns", "").split(",") if name] or [one.name for one in shown_first(board)]
    if len(names) > 200:
        raise Misfit(f"{len(names)} columns", "200 at most")
    sort = said.get("sort", "")
    by = board.column(sort.removeprefix("-")) if sort else None
    if by is not None and not sorts(by):
        raise Misfit(f"column {by.name} cannot be sorted by", "a column of another type")
    page, panel = said.get("page", "1"), said.get("panel", "")
    if not page.isascii() or not page.isdigit() or not 1 <= int(page[:6]) <= MOST_PAGES:
        raise Misfit(f"page {page[:20]!r}", f"1 to {MOST_PAGES}; download the rows, or narrow them down")
    if panel and (not panel.isascii() or not panel.isdigit() or int(panel[:6]) >= len(board.panels)):
        raise Misfit(f"panel {panel[:20]!r}", f"one of {len(board.panels)}")
    return RowsAsked(
        columns=tuple(board.column(name) for name in dict.fromkeys(names)),
        sort=by,
        descending=sort.startswith("-"),
        page=int(page),
        panel=int(panel) if panel else None,
    )


def shown_first(board: FitBoard) -> list[PanelColumn]:
    """The columns of the dashboard; without any, all."""
    return [board.column(name) for name in board.dashboard.columns] or every(board)


def every(board: FitBoard) -> list[PanelColumn]:
    """All columns of the index, as its layout orders them."""
    return [board.column(name) for name in board.fields if not name.startswith("_")]


def sorts(column: PanelColumn) -> bool:
    """Whether rows can be sorted by it."""
    return bool(column.ordered or column.counted) and not column.many


def page_params(board: FitBoard, asked: RowsAsked, chosen: Chosen, span: Span | None) -> Params:
    """A query for one page."""
    return {**_params(board, asked, chosen, span), "rows": SIZE, "start": (asked.page - 1) * SIZE}


def batch_params(board: FitBoard, asked: RowsAsked, chosen: Chosen, span: Span | None, mark: str) -> Params:
    """A query for the next rows of a download, behind Solr's cursor mark (`*` at first)."""
    return {**_params(board, asked, chosen, span), "rows": BATCH, "cursorMark": mark}


def row_params(key: str) -> Params:
    """A query for one document, by its unique key, whatever stands in it."""
    return {"q": "*:*", "fq": ["{!term f=" + UNIQUE_KEY + " v=$key}"], "key": key, "rows": 1, "fl": "*"}


def read_page(board: FitBoard, asked: RowsAsked, response: Mapping[str, Any]) -> Reported:
    """{columns: [{name, heading, look, shown, sorts}], rows: [{key, values}], total, page, pages, size, sort, most}."""
    found = response["response"]
    shown = {column.name for column in asked.columns}
    order = [*asked.columns, *(one for one in every(board) if one.name not in shown)]
    sort = "" if asked.sort is None else ("-" if asked.descending else "") + asked.sort.name
    return {
        "columns": [
            {"name": c.name, "heading": c.heading, "look": c.look, "shown": c.name in shown, "sorts": sorts(c)}
            for c in order
        ],
        "rows": [
            {"key": one[UNIQUE_KEY], "values": {c.name: one.get(c.name) for c in asked.columns}}
            for one in found["docs"]
        ],
        "total": found["numFound"],
        "page": asked.page,
        "pages": min(max(-(-found["numFound"] // SIZE), 1), MOST_PAGES),
        "size": SIZE,
        "sort": sort,
        "most": MOST_ROWS,
    }


def read_row(board: FitBoard, response: Mapping[str, Any]) -> Reported | None:
    """{columns: [{heading, value}], document, committed_ms, indexed_ms, hbase_timestamp}; None where there is no such row."""
    found = response["response"]["docs"]
    if not found:
        return None
    document = {name: value for name, value in found[0].items() if name != "_version_"}
    return {
        "columns": [{"heading": one.heading, "value": document.get(one.name)} for one in every(board)],
        "document": document,
        "committed_ms": document.get(TS),
        "indexed_ms": document.get(INDEXED_AT),
        # of a table of ours: a fence is twice the timestamp of the row's cells (cdc.stored.fields)
        "hbase_timestamp": document.get(FENCE, 0) // 2,
    }


def csv_line(values: Sequence[Shown]) -> str:
    """A line of CSV (RFC 4180). A text that a spreadsheet would take for a formula stands behind an apostrophe."""
    # a blank line is no row to those who read it
    return (",".join(_csv_cell(value) for value in values) or '""') + "\r\n"


def _csv_cell(value: Shown) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    text = json.dumps(value, ensure_ascii=False) if isinstance(value, list) else value
    # a decimal travels as text; a number of ours is no formula
    if text.startswith(_FORMULA) and not _is_number(text):
        text = "'" + text
    return '"' + text.replace('"', '""') + '"' if any(one in text for one in ',"\r\n') or text == "" else text


def _is_number(text: str) -> bool:
    digits = text.removeprefix("-").replace(".", "", 1)
    return text[:1] != "+" and digits.isascii() and digits.isdigit()


def _params(board: FitBoard, asked: RowsAsked, chosen: Chosen, span: Span | None) -> Params:
    fit = None if asked.panel is None else board.panels[asked.panel]
    if asked.sort is not None:
        order = f"{asked.sort.ordered or asked.sort.counted} {'desc' if asked.descending else 'asc'}"
    else:
        order = f"{board.time.ordered if board.time else TS} desc"
    return {
        **rows_params(board, fit, chosen, span),
        "sort": f"{order}, {UNIQUE_KEY} asc",
        "fl": ",".join([UNIQUE_KEY, *(column.name for column in asked.columns)]),
    }
