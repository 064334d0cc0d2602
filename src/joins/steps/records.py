"""What travels between the steps: one kind of message, opaque where a step has nothing to compute.

    k   where it goes: one byte that names the step (a hop; 0x80 + a star; `SINK`), then the text of the key there
    op  what happened (below)
    r   the row it concerns: the text of its id; of a `PART`, the one byte that says which hop of the row it fills; to
        pairs a byte in front says the side
    v   orders what happened to one row within one batch: the offset in the topic, the same partition for one row
    p   payload: 8 bytes of milliseconds (of the newest change in it), the trace, then values

Values are the interior of a JSON array of canonical values, in the order of a node's columns: `1,"x",null`. So two
payloads are concatenated with a comma and nothing is parsed on the way. Keys and ids have the same form. JSON never
begins with a zero byte: that marks a key with NULL in it (`null_key`), which matches nothing and keeps no state.

A trace is a zero byte, a count, and so many entries of `cdc.stored.traces`; it may be lacking, as it is in what a state
has kept from before there were any. It says where values came from and is none of them: two payloads of the same values
are equal whatever their traces and times.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import orjson

from cdc.model.types import Canonical
from cdc.stored import traces

Values = list[Canonical]

DIM_PUT = 0  # the right side of a join at k now reads p
DIM_GONE = 1
PUT = 2  # row r now points at k, and reads p (empty for the later hops of a star). To a star: `with_part`
MOVED = 3  # row r points elsewhere now and lives on
GONE = 4  # row r is gone
PART = 5  # row k of a star: its hop r reads p now (empty: there is no such row)
ROW_GONE = 6  # to the sink: row k is gone
ROW_PUT = 7  # to the sink: row k reads p
REFUSED = 8  # p = JSON array of the fields of `RefusedRecord`
FLOOR = 9  # p = JSON array of the fields of `TruncationPoint`
NEW = 10  # PUT of a row that was not there before
SURE = 11  # PUT of a row that may have been shown from where nobody said that it was
LOST = 12  # GONE, of such a row
PARTIAL = 13  # what group k's rows have changed in one place (`joins.steps.contributions`); v, r = ts_ms and trace

SINK = 0xFF
MULTI_JOIN = 0x80
_NULL = b"\x00"
_TS = struct.Struct(">q")
_LENGTH = struct.Struct(">i")
_HEAD = struct.Struct(">bqi")


class Message(NamedTuple):
    """See the module's docstring; a tuple, since every change makes several of them."""

    k: bytes
    op: int
    r: bytes
    v: int
    p: bytes


class RefusedRecord(NamedTuple):
    """A record of the log that could not be read, or a row that could not be stored; key and value in base64."""

    topic: str
    partition: int
    offset: int
    reason: str
    key: str | None
    value: str | None

    def message(self) -> Message:
        """As it travels to the sink."""
        return Message(bytes([SINK]), REFUSED, b"", 0, orjson.dumps(tuple(self)))


class RowPut(NamedTuple):
    """A whole row of the result, in the order of the layout's columns; `ts_ms` of the newest change it shows.

    `trace`: its entries alone.
    """

    values: Values
    ts_ms: int
    trace: bytes = b""


class RowGone(NamedTuple):
    """A row of the result is gone; the values of its row key columns, in the order of `row_key`."""

    row_key: Values


class TruncationPoint(NamedTuple):
    """Of a partition whose log may reorder: what is older than `sequence` comes too late from here on."""

    topic: str
    partition: int
    sequence: int

    def message(self) -> Message:
        """As it travels to the sink."""
        return Message(bytes([SINK]), FLOOR, b"", 0, orjson.dumps(tuple(self)))


Record = RowPut | RowGone | RefusedRecord | TruncationPoint


def record_of(message: Message, outputs: Iterable[int]) -> Record:
    """What the sink is told; `outputs` = per column of the layout, its index among the values of a whole row."""
    if message.op == ROW_PUT:
        values = values_of(message.p)
        return RowPut([values[index] for index in outputs], ts_of(message.p), trace_of(message.p)[2:])
    if message.op == ROW_GONE:
        return RowGone(values_of_text(message.k[1:]))
    if message.op == REFUSED:
        return RefusedRecord(*orjson.loads(message.p))
    if message.op == FLOOR:
        return TruncationPoint(*orjson.loads(message.p))
    raise AssertionError(f"op {message.op} at the sink")


def text_of(values: Values) -> bytes:
    """Text of a key, an id or a row's values: equal exactly when the values are."""
    return orjson.dumps(values)[1:-1]


def values_of_text(text: bytes) -> Values:
    """Inverse of `text_of`."""
    values: Values = orjson.loads(b"[" + text + b"]")
    return values


def payload(values: Values, ts_ms: int, trace: bytes = b"") -> bytes:
    """A row's values, the time of the newest change in them, and their trace."""
    return payload_of(text_of(values), ts_ms, trace)


def payload_of(text: bytes, ts_ms: int, trace: bytes = b"") -> bytes:
    """The same of the values' text."""
    return _TS.pack(ts_ms) + trace + text


def values_of(stored: bytes) -> Values:
    """The values of a payload."""
    return values_of_text(values_text(stored))


def values_text(stored: bytes) -> bytes:
    """Their text: what is compared."""
    return stored[_text_at(stored) :]


def trace_of(stored: bytes) -> bytes:
    """The trace of a payload."""
    return stored[8 : _text_at(stored)]


def _text_at(stored: bytes) -> int:
    return 10 + 8 * stored[9] if stored[8:9] == _NULL else 8


def trace(entries: bytes) -> bytes:
    """Entries as a trace."""
    return bytes([0, len(entries) // 8]) + entries if entries else b""


def seen(node: int, place: int) -> bytes:
    """The trace of one row: what node number `node` read there (`cdc.stored.traces.place_of`)."""
    return trace(traces.entry(node, place))


def traced(left: bytes, right: bytes) -> bytes:
    """The trace of what two rows make."""
    return left or right if not (left and right) else trace(left[2:] + right[2:])


def ts_of(stored: bytes) -> int:
    """The milliseconds of a payload."""
    ts_ms: int = _TS.unpack_from(stored)[0]
    return ts_ms


def joined(left: bytes, right: bytes, width: int) -> bytes:
    """One payload of two; an empty `right` is a row that is absent: `width` NULLs."""
    if not right:
        return left + b",null" * width
    text = values_text(left) + b"," + values_text(right)
    return payload_of(text, max(ts_of(left), ts_of(right)), traced(trace_of(left), trace_of(right)))


def with_part(own: bytes, part: bytes) -> bytes:
    """A star's row together with the part of its first hop."""
    return _LENGTH.pack(len(own)) + own + part


def split_part(p: bytes) -> tuple[bytes, bytes]:
    """Inverse of `with_part`."""
    end = 4 + _LENGTH.unpack_from(p)[0]
    return p[4:end], p[end:]


def picked(row: Message, picks: Sequence[int] | None, tag: str | None) -> Message:
    """A fragment's row as another one reads it: of its values the `picks`, the text `tag` in front of its name."""
    k, p = row.k, row.p
    if tag is not None:
        k = k[:1] + tag.encode() + b"," + k[1:]
    if picks is not None and row.op in (ROW_PUT, DIM_PUT):
        values = values_of(p)
        p = payload([values[index] for index in picks], ts_of(p), trace_of(p))
    return row._replace(k=k, p=p)


def pack(parts: Iterable[bytes]) -> bytes:
    """Several byte strings as one."""
    return b"".join(_LENGTH.pack(len(part)) + part for part in parts)


def unpack(stored: bytes) -> list[bytes]:
    """Inverse of `pack`."""
    parts, at = [], 0
    while at < len(stored):
        end = at + 4 + _LENGTH.unpack_from(stored, at)[0]
        parts.append(stored[at + 4 : end])
        at = end
    return parts


def dump(message: Message) -> tuple[bytes, bytes]:
    """Key and body, as operators of Spark exchange it; inverse of `load`."""
    k, op, r, v, p = message
    return k, _HEAD.pack(op, v, len(r)) + r + p


def load(k: bytes, body: bytes) -> Message:
    """Read what `dump` wrote."""
    op, v, length = _HEAD.unpack_from(body)
    return Message(k, op, body[13 : 13 + length], v, body[13 + length :])


def key_text(values: Values, row: bytes) -> bytes:
    """Text of a join key; with NULL in it, of the place of its own where the row `row` waits for nothing."""
    return _NULL + row if None in values else text_of(values)


def null_key(k: bytes) -> bool:
    """Whether a hop's k is such a place."""
    return k[1:2] == _NULL
