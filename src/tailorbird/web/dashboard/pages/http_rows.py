"""Serve the rows of a dashboard: their page, and the requests of that page.

    GET /api/rows/<name>?<selection>&columns=&sort=&page=&panel=     one page, JSON
    GET /api/rows/<name>.csv, .json                                  a download, streamed, at most 100,000 rows
    GET /api/rows/<name>/row?key=                                    one row: columns, document, command to explain it
    GET /api/rows/<name>/explain?key=                                sources of the row's cells
    GET /api/dashboards/<name>/yaml?<selection>                      the view as a declaration

All requests are read-only.
"""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Iterator, Mapping
from typing import Any

from fastapi import FastAPI, Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response, StreamingResponse

from cdc.model.errors import TailorbirdError
from cdc.stored.fields import KIND, ROW, UNIQUE_KEY
from tailorbird.web.dashboard.pages.http_explain import ExplainRequests
from tailorbird.web.dashboard.pages.http_hub import Hub
from tailorbird.web.dashboard.pages.http_panels import board_json, page_html
from tailorbird.web.dashboard.panels.columns import Misfit
from tailorbird.web.dashboard.panels.explained import explained_of
from tailorbird.web.dashboard.panels.fitting import FitBoard
from tailorbird.web.dashboard.panels.reading import Reported
from tailorbird.web.dashboard.panels.rows import (
    MOST_ROWS,
    RowsRequest,
    asked_of,
    batch_params,
    csv_line,
    every,
    page_params,
    read_page,
    read_row,
    row_params,
)
from tailorbird.web.dashboard.panels.saving import view_yaml
from tailorbird.web.dashboard.panels.state import Selection, chosen_of
from tailorbird.web.dashboard.time import Span

LONGEST_KEY = 10_000
_GONE = "the row does not exist, or was deleted"


def serve_rows(
    app: FastAPI,
    hub: Hub,
    path: str,
    title: str,
    others: Mapping[str, str],
    explainer: ExplainRequests | None = None,
) -> None:
    """Serve the rows of a dashboard at `path`. `others` are titles of further pages by path."""
    board, name = hub.board, hub.board.dashboard.name

    @app.get(path, response_class=HTMLResponse)
    def page() -> HTMLResponse:
        return page_html("rows.html", title, board_json(board, path, others))

    # not coroutines: each waits for Solr in its own thread
    @app.get(f"/api/rows/{name}")
    def rows(request: Request) -> Response:
        def reported(fit: FitBoard, asked: RowsRequest, chosen: Selection, span: Span | None) -> Response:
            found = read_page(fit, asked, board.solr.select(page_params(fit, asked, chosen, span)))
            return JSONResponse({**found, "now_ms": time.time_ns() // 1_000_000})

        return _answered(hub, request, reported)

    _serve_downloads(app, hub, name)
    _serve_row(app, hub, name, explainer)

    @app.get(f"/api/dashboards/{name}/yaml")
    def as_yaml(request: Request) -> Response:
        try:
            text = view_yaml(board.dashboard, chosen_of(request.url.query))
        except Misfit as misfit:
            return PlainTextResponse(f"{misfit}; expected {misfit.expected}", 400)
        return PlainTextResponse(text)


def _serve_downloads(app: FastAPI, hub: Hub, name: str) -> None:
    """Serve the rows of a dashboard as CSV and JSON files."""

    @app.get(f"/api/rows/{name}.csv")
    def csv(request: Request) -> Response:
        return _answered(hub, request, lambda *asked: _download(hub, "csv", *asked))

    @app.get(f"/api/rows/{name}.json")
    def as_json(request: Request) -> Response:
        return _answered(hub, request, lambda *asked: _download(hub, "json", *asked))


def _serve_row(app: FastAPI, hub: Hub, name: str, explainer: ExplainRequests | None) -> None:
    """Serve one row of a dashboard, and the sources of its cells if there is an `explainer`."""
    board = hub.board

    @app.get(f"/api/rows/{name}/row")
    def row(key: str) -> Response:
        def reported(fit: FitBoard, *_: object) -> Response:
            found = _row(hub, fit, key)
            if found is None:
                return JSONResponse({"error": _GONE}, 404)
            known = {"explain": _explain(hub, found["document"]), "can_explain": explainer is not None}
            return JSONResponse({**found, **known})

        return _answered(hub, None, reported)

    @app.get(f"/api/rows/{name}/explain")
    def explained(key: str) -> Response:
        def reported(fit: FitBoard, *_: object) -> Response:
            # the lineage of a row is available only to viewers who can see the row
            found = _row(hub, fit, key)
            table = board.topology.indexes[board.dashboard.index].table
            if found is None or explainer is None or table not in board.topology.tables:
                return JSONResponse(
                    {"error": _GONE if found is None else "rows of external tables have no lineage"}, 404
                )
            origin = explainer.ask(table, bytes.fromhex(found["document"][UNIQUE_KEY]))
            if origin is None:
                return JSONResponse({"error": "the row is no longer in HBase"}, 404)
            return JSONResponse(explained_of(origin, every(fit)))

        return _answered(hub, None, reported)


def _answered(hub: Hub, request: Request | None, reported: Any) -> Response:
    """Return the result of `reported`; 400 for an invalid request, 503 while Solr is unavailable."""
    try:
        fit = hub.board.fit()
        if fit is None:
            return JSONResponse(
                {"error": "the index has no columns yet", "hint": "rows in the table of the index"}, 503
            )
        chosen = chosen_of(request.url.query) if request else Selection()
        asked = asked_of(fit, request.query_params if request else {})
        response: Response = reported(fit, asked, chosen, hub.span(chosen))
    except Misfit as misfit:
        return JSONResponse({"error": str(misfit), "hint": misfit.expected}, 400)
    except TailorbirdError as error:
        return JSONResponse({"error": str(error), "hint": ""}, 503)
    return response


def _download(hub: Hub, kind: str, fit: FitBoard, asked: RowsRequest, chosen: Selection, span: Span | None) -> Response:
    batches = _batches(hub, fit, asked, chosen, span)
    first = next(batches)  # read first, so that an invalid request is an error and not a broken file
    names = [column.name for column in asked.columns]

    def parts() -> Iterator[str]:
        yield csv_line(names) if kind == "csv" else "["
        began, batch = False, first
        while batch:
            if kind == "csv":
                yield "".join(csv_line([one.get(name) for name in names]) for one in batch)
            else:
                lines = (json.dumps({name: one.get(name) for name in names}, ensure_ascii=False) for one in batch)
                yield (",\n" if began else "\n") + ",\n".join(lines)
            began, batch = True, next(batches, [])
        yield "" if kind == "csv" else "\n]\n"

    media = "text/csv; charset=utf-8" if kind == "csv" else "application/json"
    file = f"{hub.board.dashboard.name}.{kind}"
    return StreamingResponse(
        parts(), media_type=media, headers={"Content-Disposition": f'attachment; filename="{file}"'}
    )


def _batches(
    hub: Hub, fit: FitBoard, asked: RowsRequest, chosen: Selection, span: Span | None
) -> Iterator[list[Mapping[str, Any]]]:
    """Yield batches of documents for a download, at most `MOST_ROWS` documents. The first batch may be empty."""
    mark, left = "*", MOST_ROWS
    while left > 0:
        answer = hub.board.solr.select(batch_params(fit, asked, chosen, span, mark))
        documents = answer["response"]["docs"][:left]
        left -= len(documents)
        yield documents
        if not documents or answer["nextCursorMark"] == mark:
            return
        mark = answer["nextCursorMark"]


def _row(hub: Hub, fit: FitBoard, key: str) -> Reported | None:
    found = read_row(fit, hub.board.solr.select(row_params(key[:LONGEST_KEY])))
    # barriers and tombstones are not rows
    return found if found is not None and found["document"].get(KIND) == ROW else None


def _explain(hub: Hub, document: Reported) -> str:
    """Return the command that explains a row. Empty for an external table."""
    topology = hub.board.topology
    table = topology.tables.get(topology.indexes[hub.board.dashboard.index].table)
    if table is None or not table.row_key:
        return ""
    key = ",".join(json.dumps(document.get(name), ensure_ascii=False) for name in table.row_key)
    return shlex.join(["tailorbird", "explain", topology.file, table.name, key])
