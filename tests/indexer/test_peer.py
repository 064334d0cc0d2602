"""The replication peer's protocol, without a socket."""

from __future__ import annotations

import pytest

from indexer.peer import wire
from indexer.peer import wire_pb2 as pb
from indexer.peer.peer import CallRefused, Connected, Edit, Edits, EditsReceived, PeerConnection
from indexer.peer.wire import PUT, Cell, WireError

ROWS = [Cell(bytes([i]), b"d", b"q", 5, PUT, b"v") for i in range(3)]


def opening(codec: str = "org.apache.hadoop.hbase.codec.KeyValueCodecWithTags", compressor: str = "") -> bytes:
    header = pb.ConnectionHeader(service_name="AdminService", cell_block_codec_class=codec)
    header.user_info.effective_user = "hbase"
    if compressor:
        header.cell_block_compressor_class = compressor
    return wire.PREAMBLE + wire.frame(header.SerializeToString())


def edits(call_id: int, cells: list[Cell], counts: list[int]) -> bytes:
    header = pb.RequestHeader(call_id=call_id, method_name="ReplicateWALEntry", request_param=True)
    request = pb.ReplicateWALEntryRequest()
    for sequence, count in enumerate(counts):
        entry = request.entry.add(associated_cell_count=count)
        entry.key.encoded_region_name, entry.key.table_name = b"region", b"ns:t"
        entry.key.log_sequence_number, entry.key.write_time = sequence, 1000 + sequence
    return wire.frame(wire.delimited(header), wire.delimited(request), wire.write_cells(cells))


def cells_of(writes: list[wire.Write]) -> list[Cell]:
    return [Cell(w.row, w.family, q, w.timestamp, w.type, value) for w in writes for q, value in w.cells.items()]


def test_a_conversation_byte_by_byte() -> None:
    """Events are returned when their bytes are complete, in order, for any TCP segmentation."""
    peer, events = PeerConnection(), []
    for byte in opening() + edits(7, ROWS, [2, 1]) + edits(8, [], []):
        events += peer.receive(bytes([byte]))
    assert events[0] == Connected(user="hbase")
    first, second = events[1:]
    assert isinstance(first, EditsReceived)
    assert isinstance(second, EditsReceived)
    assert (first.call_id, second.call_id) == (7, 8)
    assert [(entry.table, cells_of(entry.writes)) for entry in first.edits.entries()] == [
        (b"ns:t", ROWS[:2]),
        (b"ns:t", ROWS[2:]),
    ]
    assert (len(first.edits), first.edits.newest) == (2, 1001)


def test_a_batch_knows_itself_without_being_decoded() -> None:
    """Lag and progress come from the entries' headers. Reading twice returns the same edits twice."""
    one = Edit(table=b"t", region=b"r1", sequence=1, write_time=5, cells=ROWS[:2])
    two = Edit(table=b"t", region=b"r2", sequence=2, write_time=9, cells=[])
    batch = Edits.of([one, two])
    assert (len(batch), batch.cell_count, batch.newest, batch.regions) == (2, 2, 9, {b"r1", b"r2"})
    for _ in range(2):
        assert [(entry.table, cells_of(entry.writes)) for entry in batch.entries()] == [(b"t", ROWS[:2]), (b"t", [])]


def test_answers_name_their_call() -> None:
    """HBase matches answers by call id; an exception keeps the batch there."""
    peer = PeerConnection()
    header, at = wire.read_delimited(peer.answer(9)[4:], 0, pb.ResponseHeader)
    assert (header.call_id, header.HasField("exception")) == (9, False)
    assert peer.answer(9)[4:][at:] == b"\x00"
    refused, _ = wire.read_delimited(peer.refuse(9, "Solr is unavailable")[4:], 0, pb.ResponseHeader)
    assert refused.exception.stack_trace == "Solr is unavailable"
    assert not refused.exception.do_not_retry


def test_another_call_is_refused_and_the_connection_lives() -> None:
    """A call of another kind gets an exception, because this is no region server; the next batch is served."""
    peer = PeerConnection()
    peer.receive(opening())
    header = pb.RequestHeader(call_id=1, method_name="GetOnlineRegion")
    [refused] = peer.receive(wire.frame(wire.delimited(header)))
    assert isinstance(refused, CallRefused)
    answer, _ = wire.read_delimited(refused.reply[4:], 0, pb.ResponseHeader)
    assert answer.exception.do_not_retry
    assert [type(event) for event in peer.receive(edits(2, ROWS, [3]))] == [EditsReceived]


@pytest.mark.parametrize(
    "stream",
    [
        b"GET / HTTP/1.1\r\n",
        opening(codec="org.apache.hadoop.hbase.codec.MessageCodec"),
        opening(compressor="org.apache.hadoop.io.compress.GzipCodec"),
        wire.PREAMBLE + wire.frame(b"\xff\xff"),
        opening() + edits(1, ROWS, [2]),
        opening() + edits(1, ROWS, [4]),
    ],
)
def test_what_we_do_not_speak_ends_the_connection(stream: bytes) -> None:
    """Bytes that could be misread are never indexed."""
    with pytest.raises(WireError):
        PeerConnection().receive(stream)
