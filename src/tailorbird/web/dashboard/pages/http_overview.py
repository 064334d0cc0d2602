"""Serve a live graph of the topology at `/overview`. All viewers share one reading, at most once a second."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping

from fastapi import FastAPI
from starlette.responses import HTMLResponse

from tailorbird.web.dashboard.pages.http_panels import page_html
from tailorbird.web.dashboard.panels.reading import Reported

OVERVIEW = "/overview"
_SECONDS = 1.0


def serve_overview(app: FastAPI, name: str, look: Callable[[], Reported], others: Mapping[str, str]) -> None:
    """Serve the page and `GET /api/overview`. `look` returns the graph (panels.overview)."""
    lock = threading.Lock()
    kept: dict[str, Reported] = {}
    at = [0.0]

    @app.get(OVERVIEW, response_class=HTMLResponse)
    def page() -> HTMLResponse:
        links = [{"path": to, "title": title} for to, title in others.items()]
        return page_html("overview.html", f"{name}: overview", {"others": links})

    # not a coroutine: it waits for the processes in its own thread
    @app.get("/api/overview")
    def overview() -> Reported:
        with lock:
            if time.monotonic() - at[0] > _SECONDS:
                kept["graph"] = look()
                at[0] = time.monotonic()
            return kept["graph"]
