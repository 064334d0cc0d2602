"""HBase's framing and cells, byte by byte."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexer.peer import wire
from indexer.peer import wire_pb2 as pb
from indexer.peer.wire import DELETE_COLUMN, DELETE_FAMILY, PUT, Cell, Frames, WireError

CELLS = [
    Cell(b"row", b"d", b"name", 1795256683348, PUT, b"value"),
    Cell(b"\x00\x01row", b"d", b"", 1795256683347, DELETE_FAMILY, b""),
    Cell(b"r", b"family", b"q" * 300, 0, PUT, b"\xff" * 1000),
]


def read_cells(data: bytes, at: int, count: int) -> tuple[list[Cell], int]:
    """Return the result of `read_writes`, cell by cell."""
    writes, end = wire.read_writes(data, at, count)
    return [Cell(w.row, w.family, q, w.timestamp, w.type, value) for w in writes for q, value in w.cells.items()], end


# A cell block sent by a region server of HBase 2.6.1: a put of two cells, a row delete, a column delete.
FROM_HBASE = bytes.fromhex(
    "000000260000001b00000003000a0101800000000000038401646e616d65000001a1fda30b54044164610000002d0000001d"
    "00000008000a0101800000000000038401645f6261746368000001a1fda30b540400000000000000000000001f0000001700"
    "000000000a010180000000000003840164000001a1fda30b530e000000230000001b00000000000a01018000000000000385"
    "01646e616d65000001a1fda30b530c"
)


def test_cells_are_read_as_hbase_writes_them() -> None:
    """The layout of a cell is HBase's. A row delete is a marker of the family, with an empty qualifier."""
    first, second = bytes.fromhex("01018000000000000384"), bytes.fromhex("01018000000000000385")
    assert read_cells(FROM_HBASE, 0, 4)[0] == [
        Cell(first, b"d", b"name", 1795256683348, PUT, b"Ada"),
        Cell(first, b"d", b"_batch", 1795256683348, PUT, bytes(8)),
        Cell(first, b"d", b"", 1795256683347, DELETE_FAMILY, b""),
        Cell(second, b"d", b"name", 1795256683347, DELETE_COLUMN, b""),
    ]


def test_tags_after_a_value_are_skipped() -> None:
    """A cell ends at its total length, not at its value: TTLs and cell ACLs are tags."""
    plain, following = wire.write_cells(CELLS[:1]), wire.write_cells(CELLS[1:2])
    tagged = (int.from_bytes(plain[:4], "big") + 6).to_bytes(4, "big") + plain[4:] + b"\x00\x04tags"
    assert read_cells(tagged + following, 0, 2) == (CELLS[:2], len(tagged + following))


def test_cells_round_trip() -> None:
    """Cells written by the simulations are read back unchanged."""
    block = wire.write_cells(CELLS)
    assert read_cells(b"head" + block, 4, 3) == (CELLS, 4 + len(block))
    assert wire.count_cells(b"head" + block, 4) == 3


@pytest.mark.parametrize("cut", [1, 5, 13, 30, -1])
def test_a_block_cut_short_is_no_block(cut: int) -> None:
    """Damaged bytes never become rows: the connection is closed, and HBase sends them again."""
    with pytest.raises(WireError):
        read_cells(wire.write_cells(CELLS[:1])[:cut], 0, 1)
    with pytest.raises(WireError):
        wire.count_cells(wire.write_cells(CELLS[:1])[:cut], 0)


def test_lengths_that_contradict_each_other_are_no_cell() -> None:
    """A key longer than its cell would read the next cell's bytes as its own."""
    block = bytearray(wire.write_cells(CELLS[:2]))
    block[7] += 60
    with pytest.raises(WireError):
        read_cells(bytes(block), 0, 2)


@given(st.lists(st.binary(max_size=40), max_size=8), st.integers(1, 9))
def test_frames_come_out_whole_however_they_arrive(bodies: list[bytes], step: int) -> None:
    """TCP may split the stream anywhere; frames are still complete."""
    stream = b"".join(wire.frame(body[:1], body[1:]) for body in bodies)
    frames, found = Frames(), []
    for at in range(0, len(stream), step):
        frames.feed(stream[at : at + step])
        while (body := frames.next()) is not None:
            found.append(body)
    assert found == bodies


def test_a_frame_longer_than_hbase_sends_is_refused() -> None:
    """A client with another protocol cannot make the process wait for gigabytes."""
    frames = Frames()
    frames.feed(b"GET / HTTP/1.1\r\n")
    with pytest.raises(WireError, match="frame of"):
        frames.next()


@given(st.integers(0, 2**63))
def test_varints_round_trip(number: int) -> None:
    """Lengths are encoded like protobuf's."""
    data = b"x" + wire.varint(number) + b"y"
    assert wire.read_varint(data, 1) == (number, len(data) - 1)


def test_an_invalid_message_is_refused() -> None:
    """Bytes that are not the expected message end the connection, not the process."""
    with pytest.raises(WireError):
        wire.read_delimited(wire.varint(200) + b"short", 0, pb.RequestHeader)
    with pytest.raises(WireError):
        wire.read_delimited(wire.varint(3) + b"\xff\xff\xff", 0, pb.RequestHeader)
    with pytest.raises(WireError):
        wire.read_varint(b"\xff" * 12, 0)
