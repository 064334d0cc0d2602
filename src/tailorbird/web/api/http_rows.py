"""Requests of the API for rows of dashboards: search, explain, and the events of an index."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import FastAPI, Header, Query, Response
from fastapi.responses import StreamingResponse

from cdc.model.errors import UsageError
from ingest.gateway.commands import NotFound
from ingest.gateway.http_api import TOTAL
from tailorbird.web.api.http_app import Api
from tailorbird.web.api.http_bodies import Viewing
from tailorbird.web.api.http_events import EventStreams, index_events, output_events, status_events
from tailorbird.web.api.served import ServedTopology
from tailorbird.web.mcp.tools import MOST_FILTERS, MOST_OFFSET, MOST_ROWS, USUAL_ROWS

_Texts = Annotated[list[str] | None, Query(max_length=MOST_FILTERS)]
_LastEvent = Annotated[str | None, Header(max_length=40)]
_MEDIA = "text/event-stream"


def serve_rows(app: FastAPI, api: Api) -> None:
    """Add the requests for rows of dashboards. They show the columns of a dashboard to every role."""

    @app.get("/v1/topologies/{topology}/dashboards")
    def dashboards(topology: str, who: Viewing) -> Any:
        """List dashboards, with the columns that can be searched."""
        served = api.topology(topology)
        return served.ask(who, "tables", {})["tables"] if served.tools else []

    @app.get("/v1/topologies/{topology}/dashboards/{dashboard}/rows")
    def rows(
        topology: str,
        dashboard: str,
        who: Viewing,
        response: Response,
        words: str = "",
        filter: Annotated[_Texts, Query(description="Conditions that all hold, such as `status = paid`.")] = None,
        column: _Texts = None,
        sort: str = "",
        offset: Annotated[int, Query(ge=0, le=MOST_OFFSET)] = 0,
        limit: Annotated[int, Query(ge=1, le=MOST_ROWS)] = USUAL_ROWS,
    ) -> Any:
        """Search the rows of an index. The answer has the rows, their total number, and the proof."""
        asked = {
            "dashboard": _known(api.topology(topology), dashboard), "words": words, "filters": filter or [],
            "columns": column or [], "sort": sort, "offset": offset, "limit": limit,
        }  # fmt: skip
        found = api.topology(topology).ask(who, "search", asked)
        response.headers[TOTAL] = str(found["total"])
        return found

    @app.get("/v1/topologies/{topology}/dashboards/{dashboard}/rows/{key}/explain")
    def explain(topology: str, dashboard: str, key: str, who: Viewing) -> Any:
        """Show which source events the cells of a row come from: the dashboard's columns, without values."""
        served = api.topology(topology)
        return served.ask(who, "explain", {"dashboard": _known(served, dashboard), "key": key})


def serve_events(app: FastAPI, api: Api, streams: EventStreams) -> None:
    """Add the streams of server-sent events."""

    def answer(events: AsyncIterator[str]) -> StreamingResponse:
        return StreamingResponse(streams.bounded(events), media_type=_MEDIA, headers={"Cache-Control": "no-store"})

    @app.get("/v1/topologies/{topology}/dashboards/{dashboard}/events")
    def changes(topology: str, dashboard: str, who: Viewing, last_event_id: _LastEvent = None) -> StreamingResponse:
        """Stream changed rows of an index, from the position in `Last-Event-ID` or from now on."""
        served = api.topology(topology)
        name, at = _known(served, dashboard), _number(last_event_id)
        served.audit.line(
            {"what": "api events", "who": who.name, "from": who.address, "on": dashboard[:80], "outcome": "done"}
        )
        return answer(index_events(served.feed(name), at))

    @app.get("/v1/topologies/{topology}/status/events")
    def status(topology: str, who: Viewing) -> StreamingResponse:
        """Stream the status: the whole of it first, then after each change."""
        api.topology(topology)
        return answer(status_events(api, streams, who, topology))

    @app.get("/v1/topologies/{topology}/operations/{operation}/events")
    def output(topology: str, operation: str, who: Viewing, last_event_id: _LastEvent = None) -> StreamingResponse:
        """Stream the output of an operation, from the line after `Last-Event-ID`. Ends with an event `ended`."""
        found, after = api.operation(who, topology, operation), _number(last_event_id) or 0
        return answer(output_events(api, found, after))


def _known(served: ServedTopology, dashboard: str) -> str:
    if dashboard not in served.dashboards:
        known = ", ".join(served.dashboards) or "the topology has none"
        raise NotFound(f"no dashboard {dashboard[:80]}", f"one of {known}")
    return dashboard


def _number(text: str | None) -> int | None:
    if not text:
        return None
    if not text.isascii() or not text.isdigit():
        raise UsageError(f"Last-Event-ID {text}: not a position", "send the id of an event of this stream")
    return int(text)
