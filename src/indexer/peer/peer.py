"""Peer side of one replication connection, without a socket: bytes in, events out, answers as bytes.

    preamble ──6 bytes──▶ header ──ConnectionHeader──▶ calls ──ReplicateWALEntry──▶ calls …

HBase resends a batch until it is answered without an exception, so an answer must not be sent before the batch is
stored elsewhere. Calls are multiplexed on a connection: answers may be sent in any order. Source: hbase-server
ServerRpcConnection, hbase-client ReplicationProtobufUtil.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from google.protobuf.message import DecodeError

from indexer.peer import wire
from indexer.peer import wire_pb2 as pb
from indexer.peer.wire import Cell, WireError

_CODECS = {"", "org.apache.hadoop.hbase.codec.KeyValueCodecWithTags"}
_METHOD = "ReplicateWALEntry"
_UNKNOWN_METHOD = "org.apache.hadoop.hbase.exceptions.UnknownProtocolException"
_FAILED = "java.io.IOException"
_SHOWN = 100  # characters of a client's text in messages and answers


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """One entry of a write-ahead log. `write_time` is in ms, `cells` are in the order of their writes.

    `table` is HBase's full table name, without a namespace if that is `default`."""

    table: bytes
    region: bytes
    sequence: int
    write_time: int
    cells: list[Cell]


class Entry(NamedTuple):
    """An edit whose cells are grouped into writes. `sequence` increases from edit to edit within a region."""

    table: bytes
    region: bytes
    sequence: int
    writes: list[wire.Write]


class Edits:
    """A batch of edits. The bytes are decoded each time the batch is read, so that few cells are in memory at once."""

    def __init__(self, request: pb.ReplicateWALEntryRequest, data: bytes, at: int) -> None:
        self._request, self._data, self._at = request, data, at
        self.cell_count = wire.count_cells(data, at)
        announced = sum(entry.associated_cell_count for entry in request.entry)
        if announced != self.cell_count:
            raise WireError(f"entries announce {announced} cells, the block holds {self.cell_count}")

    @classmethod
    def of(cls, edits: Iterable[Edit]) -> Edits:
        """Return a batch that contains these edits. For tests and simulations."""
        request, cells = pb.ReplicateWALEntryRequest(), list[Cell]()
        for edit in edits:
            entry = request.entry.add(associated_cell_count=len(edit.cells))
            entry.key.table_name, entry.key.encoded_region_name = edit.table, edit.region
            entry.key.log_sequence_number, entry.key.write_time = edit.sequence, edit.write_time
            cells += edit.cells
        return cls(request, wire.write_cells(cells), 0)

    def __len__(self) -> int:
        return len(self._request.entry)

    def entries(self) -> Iterator[Entry]:
        """Yield each edit with its cells grouped. Raises WireError if the bytes are not cells.

        The caller then sends the whole batch back to HBase."""
        at = self._at
        for entry in self._request.entry:
            writes, at = wire.read_writes(self._data, at, entry.associated_cell_count)
            key = entry.key
            yield Entry(key.table_name, key.encoded_region_name, key.log_sequence_number, writes)

    @property
    def size(self) -> int:
        """Return the size of the batch on the wire, in bytes."""
        return len(self._data)

    @property
    def regions(self) -> frozenset[bytes]:
        """Return the names of the regions of the edits. A serial peer sends edits of one region per batch."""
        return frozenset(entry.key.encoded_region_name for entry in self._request.entry)

    @property
    def newest(self) -> int:
        """Return the write time (ms) of the newest edit, or 0 for an empty batch."""
        return max((entry.key.write_time for entry in self._request.entry), default=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Connected:
    """Event: a region server has opened the connection as `user`."""

    user: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EditsReceived:
    """Event: a batch of edits arrived. The caller must call `answer` or `refuse` within HBase's RPC timeout (60 s)."""

    call_id: int
    edits: Edits


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRefused:
    """Event: a call of another method than the shipping of edits. `reply` is the answer to send."""

    method: str
    reply: bytes


Event = Connected | EditsReceived | CallRefused


class PeerConnection:
    """The protocol of one connection. The caller owns the socket and makes one call at a time.

    `receive` raises WireError for bytes that are not HBase's RPC. The caller then closes the connection."""

    def __init__(self) -> None:
        self._frames = wire.Frames()
        self._step: Callable[[], Event | None] = self._preamble

    def receive(self, data: bytes) -> list[Event]:
        """Return the events that the bytes complete, in order. The list is empty while an event is incomplete."""
        self._frames.feed(data)
        events: list[Event] = []
        while True:
            step = self._step
            event = step()
            if event is not None:
                events.append(event)
            elif self._step == step:
                return events

    @property
    def incomplete(self) -> int:
        """Return the number of received bytes that are not a complete frame yet."""
        return len(self._frames)

    @property
    def opened(self) -> bool:
        """Return whether the client has sent a valid preamble and header."""
        return self._step == self._call

    def answer(self, call_id: int) -> bytes:
        """Return the bytes that acknowledge a batch: HBase then drops it."""
        return wire.frame(
            wire.delimited(pb.ResponseHeader(call_id=call_id)), wire.delimited(pb.ReplicateWALEntryResponse())
        )

    def refuse(self, call_id: int, reason: str) -> bytes:
        """Return the bytes that send a batch back: HBase keeps it and retries."""
        return _failure(call_id, _FAILED, reason, final=False)

    def _preamble(self) -> Event | None:
        preamble = self._frames.take(len(wire.PREAMBLE))
        if preamble is not None:
            if preamble != wire.PREAMBLE:
                raise WireError(f"preamble {preamble.hex()} instead of {wire.PREAMBLE.hex()}")
            self._step = self._header
        return None

    def _header(self) -> Event | None:
        received = self._frames.next()
        if received is None:
            return None
        try:
            header = pb.ConnectionHeader.FromString(received)
        except DecodeError as error:
            raise WireError(f"not a connection header: {error}") from error
        if header.cell_block_compressor_class or header.cell_block_codec_class not in _CODECS:
            used = (header.cell_block_compressor_class or header.cell_block_codec_class)[:_SHOWN]
            raise WireError(
                f"cells in {used}, which is not supported",
                "unset hbase.replication.rpc.codec and hbase.client.rpc.compressor in HBase's configuration",
            )
        self._step = self._call
        return Connected(user=header.user_info.effective_user[:_SHOWN])

    def _call(self) -> Event | None:
        received = self._frames.next()
        if received is None:
            return None
        header, at = wire.read_delimited(received, 0, pb.RequestHeader)
        if header.method_name != _METHOD:
            method = header.method_name[:_SHOWN]
            reply = _failure(header.call_id, _UNKNOWN_METHOD, f"an indexer does not support {method}", final=True)
            return CallRefused(method=method, reply=reply)
        request, at = wire.read_delimited(received, at, pb.ReplicateWALEntryRequest)
        return EditsReceived(call_id=header.call_id, edits=Edits(request, received, at))


def _failure(call_id: int, kind: str, reason: str, *, final: bool) -> bytes:
    header = pb.ResponseHeader(call_id=call_id)
    header.exception.exception_class_name = kind
    header.exception.stack_trace = reason
    header.exception.do_not_retry = final
    return wire.frame(wire.delimited(header))
