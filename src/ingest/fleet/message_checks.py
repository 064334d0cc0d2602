"""Validate messages of agents: names must be printable and limited in length and number, as a correct agent sends
them."""

from __future__ import annotations

from cdc.grammar.values import NAME
from ingest.fleet.desired import ALIAS
from ingest.fleet.fleet_pb2 import MapPlace, Ready, StreamRequest
from ingest.fleet.identity import FleetIdentity

_LABELS, PLACES = 64, 10_000
_LABEL, _DATABASE, _VERSION = 256, 64, 64  # characters


def foreign_reason(request: StreamRequest, agent: FleetIdentity) -> str:
    """Return why a message may not come from the agent of its stream; empty if its header names no other agent."""
    tenant, name = request.header.tenant, request.header.agent
    if tenant in ("", agent.tenant) and name in ("", agent.name):
        return ""
    return f"its header names {f'{tenant[:_LABEL]}/{name[:_LABEL]}'!r}"


def invalid_reason(request: StreamRequest) -> str:
    """Return why an agent's message is invalid; empty if it is valid."""
    source = request.header.source
    if source and not NAME.fullmatch(source):
        return f"{source[:80]!r} is not a valid source name"
    what = request.WhichOneof("payload")
    if what == "ready":
        return _ready(request.ready)
    if what == "report" and not NAME.fullmatch(request.report.source):
        return f"{request.report.source[:80]!r} is not a valid source name"
    if what == "map_part":
        return _place(MapPlace(connection=request.map_part.connection, database=request.map_part.database))
    if what == "hello" and len(request.hello.version) > _VERSION:
        return f"the version has {len(request.hello.version)} characters"
    return ""


def _ready(ready: Ready) -> str:
    if len(ready.labels) > _LABELS or len(ready.places) > PLACES:
        return f"{len(ready.labels)} labels and {len(ready.places)} databases are too many"
    for name, value in ready.labels.items():
        if not _is_name(name, _LABEL) or not _is_name(value or "-", _LABEL):
            return f"{name[:80]!r} is not a valid label"
    return next((why for place in ready.places if (why := _place(place))), "")


def _place(place: MapPlace) -> str:
    if not ALIAS.fullmatch(place.connection):
        return f"{place.connection[:80]!r} is not a valid connection alias"
    return "" if _is_name(place.database, _DATABASE) else f"{place.database[:80]!r} is not a valid database name"


def _is_name(text: str, longest: int) -> bool:
    """Return whether a text is printable and not too long. Database servers allow any such name."""
    return 0 < len(text) <= longest and text.isprintable()
