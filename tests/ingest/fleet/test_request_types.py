"""A payload is served under its own type only, on both sides of a stream."""

from __future__ import annotations

from contextlib import suppress
from typing import cast

import pytest

from ingest.fleet import fleet_pb2
from ingest.fleet.fleet_pb2 import (
    Control_Config,
    Control_Lease,
    Control_Map,
    Control_MySQLBinlog,
    Control_MySQLClient,
    Control_PgSQLClient,
    Control_PgSQLLogDec,
    Control_Syslog,
    Data_Log,
    LogCall,
    RequestType,
    StreamRequest,
    Unsupported,
)
from ingest.fleet.request_types import (
    CATALOGS,
    capture_key,
    catalog_key,
    no_capture_reason,
    plugin_key,
    type_name,
    typed,
)
from ingest.fleet.wire import hello

PAYLOADS = [field.name for field in fleet_pb2.StreamRequest.DESCRIPTOR.oneofs_by_name["payload"].fields]
SOURCES = frozenset(range(10, 18))


def of(payload: str, key: int = 0) -> StreamRequest:
    made = StreamRequest(type=cast(RequestType, key))
    getattr(made, payload).SetInParent()
    return made


def served(payload: str, *, former: bool) -> set[int]:
    """Return the types under which a payload is served."""
    found = set[int]()
    for key in (*RequestType.values(), 999):
        with suppress(ValueError):
            plugin_key(of(payload, key), former=former)
            found.add(key)
    return found


@pytest.mark.parametrize("payload", PAYLOADS)
def test_every_payload_has_its_types(payload: str) -> None:
    """Each is sent with one of them, and refused with any other type. An `unsupported` repeats any type."""
    every = {*RequestType.values(), 999}
    several: dict[str, set[int]] = {"unsupported": every, "assign": set(SOURCES), "map_part": set(CATALOGS)}
    expected = several.get(payload, {typed(of(payload)).type})
    assert served(payload, former=False) == expected
    assert typed(of(payload)).type in expected


def test_the_previous_release_sends_other_types() -> None:
    """They are served as the present ones. No other type is."""
    for payload, before, now in (
        ("log_call", Control_Config, Data_Log),
        ("log_reply", Control_Config, Data_Log),
        ("map_part", Control_Map, Control_MySQLClient),
        ("assign", Control_Lease, Control_MySQLBinlog),
    ):
        assert plugin_key(of(payload, before), former=True) == now
        assert served(payload, former=True) - served(payload, former=False) == {before}
    for payload in ("hello", "ready", "heartbeat", "report", "withdraw"):
        assert served(payload, former=True) == served(payload, former=False)


def test_a_type_is_kept_if_it_is_possible() -> None:
    """An assignment keeps the plugin that it is for, and an answer the type that it refuses."""
    assert typed(of("assign", Control_PgSQLLogDec)).type == Control_PgSQLLogDec
    assert typed(StreamRequest(type=Control_Map, unsupported=Unsupported(type=Control_Map))).type == Control_Map
    assert typed(StreamRequest(type=Control_Map, log_call=LogCall())).type == Data_Log
    assert typed(StreamRequest(type=Control_Map)).type == Control_Map
    assert list(hello("1").hello.features) == ["types", "checkpoint-parts"]


def test_a_plugin_captures_its_own_kind() -> None:
    """Others are named in the refusal."""
    assert no_capture_reason(Control_MySQLBinlog, "mariadb") == ""
    assert no_capture_reason(Control_MySQLBinlog, "postgresql") == (
        "plugin Control_MySQLBinlog (11) cannot capture a connection of type postgresql"
    )
    assert no_capture_reason(Control_PgSQLLogDec, "postgresql") == ""
    assert no_capture_reason(Control_PgSQLLogDec, "mysql") == (
        "plugin Control_PgSQLLogDec (15) cannot capture a connection of type mysql"
    )
    assert no_capture_reason(Control_Syslog, "mysql") == (
        "this agent has no plugin Control_Syslog (12): it captures Control_MySQLBinlog (11), Control_PgSQLLogDec (15)"
    )
    assert (capture_key("mariadb"), catalog_key("mariadb")) == (Control_MySQLBinlog, Control_MySQLClient)
    assert (capture_key("postgresql"), catalog_key("postgresql")) == (Control_PgSQLLogDec, Control_PgSQLClient)
    with pytest.raises(LookupError, match="connections of type kafka"):
        capture_key("kafka")
    assert type_name(999) == "999"
