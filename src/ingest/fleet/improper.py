"""What no agent of ours would say: names that are none, and more of them than anybody has; pure."""

from __future__ import annotations

from cdc.topology.values import NAME
from ingest.fleet.desired import ALIAS
from ingest.fleet.fleet_pb2 import MapPlace, Ready, StreamRequest

_LABELS, PLACES = 64, 10_000
_LABEL, _DATABASE, _VERSION = 256, 64, 64  # characters


def improper(request: StreamRequest) -> str:
    """Why a message of an agent's can not be heard, whatever it asks; empty where it can."""
    source = request.header.source
    if source and not NAME.fullmatch(source):
        return f"{source[:80]!r} is no source's name"
    what = request.WhichOneof("payload")
    if what == "ready":
        return _ready(request.ready)
    if what == "report" and not NAME.fullmatch(request.report.source):
        return f"{request.report.source[:80]!r} is no source's name"
    if what == "map_part":
        return _place(MapPlace(connection=request.map_part.connection, database=request.map_part.database))
    if what == "hello" and len(request.hello.version) > _VERSION:
        return f"a version of {len(request.hello.version)} characters"
    return ""


def _ready(ready: Ready) -> str:
    if len(ready.labels) > _LABELS or len(ready.places) > PLACES:
        return f"{len(ready.labels)} labels and {len(ready.places)} places"
    for name, said in ready.labels.items():
        if not _reported(name, _LABEL) or not _reported(said or "-", _LABEL):
            return f"{name[:80]!r} is no label"
    return next((why for place in ready.places if (why := _place(place))), "")


def _place(place: MapPlace) -> str:
    if not ALIAS.fullmatch(place.connection):
        return f"{place.connection[:80]!r} is no connection's alias"
    return "" if _reported(place.database, _DATABASE) else f"{place.database[:80]!r} is no database's name"


def _reported(text: str, longest: int) -> bool:
    """What a server lets be a name: anything that can be printed."""
    return 0 < len(text) <= longest and text.isprintable()
