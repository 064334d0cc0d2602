"""Build the pages of rows of a dashboard, and their CSV download, in which spreadsheets execute no formulas."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cdc.stored.fields import FENCE, INDEXED_AT, TS, UNIQUE_KEY
from tailorbird.web.dashboard.panels.asking import rows_params
from tailorbird.web.dashboard.panels.columns import Misfit, PanelColumn
from tailorbird.web.dashboard.panels.facets import whole
from tailorbird.web.dashboard.panels.fitting import FitBoard
from tailorbird.web.dashboard.panels.reading import Reported
from tailorbird.web.dashboard.panels.state import Selection
from tailorbird.web.dashboard.query import Params, Shown
from tailorbird.web.dashboard.time import Span

SIZE, MOST_PAGES = 50, 1_000
MOST_ROWS = 100_000  # in a download
BATCH = 1_000  # rows of a download per query
# The begin of a formula, also in full width and after invisible characters: in a cell, or after a separator at which a
# spreadsheet of another language splits it. Quotes do not prevent that.
_FORMULA = re.compile(r"(^|[;\t\r\n])((?:[^\S;\t\r\n]|[\x00-\x08\ufeff\u200b])*[=+\-@＝＋－＠])")
_HIDDEN = ("\t", "\r", "\n", "\0")


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsRequest:
    """A request for rows: columns, order and page. `sort` is None for newest first.

    `panel` restricts the rows to those of a panel (None: all). `descending`: the greatest values of `sort` come
    first."""

    columns: tuple[PanelColumn, ...]
    sort: PanelColumn | None
    descending: bool
    page: int
    panel: int | None


def asked_of(board: FitBoard, params: Mapping[str, str]) -> RowsRequest:
    """Parse the URL parameters `columns=a,b`, `sort=a` or `-a`, `page=2`, `panel=0`. Raises Misfit for invalid ones."""
    names = [name for name in params.get("columns", "").split(",") if name] or [one.name for one in shown_first(board)]
    if len(names) > 200:
        raise Misfit(f"{len(names)} columns", "200 at most")
    sort = params.get("sort", "")
    by = board.column(sort.removeprefix("-")) if sort else None
    if by is not None and not sorts(by):
        raise Misfit(f"column {by.name} cannot be sorted by", "a column of another type")
    page, panel = params.get("page", "1"), params.get("panel", "")
    if not _digits(page) or not 1 <= int(page) <= MOST_PAGES:
        raise Misfit(f"page {page[:20]!r}", f"1 to {MOST_PAGES}; download the rows, or narrow them down")
    if panel and (not _digits(panel) or int(panel) >= len(board.panels)):
        raise Misfit(f"panel {panel[:20]!r}", f"one of {len(board.panels)}")
    return RowsRequest(
        columns=tuple(board.column(name) for name in dict.fromkeys(names)),
        sort=by,
        descending=sort.startswith("-"),
        page=int(page),
        panel=int(panel) if panel else None,
    )


def _digits(number: str) -> bool:
    return 0 < len(number) <= 6 and number.isascii() and number.isdigit()


def shown_first(board: FitBoard) -> list[PanelColumn]:
    """Return the columns that the dashboard declares, or all if it declares none."""
    return [board.column(name) for name in board.dashboard.columns] or every(board)


def every(board: FitBoard) -> list[PanelColumn]:
    """Return all columns of the index in the order of its layout."""
    return [board.column(name) for name in board.fields if not name.startswith("_")]


def sorts(column: PanelColumn) -> bool:
    """Return whether rows can be sorted by the column."""
    return bool(column.ordered or column.counted) and not column.many


def page_params(board: FitBoard, asked: RowsRequest, chosen: Selection, span: Span | None) -> Params:
    """Return a query for one page."""
    params = _params(board, asked, chosen, span)
    return {
        **params,
        "fl": ",".join((str(params["fl"]), FENCE, TS, INDEXED_AT)),
        "json.facet": json.dumps({"indexed": f"max({INDEXED_AT})"}),
        "rows": SIZE,
        "start": (asked.page - 1) * SIZE,
    }


def batch_params(board: FitBoard, asked: RowsRequest, chosen: Selection, span: Span | None, mark: str) -> Params:
    """Return the query for the next rows of a download. `mark` is Solr's cursor mark (`*` at first)."""
    return {**_params(board, asked, chosen, span), "rows": BATCH, "cursorMark": mark}


def row_params(key: str) -> Params:
    """Return the query for one document by its unique key."""
    return {"q": "*:*", "fq": ["{!term f=" + UNIQUE_KEY + " v=$key}"], "key": key, "rows": 1, "fl": "*"}


def read_page(board: FitBoard, asked: RowsRequest, response: Mapping[str, Any]) -> Reported:
    """Return the JSON of a page: `{columns, rows, indexed_ms, total, page, pages, size, sort, most}`.

    A column is `{name, heading, look, key, shown, sorts}`, a row `{key, version, committed_ms, indexed_ms, values}`.
    `indexed_ms` is when the newest of all selected rows was indexed; None if unknown.
    """
    found = response["response"]
    shown = {column.name for column in asked.columns}
    order = [*asked.columns, *(one for one in every(board) if one.name not in shown)]
    sort = "" if asked.sort is None else ("-" if asked.descending else "") + asked.sort.name
    return {
        "columns": [
            {
                "name": c.name,
                "heading": c.heading,
                "look": c.look,
                "key": c.name in board.keys,
                "shown": c.name in shown,
                "sorts": sorts(c),
            }
            for c in order
        ],
        "rows": [
            {
                "key": one[UNIQUE_KEY],
                "version": one.get(FENCE, 0),
                "committed_ms": one.get(TS),
                "indexed_ms": one.get(INDEXED_AT),
                "values": {c.name: one.get(c.name) for c in asked.columns},
            }
            for one in found["docs"]
        ],
        "indexed_ms": whole(response.get("facets", {}).get("indexed")),
        "total": found["numFound"],
        "page": asked.page,
        "pages": min(max(-(-found["numFound"] // SIZE), 1), MOST_PAGES),
        "size": SIZE,
        "sort": sort,
        "most": MOST_ROWS,
    }


def read_row(board: FitBoard, response: Mapping[str, Any]) -> Reported | None:
    """Return the JSON of one row: `{columns, document, committed_ms, indexed_ms, hbase_timestamp}`. None if it does
    not exist."""
    found = response["response"]["docs"]
    if not found:
        return None
    document = {name: value for name, value in found[0].items() if name != "_version_"}
    return {
        "columns": [{"heading": one.heading, "value": document.get(one.name)} for one in every(board)],
        "document": document,
        "committed_ms": document.get(TS),
        "indexed_ms": document.get(INDEXED_AT),
        # in Tailorbird's tables a fence is twice the timestamp of the row's cells (cdc.stored.fields)
        "hbase_timestamp": document.get(FENCE, 0) // 2,
    }


def csv_line(values: Sequence[Shown]) -> str:
    """Format a CSV line (RFC 4180). Text that a spreadsheet would execute as a formula gets an apostrophe in front."""
    # CSV readers skip blank lines
    return (",".join(_csv_cell(value) for value in values) or '""') + "\r\n"


def _csv_cell(value: Shown) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    text = json.dumps(value, ensure_ascii=False) if isinstance(value, list) else value
    # a decimal is sent as text; a number is not a formula
    if not _is_number(text):
        text = _FORMULA.sub(r"\1'\2", text)
        text = "'" + text if text.startswith(_HIDDEN) else text
    return '"' + text.replace('"', '""') + '"' if any(one in text for one in ',"\r\n') or text == "" else text


def _is_number(text: str) -> bool:
    digits = text.removeprefix("-").replace(".", "", 1)
    return text[:1] != "+" and digits.isascii() and digits.isdigit()


def _params(board: FitBoard, asked: RowsRequest, chosen: Selection, span: Span | None) -> Params:
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
