"""Places in a binary log as operators write them, and which stored positions are up to them."""

from __future__ import annotations

import pytest

from cdc.model.errors import UsageError
from cdc.model.event import Position
from cdc.topology.reader import read_topology
from cdc.topology.topology import Topology
from ingest.binlog.format.gtid import parse_gtid_set
from ingest.capture.marks import is_ahead, is_up_to
from ingest.events.log_place import LogPlace, parse_place, parse_time, time_text
from ingest.records.capture_interfaces import Checkpoint
from ingest.run_capture import check_begin

UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("binlog.000003:4711", LogPlace(file="binlog.000003", pos=4711)),
        (f"{UUID}:1-5", LogPlace(gtids=parse_gtid_set(f"{UUID}:1-5"))),
        ("0-1-42,1-2-3", LogPlace(gtids=parse_gtid_set("0-1-42,1-2-3"))),
        ("1970-01-01T00:00:01.5", LogPlace(micros=1_500_000)),
        ("1970-01-01 01:00:02+01:00", LogPlace(micros=2_000_000)),
        ("2026-11-27", LogPlace(gtids=parse_gtid_set("2026-11-27"))),  # domain, server and number of MariaDB
    ],
)
def test_places_are_parsed(text: str, place: LogPlace) -> None:
    """A GTID set, a file and position, a time with and without a zone."""
    assert parse_place(text) == place


@pytest.mark.parametrize("text", ["", "4711", "yesterday", "2026-13-01T00:00", "binlog.000003", f"{UUID}:x"])
def test_other_texts_are_refused(text: str) -> None:
    """The error contains the three forms."""
    with pytest.raises(UsageError, match="not a position") as refused:
        parse_place(text)
    assert "GTID set, FILE:POSITION" in refused.value.hint


@pytest.mark.parametrize(("text", "maria"), [(f"{UUID}:1-5", False), ("0-1-42", True)])
def test_a_gtid_set_belongs_to_a_kind_of_server(text: str, maria: bool) -> None:
    """That of another kind would select nothing or everything."""
    assert parse_place(text, maria=maria).gtids
    with pytest.raises(UsageError, match="another kind of server"):
        parse_place(text, maria=not maria)


@pytest.mark.parametrize("type", ["mysql", "mariadb", "postgresql"])
def test_only_a_binary_log_has_older_places(type: str) -> None:
    """Other sources refuse --from at the start, and so does every source a text that is no place."""
    [source] = topology_of(type).sources.values()
    if type == "postgresql":
        with pytest.raises(UsageError, match="has no binary log"):
            check_begin(source, "2026-03-01T12:00:00")
        return
    check_begin(source, "2026-03-01T12:00:00")
    with pytest.raises(UsageError, match="not a position"):
        check_begin(source, "yesterday")


def topology_of(type: str) -> Topology:
    return read_topology(
        f"name: t\nsources:\n  s: {{type: {type}, hostname: h, port: 1, username: u, password: p, database: d,"
        f" tables: [a]{', dbname: x' if type == 'postgresql' else ', server_id: 7'}}}\n"
        "tables:\n  wide: {query: SELECT a.id FROM s.a a, row_key: [id]}\n",
        file="t.yml",
        environ={},
    )


@pytest.mark.parametrize(
    ("text", "up_to"),
    [
        ("b.000002:500", True), ("b.000002:499", False), ("b.000003:4", True), ("b.000001:900", False),
        (f"{UUID}:1-7", True), (f"{UUID}:1-8", True), (f"{UUID}:1-6", False), (f"{UUID}:2-9", False),
        ("1970-01-01T00:00:10.001", True), ("1970-01-01T00:00:10", False),
    ],
)  # fmt: skip
def test_a_stored_position_is_up_to_a_place(text: str, up_to: bool) -> None:
    """A rewind to it publishes everything from the place on again."""
    at = Position(file="b.000002", pos=500, gtid_set=f"{UUID}:1-7", sequence=3)
    assert is_up_to(Checkpoint(position=at, snapshot="done", ts_ms=10_000), parse_place(text)) is up_to


def test_a_stored_position_without_gtids_is_not_taken_for_an_early_one() -> None:
    """A server without GTIDs has none at any position; only the beginning is before every GTID."""
    for file, up_to in (("b.000002", False), ("", True)):
        at = Position(file=file, pos=500, gtid_set="", sequence=3)
        assert is_up_to(Checkpoint(position=at, snapshot="done", ts_ms=1), parse_place(f"{UUID}:1-7")) is up_to


@pytest.mark.parametrize(
    ("text", "ahead"),
    [
        ("b.000002:500", False), ("b.000002:501", True), ("b.000003:4", True), ("other.000009:4", False),
        (f"{UUID}:1-7", False), (f"{UUID}:1-8", True), (f"{UUID}:2-3", False),
        ("1970-01-01T00:00:20", False), ("1970-01-01T00:00:20.001", True),
    ],
)  # fmt: skip
def test_a_place_that_a_capture_has_not_reached(text: str, ahead: bool) -> None:
    """The newest stored position would be up to it, so a rewind to it would change nothing."""
    at = Position(file="b.000002", pos=500, gtid_set=f"{UUID}:1-7", sequence=3)
    assert is_ahead(parse_place(text), Checkpoint(position=at, snapshot="done", ts_ms=10_000), 20_000) is ahead


def test_a_time_is_utc_unless_it_has_a_zone() -> None:
    assert parse_time("1970-01-01T02:00:01") == 7_201_000_000
    assert parse_time("1970-01-01T02:00:01+02:00") == 1_000_000
    assert time_text(7_201_000_000) == "1970-01-01T02:00:01Z"
