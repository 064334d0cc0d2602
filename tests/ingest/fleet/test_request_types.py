"""A payload is served under its own type only, on both sides of a stream."""

from __future__ import annotations

from contextlib import suppress
from typing import cast

import pytest

from ingest.fleet import fleet_pb2
from ingest.fleet.fleet_pb2 import (
    Control_Config,
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
    Control_Syslog,
    Data_Log,
    LogCall,
    RequestType,
    StreamRequest,
    Unsupported,
)
from ingest.fleet.request_types import (
    CATALOGS,
    accepts_catalog,
    capture_key,
    catalog_key,
    no_capture_reason,
    plugin_key,
    type_name,
    typed,
)
from ingest.fleet.wire import hello

PAYLOADS = [field.name for field in fleet_pb2.StreamRequest.DESCRIPTOR.oneofs_by_name["payload"].fields]
SOURCES = frozenset(range(10, 19))


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
    features = ["types", "checkpoint-parts", "stored-records"]
    features += ["catalog-13", "catalog-12", "catalog-16", "catalog-17", "catalog-18"]
    assert list(hello("1").hello.features) == features


def test_a_gateway_lists_the_catalogs_that_it_accepts() -> None:
    """One of the previous release accepts only those of MySQL, and would end the stream for another."""
    assert [key for key in CATALOGS if accepts_catalog([], key)] == [Control_MySQLClient]
    assert all(accepts_catalog(hello("1").hello.features, key) for key in CATALOGS)
    assert not accepts_catalog(["types", "catalog-1"], Control_PgSQLClient)


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
    for key, kind in (
        (Control_Syslog, "syslog"),
        (Control_Kafka, "kafka"),
        (Control_MSSQLClient, "sql"),
        (Control_MaxScale, "maxscale"),
    ):
        assert (no_capture_reason(key, kind), capture_key(kind), catalog_key(kind)) == ("", key, key)
        assert f"({key}) cannot capture a connection of type mysql" in no_capture_reason(key, "mysql")
    # its log contains pages, not rows (ADR 83)
    assert no_capture_reason(Control_PgSQLWal, "postgresql").startswith(
        "this agent has no plugin Control_PgSQLWal (14)"
    )
    assert (capture_key("mariadb"), catalog_key("mariadb")) == (Control_MySQLBinlog, Control_MySQLClient)
    assert (capture_key("postgresql"), catalog_key("postgresql")) == (Control_PgSQLLogDec, Control_PgSQLClient)
    with pytest.raises(LookupError, match="connections of type oracle"):
        capture_key("oracle")
    assert type_name(999) == "999"
