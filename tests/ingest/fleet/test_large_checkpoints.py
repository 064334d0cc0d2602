"""A checkpoint of a source with many tables reaches Kafka through a gateway; later commits send only what changed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.model.errors import Fatal, Retriable
from cdc.persistent import PersistentMap
from ingest.fleet.catalog import DatabaseSeen, TableSeen, fitting, packed, unpacked
from ingest.fleet.fleet_pb2 import Commit, Empty
from ingest.gateway.grpc_session import LONGEST_CHECKPOINT
from ingest.gateway_client.gateway_log import GatewayLog
from ingest.records.capture_interfaces import Checkpoint
from ingest.records.checkpoint_changes import changed_checkpoint, changes_bytes
from tests.ingest.fleet.test_session_handler import AT, Source, records
from tests.support.nearby_gateway import NearbyGateway

TABLES = 20_000


def snapshots(count: int = TABLES) -> PersistentMap[str, Any]:
    entry = {"rows": 0, "whole": True, "initial": True, "began_ms": 1_700_000_000_000}
    return PersistentMap({f"database.table_number_{number}": entry for number in range(count)})


def checkpoint(state: PersistentMap[str, Any], **more: Any) -> Checkpoint:
    names = PersistentMap(dict.fromkeys(state, True))
    return replace(AT, snapshot="running", state={"snapshots": state, "partial": names, **more})


def committed(gateway: NearbyGateway) -> Checkpoint:
    assert isinstance(gateway.source, Source)
    return gateway.source.broker.checkpoints[-1]


def plain(found: Checkpoint | None) -> Any:
    """Return a checkpoint's state as JSON has it, with the tables under `partial` in any order."""
    assert found is not None
    state = {name: dict(one) if isinstance(one, PersistentMap) else one for name, one in found.state.items()}
    return {**state, "partial": {*state.get("partial", ())}}


def test_a_checkpoint_of_many_tables_is_sent_in_parts_once() -> None:
    """The first commit of a session sends it whole. Each later one sends what changed, and Kafka's record is whole."""
    gateway = NearbyGateway(Source())
    log = GatewayLog(gateway, "s")
    log.recover()
    first = checkpoint(snapshots())
    log.extend(records(2))
    log.commit(first)
    assert plain(committed(gateway)) == plain(first)
    assert sum(gateway.sent) > 1024 * 1024
    gateway.sent.clear()
    progress = first.state["snapshots"].put("database.table_number_7", {"rows": 9, "after": [3], "last": [9]})
    second = checkpoint(progress.without("database.table_number_8"), signals=5)
    log.commit(second)
    assert plain(committed(gateway)) == plain(second)
    assert sum(gateway.sent) < 1000
    log.commit(AT)
    assert committed(gateway) == AT  # all snapshots are complete
    log.commit(second)
    log.close()
    again = GatewayLog(gateway, "s")
    assert plain(again.recover().checkpoint) == plain(second)
    again.commit(second)
    assert plain(committed(gateway)) == plain(second)
    again.close()


def test_a_gateway_of_the_previous_release_receives_whole_checkpoints() -> None:
    """One that does not fit into a message is not retried silently: the error names the remedy."""
    gateway = NearbyGateway(Source(), takes_parts=False)
    log = GatewayLog(gateway, "s")
    log.recover()
    for few in (snapshots(3), snapshots(3).put("d.t", {"rows": 4})):
        log.commit(checkpoint(few))
        assert plain(committed(gateway)) == plain(checkpoint(few))
    with pytest.raises(Retriable, match=r"does not accept a checkpoint of \d+ bytes.*update the gateway"):
        log.commit(checkpoint(snapshots()))
    log.close()


def test_parts_are_limited_and_dropped_with_an_aborted_commit() -> None:
    """An agent cannot make a gateway store any amount; what an abort left is no part of the next checkpoint."""
    gateway = NearbyGateway(Source())
    log = GatewayLog(gateway, "s")
    log.recover()
    log._channel.ask(commit=Commit(checkpoint=b"{", more=True))
    log._channel.report(abort=Empty())
    log.commit(AT)
    assert committed(gateway) == replace(AT, state={})
    half = b"x" * (LONGEST_CHECKPOINT // 16)
    for _ in range(16):
        log._channel.ask(commit=Commit(checkpoint=half, more=True))
    with pytest.raises(Fatal, match=f"more than {LONGEST_CHECKPOINT} bytes"):
        log._channel.ask(commit=Commit(checkpoint=half, more=True))
    assert [why for why in gateway.refused if "checkpoint" in why]
    log.close()


def test_changes_without_a_commit_before_them_are_refused_or_whole() -> None:
    """A malformed change is a violation of the protocol, not an internal error."""
    gateway = NearbyGateway(Source())
    log = GatewayLog(gateway, "s")
    log.recover()
    with pytest.raises(Fatal, match="invalid position"):
        log._channel.ask(commit=Commit(checkpoint=b'{"format":1}', changes=True))
    log.close()


entries = st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 2).map(lambda rows: {"rows": rows}))


@given(entries, entries, st.booleans())
def test_changes_restore_the_checkpoint(before: dict[str, Any], after: dict[str, Any], read_back: bool) -> None:
    """From any checkpoint to any other, also if the first was read back from JSON."""
    first, second = checkpoint(PersistentMap(before)), checkpoint(PersistentMap(after), kept={"d.t": {"events": 1}})
    known = replace(first, state={"snapshots": before, "partial": sorted(before)}) if read_back else first
    found = changed_checkpoint(known, changes_bytes(first, second, "s"))
    assert plain(found) == plain(second)
    assert replace(found, state={}) == replace(second, state={})


@pytest.mark.parametrize(("most", "tables", "columns"), [(10**6, 100, 20), (20_000, 100, 0), (4_000, 50, 0)])
def test_a_catalog_that_is_too_large_says_what_it_omits(most: int, tables: int, columns: int) -> None:
    """Without the columns of its tables, or some tables: it is never refused as a whole."""
    named = tuple((f"column_{n}", "varchar(255)") for n in range(20))
    seen = DatabaseSeen(
        agent="a", connection="c", database="d",
        tables=tuple(TableSeen(name=f"t{n}", rows=n, columns=named) for n in range(100)),
    )  # fmt: skip
    found = fitting(seen, most)
    assert len(orjson.dumps(found.to_json())) <= most
    assert bool(found.omitted) == (columns == 0)
    assert len(found.tables) == tables or (tables < 100 and f"{100 - len(found.tables)} of 100 tables" in found.omitted)
    assert len(found.tables[0].columns) == columns
    assert unpacked(packed(found), "a", "c") == found
