"""Serve the page of a dashboard with panels, and the websocket that sends changes to every page of a dashboard.

browser → {"state": number, "query": the URL's query, "panels": [visible panels]}
server  → {"panel", "state", "answer", …} · {"panel", "state", "error", "hint"} · {"unavailable", "token", …}, the last
         one at every refresh
"""

from __future__ import annotations

import asyncio
import contextlib
import html
import json
import re
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from fastapi import FastAPI, WebSocket
from starlette.responses import HTMLResponse, Response
from starlette.websockets import WebSocketDisconnect

from tailorbird.web.dashboard.board import Board
from tailorbird.web.dashboard.guard.http_guard import STRICT_POLICY
from tailorbird.web.dashboard.pages.http_hub import FACETS, TIMELINE, Hub, Viewer
from tailorbird.web.dashboard.panels.columns import Misfit
from tailorbird.web.dashboard.panels.fitting import timeline_of
from tailorbird.web.dashboard.panels.reading import Reported
from tailorbird.web.dashboard.panels.state import chosen_of
from tailorbird.web.dashboard.view import heading

ASSETS = files("tailorbird.web.dashboard.pages") / "assets"
_TYPES = {"js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}
LONGEST_MESSAGE = 40_000  # characters
MOST_WAITING = 400  # messages for a browser that does not read; then it is disconnected
MOST_VIEWERS = 500


def board_json(board: Board, path: str, others: Mapping[str, str]) -> Reported:
    """Return the JSON that the browser needs before its first query: the panels, and the paths of other pages."""
    dashboard = board.dashboard
    return {
        "name": dashboard.name,
        "title": dashboard.title,
        "path": path,
        "time": dashboard.time or "",
        "range": str(dashboard.range),
        "timeline": timeline_of(dashboard.time).title if dashboard.time else "",
        "search": bool(board.topology.indexes[dashboard.index].search),
        "facets": [{"name": name, "heading": heading(name)} for name in dashboard.facets],
        "panels": [
            {
                "type": panel.type,
                "title": panel.title,
                "width": panel.width,
                "format": panel.format,
                "field": panel.fields[0] if panel.fields else panel.by,
                "measures": [str(one) for one in panel.measures],
                "text": panel.text,
            }
            for panel in dashboard.panels
        ],
        "file": board.topology.file,
        "others": [{"path": to, "title": title} for to, title in others.items()],
    }


def page_html(asset: str, title: str, data: Reported) -> HTMLResponse:
    """Return a page with its title, and `data` as JSON for its script. Text in the data cannot end the script
    element."""
    quoted = json.dumps(data, ensure_ascii=True).replace("<", "\\u003c")
    return filled_html(asset, {"title": html.escape(title), "data": quoted})


def filled_html(asset: str, parts: Mapping[str, str]) -> HTMLResponse:
    """Return a page whose placeholders `{{name}}` are replaced by HTML. Every page begins with `{{head}}`."""
    begin, text = ((ASSETS / name).read_text(encoding="utf-8") for name in ("head.html", asset))
    text = text.replace("{{head}}\n", begin, 1)
    # in one pass: a title may contain what looks like a placeholder
    filled = re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], text)
    return HTMLResponse(filled, headers={"Content-Security-Policy": STRICT_POLICY, "Cache-Control": "no-store"})


def serve_assets(app: FastAPI) -> None:
    """Serve the scripts and styles of these pages at `/assets`, and nothing else."""

    @app.get("/assets/{name}")
    def asset(name: str) -> Response:
        kind = _TYPES.get(name.rpartition(".")[2])
        if kind is None or name not in {one.name for one in ASSETS.iterdir()}:
            return Response(status_code=404)
        # the browser revalidates, so that it gets new files after an upgrade
        return Response((ASSETS / name).read_bytes(), media_type=kind, headers={"Cache-Control": "max-age=60"})


def serve_panels(app: FastAPI, board: Board, path: str, others: Mapping[str, str]) -> None:
    """Serve the page of a dashboard with panels at a path."""

    @app.get(path, response_class=HTMLResponse)
    def page() -> HTMLResponse:
        return page_html("board.html", board.dashboard.title, board_json(board, path, others))


def serve_live(app: FastAPI, hub: Hub) -> None:
    """Serve the websocket of a dashboard's pages at `/live/<name>`."""

    @app.websocket(f"/live/{hub.board.dashboard.name}")
    async def live(socket: WebSocket) -> None:
        await socket.accept()
        if len(hub.viewers) >= MOST_VIEWERS:
            await socket.close(code=1013, reason=f"the limit of {MOST_VIEWERS} viewers is reached")
            return
        with contextlib.suppress(WebSocketDisconnect):
            await _serve_viewer(hub, socket)


async def _serve_viewer(hub: Hub, socket: WebSocket) -> None:
    waiting: asyncio.Queue[Reported] = asyncio.Queue(MOST_WAITING)

    async def report(message: Reported) -> None:
        try:
            waiting.put_nowait(message)
        except asyncio.QueueFull:
            sender.cancel()

    async def send() -> None:
        while True:
            await socket.send_text(json.dumps(await waiting.get(), separators=(",", ":")))

    viewer = Viewer(report=report)
    sender = asyncio.create_task(send())
    reader = asyncio.create_task(_read(hub, viewer, socket))
    hub.viewers.add(viewer)
    try:
        done, _ = await asyncio.wait((sender, reader), return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            if not task.cancelled():
                task.result()
    finally:
        hub.viewers.discard(viewer)
        for task in (sender, reader):
            task.cancel()
        await asyncio.gather(sender, reader, return_exceptions=True)


async def _read(hub: Hub, viewer: Viewer, socket: WebSocket) -> None:
    asking: asyncio.Task[None] | None = None
    while True:
        text = await socket.receive_text()
        message = _message(text) if len(text) <= LONGEST_MESSAGE else None
        if message is None:
            await socket.close(code=1008, reason="not a message of this page")
            return
        number, query, wanted = message
        if asking is not None:
            asking.cancel()
        try:
            chosen = chosen_of(query)
        except Misfit as misfit:
            await viewer.report({"panel": FACETS, "state": number, "error": str(misfit), "hint": misfit.expected})
            viewer.number, viewer.panels = number, ()
            continue
        viewer.number, viewer.chosen, viewer.shown = number, chosen, {}
        panels = range(TIMELINE, len(hub.board.dashboard.panels))
        viewer.panels = tuple(one for one in dict.fromkeys(wanted) if one in panels)
        asking = asyncio.create_task(_show(hub, viewer))


async def _show(hub: Hub, viewer: Viewer) -> None:
    await hub.show(viewer)
    await viewer.report(hub.status())


def _message(text: str) -> tuple[int, str, list[int]] | None:
    """Parse a message of the browser to its state number, query and panels. None if it is invalid."""
    try:
        message: Any = json.loads(text)
        number, query, wanted = message["state"], message["query"], message["panels"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    whole = isinstance(wanted, list) and len(wanted) <= 100 and all(type(one) is int for one in wanted)
    return (number, query, wanted) if type(number) is int and isinstance(query, str) and whole else None
