"""The history and schemas of a source with many tables reach its agent through a gateway, in many messages."""

from __future__ import annotations

import json

import pytest

from cdc.model.errors import Fatal
from cdc.model.history import Record as HistoryRecord
from cdc.model.naming import history_topic, schemas_topic
from cdc.model.schema import Column, TableId, TableSchema
from cdc.packed import PackedJson
from ingest.fleet.fleet_pb2 import Empty, LogCall, LogReply, Part, Records
from ingest.fleet.frames import zipped
from ingest.fleet.stored_records import received, sent
from ingest.fleet.wire import MESSAGE
from ingest.gateway_client.gateway_log import GatewayLog
from ingest.gateway_client.grpc_channel import SessionChannel
from ingest.log.memory_log import Broker
from ingest.records.capture_interfaces import Record
from tests.ingest.fleet.test_session_handler import AT, Source
from tests.support.nearby_gateway import NearbyGateway

TABLES = 2_000
COLUMNS = [{"name": f"column_{number}", "type": f"varchar({100 + number})"} for number in range(20)]


def history(tables: int = TABLES) -> list[HistoryRecord]:
    return [(json.dumps(["table", "s", f"t{n}"]), {"sequence": n, "columns": COLUMNS}) for n in range(tables)]


def schema(number: int) -> TableSchema:
    columns = tuple(Column(name=one["name"], column_type=one["type"]) for one in COLUMNS)
    return TableSchema(
        table_id=TableId(source="s", database="d", table=f"t{number}"), version=1, columns=columns, primary_key=()
    )


def stored(broker: Broker) -> None:
    """Put a history and schemas into the log that the gateway reads."""
    for key, value in history():
        broker.records.append(Record(history_topic("t"), key.encode(), json.dumps(value).encode()))
    for number in range(TABLES):
        content = json.dumps(schema(number).to_json()).encode()
        broker.records.append(Record(schemas_topic("t"), str(number).encode(), content))


@pytest.mark.parametrize("takes_records", [True, False])
def test_a_large_history_is_recovered(takes_records: bool) -> None:
    """No message is too large, and nothing is missing; a gateway of the previous release sends one answer in parts."""
    source = Source()
    stored(source.broker)
    gateway = NearbyGateway(source, takes_records=takes_records)
    log = GatewayLog(gateway, "s")
    found = log.recover()
    assert list(found.history) == history()
    assert list(found.schemas.values()) == [schema(number) for number in range(TABLES)]
    assert list(log.history()) == history()
    log.commit(AT)
    log.close()
    assert max(gateway.received) < MESSAGE
    whole = len(json.dumps([history(), history()]))
    assert (sum(gateway.received) < whole / 3) is takes_records


def test_messages_are_limited_and_restore_what_was_sent() -> None:
    """Each contains at most 256 KiB, also if one record is longer, and tombstones stay tombstones."""
    long = [("a", {"text": "x" * 1_000_000}), ("b", None), *history(3)]
    messages = list(sent(long, [schema(1)]))
    assert max(message.size for message in messages) <= 256 * 1024
    assert received(messages) == (tuple(long), {schema(1).table_id: schema(1)})


def malformed() -> list[list[Records]]:
    whole = list(sent(history(3)))
    half = Records(frames=zipped(b"\x00" * 7), size=7)
    return [
        [Records(frames=b"no zstd", size=10)],
        [Records(frames=whole[0].frames, size=whole[0].size - 1)],
        [*whole, half],
        [half],
        list(sent([("a", PackedJson(b"{"))])),
        list(sent([("a", PackedJson(b"[]"))])),
    ]


@pytest.mark.parametrize("messages", malformed())
def test_a_malformed_answer_ends_the_session(messages: list[Records]) -> None:
    """A gateway cannot make an agent continue with a part of the history."""
    with pytest.raises(Fatal, match="history are"):
        received(messages)


@pytest.mark.parametrize(("frames", "contained", "limit"), [(300, 10, 1000), (1, 6000, 16_000)])
def test_an_agent_receives_no_more_than_its_policy_allows(frames: int, contained: int, limit: int) -> None:
    """`answer_bytes` limits the bytes of an answer, and sixteen times as many what they contain."""
    calls: list[LogCall] = []
    channel = SessionChannel(1, calls.append, most=1000)
    call = channel.begin(recover_records=Empty())
    for _ in range(4):
        channel.hear(LogReply(channel=1, call=call, records=Records(frames=b"x" * frames, size=contained)))
    channel.hear(LogReply(channel=1, call=call, part=Part(content=b"null", last=True)))
    with pytest.raises(Fatal, match=f"more than {limit} bytes.*answer_bytes"):
        channel.answered(call)
