"""Records are encoded as bytes, which may be split anywhere. Invalid bytes are refused."""

from __future__ import annotations

import random
from itertools import accumulate, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.model.errors import Fatal
from ingest.fleet.frames import PIECE, FrameReader, FrameWriter
from ingest.records.capture_interfaces import EVERY_PARTITION, Record

RECORDS = st.lists(
    st.builds(
        Record,
        st.sampled_from(["t.s.d.a", "t.s.d.b", "t.schemas", "t.s.d.ü"]),
        st.binary(max_size=40),
        st.none() | st.binary(max_size=400),
        st.none() | st.just(EVERY_PARTITION) | st.integers(0, 1000),
    )
)


def packed(records: list[Record]) -> tuple[bytes, int]:
    writer = FrameWriter()
    pieces = [*writer.write(records), *writer.rest()]
    assert all(len(piece) <= PIECE for piece in pieces)
    return b"".join(pieces), writer.records


@given(RECORDS, st.lists(st.integers(1, 300), max_size=30))
def test_records_pass_wherever_they_are_cut(records: list[Record], sizes: list[int]) -> None:
    """The same records arrive in the same order. Tombstones and empty values are distinguished."""
    data, count = packed(records)
    reader, cuts = FrameReader(), [0, *accumulate(sizes), len(data)]
    found = [record for begin, end in pairwise(cuts) for record in reader.read(data[begin:end])]
    assert (found, reader.records, reader.complete) == (records, len(records), True)
    assert count == len(records)


def test_a_record_of_megabytes_passes_in_pieces() -> None:
    """No message is longer than a piece, whatever the record's size."""
    big = Record("t", b"k", random.Random(1).randbytes(3 * PIECE + 17), 3)
    writer, reader = FrameWriter(), FrameReader()
    pieces = [*writer.write([big, Record("t", b"k", None)]), *writer.rest()]
    assert [len(piece) for piece in pieces][:3] == [PIECE] * 3
    assert [record for piece in pieces for record in reader.read(piece)] == [big, Record("t", b"k", None)]


def test_half_a_record_is_not_complete() -> None:
    """A truncated record is detected before a commit."""
    data, _ = packed([Record("t", b"key", b"value")])
    reader = FrameReader()
    assert reader.read(data[:-1]) == []
    assert not reader.complete


@given(st.binary(min_size=13, max_size=200))
def test_noise_is_refused_or_waits_for_more(noise: bytes) -> None:
    """Random bytes raise only Fatal, and never give a record of an unknown topic."""
    try:
        found = FrameReader().read(noise)
    except Fatal:
        return
    assert all(record.topic for record in found) or not found


def test_a_topic_must_be_named_before_its_records() -> None:
    """A session that begins in the middle of another one is refused."""
    first, second = FrameWriter(), FrameReader()
    list(first.write([Record("t", b"", b"")]))
    head = next(iter(first.rest()))
    with pytest.raises(Fatal, match="an unknown topic"):
        second.read(head[14:])
