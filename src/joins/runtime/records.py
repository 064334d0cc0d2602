"""The messages between steps. All steps use one form of message and parse only what they need.

    k   the target: one byte for the step (a lookup join; 0x80 and more: a multi-way join; `SINK`), then the join key or
        row id there, as text
    op  the kind of message (the constants below)
    r   the row that the message concerns: its id as text. In a `PART` it is one byte, the number of the lookup that the
        part fills. In messages to a many-to-many join, a byte for the side precedes the id
    v   orders the changes of one row within one batch: the offset in the topic, since one row has one partition
    p   the payload: 8 bytes of milliseconds (the time of its newest change), the trace, then the values

Values are the inside of a JSON array of canonical values, in the order of a node's columns: `1,"x",null`. So two
payloads can be joined with a comma, without parsing. Keys and ids have the same form. JSON never begins with a zero
byte, so a zero byte marks a key that contains NULL (`null_key`). Such a key matches nothing and keeps no state.

A trace is a zero byte, a count, and that many entries of `cdc.stored.traces`. It records where values come from.
State that was stored before traces existed has none. Traces and times do not count in comparisons of payloads."""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import orjson

from cdc.model.types import Canonical
from cdc.stored import traces

Values = list[Canonical]

DIM_PUT = 0  # the right side of a join at k now has payload p
DIM_GONE = 1
PUT = 2  # row r now points at k and has payload p (empty for later lookups of a multi-way join, to which: `with_part`)
MOVED = 3  # row r still exists but points at another key
GONE = 4  # row r was deleted
PART = 5  # row k of a multi-way join: its lookup r now has payload p (empty: no such row)
ROW_GONE = 6  # to the sink: row k was deleted
ROW_PUT = 7  # to the sink: row k has payload p
REFUSED = 8  # p = JSON array of the fields of `RefusedRecord`
TRUNCATION_POINT = 9  # p = JSON array of the fields of `TruncationPoint`
NEW = 10  # PUT of a row that did not exist before
SURE = 11  # PUT of a row that may be visible although no message to this key made it so
LOST = 12  # GONE of such a row
PARTIAL = 13  # changes of group k that one partition summed (`joins.steps.contributions`); v, r = ts_ms and trace
EXACT_BEFORE = 16  # an exact change's row before it: its group subtracts what the row contributed (`Fragment.adds_up`)
EXACT_AFTER = 17  # the row after it, which the group adds
LATE = "late: "  # prefix of the reason of a row that arrives after the watermark

SINK = 0xFF
MULTI_JOIN = 0x80
_NULL = b"\x00"
_TS = struct.Struct(">q")
_LENGTH = struct.Struct(">i")
_HEAD = struct.Struct(">bqi")


class Message(NamedTuple):
    """A message between steps. The fields are explained at the module. It is a tuple for speed."""

    k: bytes
    op: int
    r: bytes
    v: int
    p: bytes


class RefusedRecord(NamedTuple):
    """A record of a topic that could not be read, or a row of the result that could not be stored.

    `key` and `value` are in base64. For a row, `topic` begins with `table ` and the joined table's name."""

    topic: str
    partition: int
    offset: int
    reason: str
    key: str | None
    value: str | None

    def message(self) -> Message:
        """Return the `REFUSED` message to the sink."""
        return Message(bytes([SINK]), REFUSED, b"", 0, orjson.dumps(tuple(self)))


class RowPut(NamedTuple):
    """A complete row of the result, with its values in the order of the layout's columns.

    `ts_ms` is the time of its newest change (ms since 1970). `trace` has the entries of its trace, without header."""

    values: Values
    ts_ms: int
    trace: bytes = b""


class RowGone(NamedTuple):
    """The delete of a row of the result. `row_key` has the values of its row key columns, in the order of the row
    key."""

    row_key: Values


class TruncationPoint(NamedTuple):
    """A limit for one partition of a log that may reorder events: records with a smaller `sequence` are obsolete."""

    topic: str
    partition: int
    sequence: int

    def message(self) -> Message:
        """Return the `TRUNCATION_POINT` message to the sink."""
        return Message(bytes([SINK]), TRUNCATION_POINT, b"", 0, orjson.dumps(tuple(self)))


Record = RowPut | RowGone | RefusedRecord | TruncationPoint


def record_of(message: Message, outputs: Iterable[int]) -> Record:
    """Decode a message at the sink. `outputs` gives, for each column of the layout, its index among a whole row's
    values."""
    if message.op == ROW_PUT:
        values = values_of(message.p)
        return RowPut([values[index] for index in outputs], ts_of(message.p), trace_of(message.p)[2:])
    if message.op == ROW_GONE:
        return RowGone(values_of_text(message.k[1:]))
    if message.op == REFUSED:
        return RefusedRecord(*orjson.loads(message.p))
    if message.op == TRUNCATION_POINT:
        return TruncationPoint(*orjson.loads(message.p))
    raise AssertionError(f"op {message.op} at the sink")


def text_of(values: Values) -> bytes:
    """Return the text of values: of a key, an id or a row. Two texts are equal exactly when the values are."""
    return orjson.dumps(values)[1:-1]


def values_of_text(text: bytes) -> Values:
    """Parse the text that `text_of` wrote."""
    values: Values = orjson.loads(b"[" + text + b"]")
    return values


def payload(values: Values, ts_ms: int, trace: bytes = b"") -> bytes:
    """Return the payload with these values, the time of their newest change, and their trace."""
    return payload_of(text_of(values), ts_ms, trace)


def payload_of(text: bytes, ts_ms: int, trace: bytes = b"") -> bytes:
    """Return the payload with the text of the values."""
    return _TS.pack(ts_ms) + trace + text


def values_of(stored: bytes) -> Values:
    """Return the values of a payload."""
    return values_of_text(values_text(stored))


def values_text(stored: bytes) -> bytes:
    """Return the text of the values in a payload. Comparisons use only this text."""
    return stored[_text_at(stored) :]


def trace_of(stored: bytes) -> bytes:
    """Return the trace of a payload."""
    return stored[8 : _text_at(stored)]


def _text_at(stored: bytes) -> int:
    return 10 + 8 * stored[9] if stored[8:9] == _NULL else 8


def trace(entries: bytes) -> bytes:
    """Build a trace from its entries."""
    return bytes([0, len(entries) // 8]) + entries if entries else b""


def seen(node: int, place: int) -> bytes:
    """Return the trace of a row that node number `node` read from the record at `place`
    (`cdc.stored.traces.place_of`)."""
    return trace(traces.entry(node, place))


def traced(left: bytes, right: bytes) -> bytes:
    """Return the trace of a joined row: the entries of both traces."""
    return left or right if not (left and right) else trace(left[2:] + right[2:])


def ts_of(stored: bytes) -> int:
    """Return the time (ms) in a payload."""
    ts_ms: int = _TS.unpack_from(stored)[0]
    return ts_ms


def joined(left: bytes, right: bytes, width: int) -> bytes:
    """Join two payloads. An empty `right` is a missing row and becomes `width` NULLs."""
    if not right:
        return left + b",null" * width
    text = values_text(left) + b"," + values_text(right)
    return payload_of(text, max(ts_of(left), ts_of(right)), traced(trace_of(left), trace_of(right)))


def with_part(own: bytes, part: bytes) -> bytes:
    """Pack a row's payload together with the payload of its first lookup's part, for a multi-way join."""
    return _LENGTH.pack(len(own)) + own + part


def split_part(p: bytes) -> tuple[bytes, bytes]:
    """Return the two payloads that `with_part` packed: the row's own and its first part."""
    end = 4 + _LENGTH.unpack_from(p)[0]
    return p[4:end], p[end:]


def picked(row: Message, picks: Sequence[int] | None, tag: str | None) -> Message:
    """Return a row of a fragment as another fragment reads it: with the values at the indexes `picks`.

    `tag` is put before its id."""
    k, p = row.k, row.p
    if tag is not None:
        k = k[:1] + tag.encode() + b"," + k[1:]
    if picks is not None and row.op in (ROW_PUT, DIM_PUT):
        values = values_of(p)
        p = payload([values[index] for index in picks], ts_of(p), trace_of(p))
    return row._replace(k=k, p=p)


def pack(parts: Iterable[bytes]) -> bytes:
    """Pack several byte strings into one."""
    return b"".join(_LENGTH.pack(len(part)) + part for part in parts)


def unpack(stored: bytes) -> list[bytes]:
    """Return the byte strings that `pack` packed."""
    parts, at = [], 0
    while at < len(stored):
        end = at + 4 + _LENGTH.unpack_from(stored, at)[0]
        parts.append(stored[at + 4 : end])
        at = end
    return parts


def dump(message: Message) -> tuple[bytes, bytes]:
    """Serialize a message to key and body, for Spark's operators. `load` is the inverse."""
    k, op, r, v, p = message
    return k, _HEAD.pack(op, v, len(r)) + r + p


def load(k: bytes, body: bytes) -> Message:
    """Deserialize what `dump` wrote."""
    op, v, length = _HEAD.unpack_from(body)
    return Message(k, op, body[13 : 13 + length], v, body[13 + length :])


def key_text(values: Values, row: bytes) -> bytes:
    """Return the text of a join key. A key with NULL becomes a unique key of the row `row`, which nothing matches."""
    return _NULL + row if None in values else text_of(values)


def null_key(k: bytes) -> bool:
    """Return whether the key `k` of a lookup join's message contains NULL."""
    return k[1:2] == _NULL


def as_text(stored: bytes | None) -> str | None:
    """Return bytes as a dead letter carries them. They are in base64; None for None."""
    return None if stored is None else base64.b64encode(stored).decode()
