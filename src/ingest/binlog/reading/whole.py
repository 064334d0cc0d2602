"""Decode whole transactions of one row event at once: the fast path for binlogs of OLTP workloads.

Such a transaction consists of five events (GTID, BEGIN, TABLE_MAP, ROWS, XID), of which usually only ROWS varies in
size. A template made from one transaction unpacks the next in one call, and verifies its five checksums in two. A
transaction that differs from the template, or cannot be decoded, stays in the buffer. `BinlogReader` then reads it
event by event, with the same result or an error.

About the checksums: the CRC32 of bytes that end in their own CRC32 is a constant, and CRC32 is linear. So the CRC32
over several such events, and known bytes between them, depends only on their lengths.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from struct import Struct
from struct import error as StructError
from typing import Any, Final, NamedTuple
from zlib import crc32

from ingest.binlog.format.canonical import Unrepresentable
from ingest.binlog.format.codes import CHECKSUM_SIZE, HEADER_SIZE, EventType
from ingest.binlog.format.errors import BinlogError
from ingest.binlog.format.packed import U32
from ingest.binlog.reading.events import RawEvent
from ingest.binlog.reading.parse import COMMIT_MICROS, DATED_GTID, query_text
from ingest.binlog.reading.position import UUIDS, Identity
from ingest.binlog.reading.stream import CRC32, CRC_RESIDUE, Committed, EventStream, Operation, RowBatch
from ingest.binlog.rows.rows import TableDecoder

T = EventType
# Number of bytes before each event in MySQL's protocol: length, sequence number, and 0 for "an event follows".
PACKET_GAP: Final = 5
_MAX_KEPT: Final = 256
_ID_SIZE: Final = 6
_XID_SIZE: Final = 31
# Larger events are rare, and computing checksums for their sizes would take time and memory.
_LARGEST: Final = 1 << 16
_SMALLEST: Final = (HEADER_SIZE + 25 + CHECKSUM_SIZE, HEADER_SIZE + 13 + CHECKSUM_SIZE, HEADER_SIZE + 8 + CHECKSUM_SIZE)
# Bytes of a Query event with thread id and seconds, which vary and do not matter here.
_SKIPPED: Final = 8
_GTIDS: Final = frozenset({int(T.GTID), int(T.ANONYMOUS_GTID)})
_ROWS: Final[dict[int, Operation]] = {30: "insert", 31: "update", 32: "delete"}


class WholeTransaction(NamedTuple):
    """A transaction with one rows event, within one file: GTID, BEGIN, TABLE_MAP, rows, XID.

    `commit_us` and `server_id` are from the GTID event. `rows` are those of the rows event, of type `code`; None if the
    table is not wanted. `begin`, `rows_at`, `xid_at` and `end` are the offsets of GTID, rows, XID and the next event.
    `data` and `xid` are the bytes of the last two events.
    """

    identity: Identity | None
    commit_us: int
    server_id: int
    decoder: TableDecoder
    code: int
    rows: list[Any] | None
    begin: int
    rows_at: int
    xid_at: int
    end: int
    data: bytes
    xid: bytes


class ReadBuffer:
    """Bytes that a transport has received but not yielded: `block[at:]` begins with the packet of the next event.

    `gap` is the number of bytes before each event; `position` is the next event's offset in `file`. Between two
    packets, a caller may take events out and advance `at` and `position`; the transport continues from there.
    """

    __slots__ = ("at", "block", "file", "gap", "position")

    def __init__(self, gap: int) -> None:
        self.gap, self.file, self.position = gap, "", 4
        self.block, self.at = b"", 0


def _crc_after(state: int, size: int) -> int:
    """Return the CRC32 after `size` more bytes that end in their own CRC32; `state` is the CRC32 before them."""
    zeros = bytes(size)
    return CRC_RESIDUE ^ crc32(zeros, state) ^ crc32(zeros)


class _Sums(dict[bytes, int]):
    """Cache: sequence number of a transaction's first packet → CRC32 over valid events of these sizes and their gaps.

    It covers the events from number `first` on; `state` is the CRC32 of the bytes before them.
    """

    def __init__(self, gap: int, sizes: tuple[int, ...], first: int = 0, state: int = 0) -> None:
        super().__init__()
        self._gap, self._sizes, self._first, self._state = gap, sizes, first, state

    def __missing__(self, sequence: bytes) -> int:
        state = self._state
        for place, size in enumerate(self._sizes, self._first):
            if self._gap:
                packet = (size + 1).to_bytes(3, "little") + bytes((sequence[0] + place & 0xFF, 0))
                state = crc32(packet, state)
            state = _crc_after(state, size)
        self[sequence] = state
        return state


class _Lengths(dict[int, bytes]):
    """Cache: size of an event → the three length bytes of its packet; empty if packets have no header."""

    def __init__(self, gap: int) -> None:
        super().__init__()
        self._gap = gap

    def __missing__(self, size: int) -> bytes:
        if len(self) > 64 * _MAX_KEPT:
            self.clear()
        found = self[size] = (size + 1).to_bytes(5, "little")[:3] if self._gap else b""
        return found


class _Common:
    """Values that depend only on the gap: lengths of packets, and how to decode and verify the XID after a rows
    event."""

    def __init__(self, gap: int) -> None:
        self.lengths = _Lengths(gap)
        self.unpack_xid = Struct(f"<{gap}x4x9sI").unpack_from
        self.xid_sums = _Sums(gap, (_XID_SIZE,), 4, CRC_RESIDUE)


@dataclass(frozen=True, slots=True)
class _Template:
    """Template for the first three events of a transaction, by their sizes.

    `size` is the distance from the first packet to the rows event, `need` the number of bytes that `unpack` reads. A
    mark is type, server and length in an event's header; the fourth mark is that of the XID event.
    """

    sizes: tuple[int, int, int]
    marks: tuple[bytes, bytes, bytes, bytes]
    size: int
    need: int
    unpack: Callable[..., tuple[Any, ...]]
    sums: _Sums
    server_id: int


def _make_template(gap: int, sizes: tuple[int, int, int], marks: tuple[bytes, bytes, bytes]) -> _Template:
    gtid, query, table = sizes
    # Per event: mark, next position, and the parts of the body that are compared or used. The CRC32 also covers the
    # gaps.
    between = f"{gap}x4x9sI2x"
    # In a GTID event with a commit time: the code of that field, and eight bytes, of which the last seven are the time.
    rest = gtid - HEADER_SIZE - 25
    dated = f"B15xQ{rest - 24}x" if gtid - CHECKSUM_SIZE >= DATED_GTID else f"0s0s{rest}x"
    form = Struct(
        "<"
        + ("3x1sx" if gap else "0s")
        + f"I9sI2xx16sq{dated}"
        + f"{between}{_SKIPPED}x{query - HEADER_SIZE - _SKIPPED - CHECKSUM_SIZE}s4x"
        + f"{between}{table - HEADER_SIZE - CHECKSUM_SIZE}s4x"
        + ("3s2x" if gap else "0s")
        + "4xB4xII2x6s"
    )
    xid = bytes((T.XID,)) + marks[0][1:5] + _XID_SIZE.to_bytes(4, "little")
    size = sum(sizes) + 4 * gap
    server_id = U32(marks[0], 1)[0]
    return _Template(sizes, (*marks, xid), size, form.size, form.unpack_from, _Sums(gap, sizes), server_id)


class WholeTransactions:
    """Takes consecutive transactions of one rows event out of a buffer."""

    def __init__(self, stream: EventStream) -> None:
        self._stream = stream
        self._templates: dict[tuple[int, int, int], _Template] = {}
        self._tails: set[bytes] = set()
        self._common: dict[int, _Common] = {}

    def changes(self, buffer: ReadBuffer) -> Iterator[RowBatch | Committed]:
        """Yield the rows and the end of each such transaction, and advance the stream's position."""
        progress, file, new = self._stream.progress, buffer.file, tuple.__new__
        for found in self.transactions(buffer):
            identity, _, _, decoder, code, rows, _, rows_at, xid_at, end, data, xid = found
            if rows is not None:
                progress.in_transaction, progress.identity, progress.batches = True, identity, 1
                yield new(RowBatch, (_ROWS[code], decoder, rows, new(RawEvent, (code, data, file, rows_at, xid_at))))
            progress.close(identity, file, end)
            yield new(Committed, (identity, new(RawEvent, (16, xid, file, xid_at, end))))

    def transactions(self, buffer: ReadBuffer) -> Iterator[WholeTransaction]:
        """Yield each such transaction and take it out of the buffer.

        The caller must advance the stream's position, when it has processed the transaction.
        """
        stream, gap = self._stream, buffer.gap
        if not stream.options.verify or stream.checksum != CRC32 or stream.id_size != _ID_SIZE:
            return
        block, at, position = buffer.block, buffer.at, buffer.position
        if self._template(block, at, gap) is None:
            return
        decoders, tails, uuids = stream.decoders_by_map, self._tails, UUIDS
        common = self._common.get(gap)
        if common is None:
            common = self._common[gap] = _Common(gap)
        end, names, new, lengths, behind = len(block), _ROWS, tuple.__new__, common.lengths, gap + _XID_SIZE
        unpack_xid, xid_sums = common.unpack_xid, common.xid_sums
        known = begins = b""
        decoder = decoders.get(known)
        # One loop with local variables only, because its speed determines that of capture for OLTP workloads.
        while (template := self._template(block, at, gap)) is not None:
            size, need, unpack, sums, server_id = (
                template.size, template.need, template.unpack, template.sums, template.server_id,
            )  # fmt: skip
            (n1, n2, n3), (mark1, mark2, mark3, mark5) = template.sizes, template.marks
            anonymous = mark1[0] == T.ANONYMOUS_GTID
            while end - at >= need:
                (
                    sequence, seconds, m1, p1, source, number, dated, timestamp, m2, p2, tail, m3, p3, body, length,
                    code, n4, p4, table,
                ) = unpack(block, at)  # fmt: skip
                if m1 != mark1 or m2 != mark2 or m3 != mark3:
                    break
                if tail != begins:
                    if tail not in tails:
                        break
                    begins = tail
                if body != known:
                    known, decoder = body, decoders.get(body)
                start = at + size
                stop = start + n4
                if (
                    decoder is None
                    or not decoder.whole
                    or table != body[:6]
                    or code not in names
                    or end - stop < behind
                ):
                    return
                m5, p5 = unpack_xid(block, stop)
                if (
                    m5 != mark5
                    or length != lengths[n4]
                    or p1 - n1 != position
                    or p2 - n2 != p1
                    or p3 - n3 != p2
                    or p4 - n4 != p3
                    or p5 - _XID_SIZE != p4
                    or crc32(block[at : start - gap]) != sums[sequence]
                    or crc32(block[start : stop + behind]) != xid_sums[sequence]
                ):
                    return
                data = block[start : stop - CHECKSUM_SIZE]
                rows = None
                if decoder.wanted:
                    try:
                        rows = decoder.decode(code, data)
                    except (BinlogError, Unrepresentable):
                        return
                identity = None if anonymous else (uuids[source], "", number)
                commit_us = (timestamp >> 8 & COMMIT_MICROS if dated == 2 else 0) or seconds * 1_000_000
                begin = position
                buffer.at = at = stop + behind
                buffer.position = position = p5
                xid = block[stop + gap : at - CHECKSUM_SIZE]
                yield new(
                    WholeTransaction,
                    (identity, commit_us, server_id, decoder, code, rows, begin, p3, p4, p5, data, xid),
                )
            else:
                return

    def _template(self, block: bytes, at: int, gap: int) -> _Template | None:
        """Return the template for the transaction at offset `at`; None if it has another form."""
        first = at + gap
        try:
            n1 = U32(block, first + 9)[0]
            second = first + n1 + gap
            n2 = U32(block, second + 9)[0]
            third = second + n2 + gap
            n3 = U32(block, third + 9)[0]
        except StructError:
            return None
        sizes = (n1, n2, n3)
        marks = (block[first + 4 : first + 13], block[second + 4 : second + 13], block[third + 4 : third + 13])
        if marks[0][0] not in _GTIDS or marks[1][0] != T.QUERY or marks[2][0] != T.TABLE_MAP:
            return None
        if any(not low <= size <= _LARGEST for low, size in zip(_SMALLEST, sizes, strict=True)):
            return None
        tail = block[second + HEADER_SIZE + _SKIPPED : second + n2 - CHECKSUM_SIZE]
        if tail not in self._tails:
            try:
                _, text = query_text(block[second + HEADER_SIZE : second + n2 - CHECKSUM_SIZE])
            except (StructError, IndexError, ValueError):
                return None
            if text != "BEGIN":
                return None
            if len(self._tails) >= _MAX_KEPT:
                self._tails.clear()
            self._tails.add(tail)
        template = self._templates.get(sizes)
        if template is None or template.marks[:3] != marks:
            if len(self._templates) >= _MAX_KEPT:
                self._templates.clear()
            template = self._templates[sizes] = _make_template(gap, sizes, marks)
        return template
