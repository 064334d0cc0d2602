"""Request types: the key by which agent and gateway choose the plugin that serves a message.

Each payload belongs to one type, or to one of several plugins for kinds of databases. A message whose payload belongs
to another type is refused. Peers that list the feature `TYPED` in their first message set every type. Those of the
previous release do not, so the types that they send (`_FORMER`) are accepted from them for one release.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NoReturn

from ingest.fleet.fleet_pb2 import (
    Control_Config,
    Control_Heartbeat,
    Control_Kafka,
    Control_Lease,
    Control_Map,
    Control_MaxScale,
    Control_MSSQLClient,
    Control_MySQLBinlog,
    Control_MySQLClient,
    Control_PgSQLClient,
    Control_PgSQLLogDec,
    Control_PgSQLWal,
    Control_Report,
    Control_Syslog,
    Data_Log,
    RequestType,
    StreamRequest,
)

TYPED = "types"  # the feature of a peer that sets the type of every message
PARTS = "checkpoint-parts"  # the feature of a gateway that accepts checkpoints in parts, and changes of checkpoints
RECORDS = "stored-records"  # the feature of a gateway that sends the schema history and the schemas as records
_MYSQL, _POSTGRES = frozenset({"mysql", "mariadb"}), frozenset({"postgresql"})
# plugins that both capture a connection and read its catalog: polling needs only a client, and streams have no other
_BOTH: Mapping[RequestType, frozenset[str]] = {
    Control_Syslog: frozenset({"syslog"}), Control_Kafka: frozenset({"kafka"}),
    Control_MSSQLClient: frozenset({"sql"}), Control_MaxScale: frozenset({"maxscale"}),
}  # fmt: skip
# plugins of an agent: the types of connections that each captures, and those whose catalog it reads
CAPTURES: Mapping[RequestType, frozenset[str]] = {
    Control_MySQLBinlog: _MYSQL, Control_PgSQLLogDec: _POSTGRES, **_BOTH,
}  # fmt: skip
CATALOGS: Mapping[RequestType, frozenset[str]] = {
    Control_MySQLClient: _MYSQL, Control_PgSQLClient: _POSTGRES, **_BOTH,
}  # fmt: skip
_CATALOG = "catalog-"  # the feature of a gateway that accepts catalogs of one more type, with the type's number
# what this version lists in its first message
FEATURES = (TYPED, PARTS, RECORDS, *(f"{_CATALOG}{int(key)}" for key in CATALOGS if key != Control_MySQLClient))
# An agent answers an assignment for a plugin that it lacks with a report. So these types are valid for `assign`.
_SOURCES = (
    Control_MySQLBinlog, Control_MySQLClient, Control_Syslog, Control_PgSQLClient, Control_PgSQLWal,
    Control_PgSQLLogDec, Control_Kafka, Control_MSSQLClient, Control_MaxScale,
)  # fmt: skip
_TYPES: Mapping[str, tuple[RequestType, ...]] = {
    "hello": (Control_Config,), "ready": (Control_Config,), "heartbeat": (Control_Heartbeat,),
    "log_call": (Data_Log,), "log_reply": (Data_Log,), "report": (Control_Report,), "map_part": tuple(CATALOGS),
    "assign": _SOURCES, "withdraw": (Control_Lease,),
}  # fmt: skip
_FORMER: Mapping[str, RequestType] = {
    "log_call": Control_Config, "log_reply": Control_Config, "map_part": Control_Map, "assign": Control_Lease,
}  # fmt: skip


def typed(request: StreamRequest) -> StreamRequest:
    """Set the type of a message to that of its payload, unless it has one of several possible ones. Return it."""
    belongs = _TYPES.get(str(request.WhichOneof("payload")))
    if belongs and request.type not in belongs:
        request.type = belongs[0]
    return request


def plugin_key(request: StreamRequest, *, former: bool) -> RequestType:
    """Return the type whose plugin serves a message. Raises ValueError if its payload belongs to another type.

    `former`: the peer is of the previous release, so the types that it sends are replaced by the present ones.
    """
    what = request.WhichOneof("payload")
    belongs = _TYPES.get(what or "", ())
    if not belongs or request.type in belongs:
        return request.type
    if former and request.type == _FORMER.get(what or ""):
        return belongs[0]
    owners = " or ".join(map(type_name, belongs))
    raise ValueError(f"a message of type {type_name(request.type)} contains {what}, which belongs to {owners}")


def type_name(number: int) -> str:
    """Return a type's name and number for messages; only the number if this version does not know it."""
    known = number in RequestType.values()
    return f"{RequestType.Name(number)} ({number})" if known else str(number)


def capture_key(kind: str) -> RequestType:
    """Return the type of the plugin that captures connections of type `kind`. Raises LookupError if there is none."""
    return next((key for key, kinds in CAPTURES.items() if kind in kinds), None) or _no_plugin(kind)


def catalog_key(kind: str) -> RequestType:
    """Return the type of the plugin that reads the catalog of a connection of type `kind`; else as `capture_key`."""
    return next((key for key, kinds in CATALOGS.items() if kind in kinds), None) or _no_plugin(kind)


def accepts_catalog(features: Iterable[str], key: RequestType) -> bool:
    """Return whether a gateway that lists `features` accepts catalogs of type `key`.

    A gateway of the previous release lists none. It would end the stream of an agent that sends one of another type
    than MySQL's.
    """
    return key == Control_MySQLClient or f"{_CATALOG}{int(key)}" in features


def _no_plugin(kind: str) -> NoReturn:
    raise LookupError(f"no plugin of agents is for connections of type {kind}")


def no_capture_reason(key: int, kind: str) -> str:
    """Return why the plugin `key` of an agent cannot capture a connection of type `kind`; empty if it can."""
    kinds = {int(known): found for known, found in CAPTURES.items()}.get(key)
    if kinds is None:
        return f"this agent has no plugin {type_name(key)}: it captures {', '.join(map(type_name, CAPTURES))}"
    return "" if kind in kinds else f"plugin {type_name(key)} cannot capture a connection of type {kind}"
