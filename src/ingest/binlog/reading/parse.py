"""Decode event bodies to typed events, with one small function per event type.

It is called only for events that a consumer reads. Raises ValueError, IndexError or struct.error for invalid bodies;
`stream` turns these into CorruptBinlog with the event's place.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Any, Final
from uuid import UUID

from ingest.binlog.format.charsets import charset_of, is_text, text_decoder
from ingest.binlog.format.codes import HEADER_SIZE, EventType
from ingest.binlog.format.compressed import inflate_query, parse_payload
from ingest.binlog.format.gtid import GtidSet
from ingest.binlog.format.packed import (
    I64,
    U16,
    U32,
    U64,
    length_encoded,
    take,
    take_short,
    variable_signed,
    variable_unsigned,
)
from ingest.binlog.reading import events as e

HEADER: Final = Struct("<IBIIIH")
_QUERY: Final = Struct("<IIBHH")
# Size of a GTID event with a commit time, and the bits of that time in microseconds. The next higher bit is set if the
# riginal commit time follows.
DATED_GTID: Final = 68
COMMIT_MICROS: Final = (1 << 55) - 1
T = EventType
Facts = dict[str, Any]


def parse_header(data: bytes, next_position: int | None = None) -> e.EventHeader:
    """Decode an event's header. `next_position`, if given, replaces the header's 32 bits."""
    timestamp, code, server, length, position, flags = HEADER.unpack_from(data)
    return e.EventHeader(
        timestamp=timestamp,
        type_code=code,
        server_id=server,
        event_length=length,
        next_position=position if next_position is None else next_position,
        flags=flags,
    )


def commit_micros(raw: e.RawEvent) -> int:
    """Return the commit time (µs since 1970) at the server that sent the log, from the transaction's first event.

    It is in whole seconds if the event contains no finer time.
    """
    data = raw.data
    stated = 0
    if raw.code in (T.GTID, T.ANONYMOUS_GTID):
        if len(data) >= DATED_GTID and data[44] == 2:
            stated = U64(data, 60)[0] >> 8 & COMMIT_MICROS
    elif raw.code == T.GTID_TAGGED:
        stated = getattr(parse_event(raw), "immediate_commit", 0)
    return stated or U32(data, 0)[0] * 1_000_000


def format_description(body: bytes, checksum: int) -> Facts:
    """Decode the format description. `checksum` is the algorithm that the caller has found at the end of the event."""
    return {
        "binlog_version": U16(body, 0)[0],
        "server_version": body[2:52].split(b"\0", 1)[0].decode("latin-1"),
        "created": U32(body, 52)[0],
        "header_length": body[56],
        "post_header_lengths": body[57:],
        "checksum": checksum,
    }


def _rotate(body: bytes) -> Facts:
    return {"position": U64(body, 0)[0], "next_file": body[8:].rstrip(b"\0").decode()}


def _client_charset(status: bytes) -> str:
    """Return a statement's character set (status variable 4). An unknown variable ends the search, as in servers."""
    sizes = {0: 4, 1: 8, 3: 4, 4: 6, 7: 2, 8: 2, 9: 8, 10: 4, 13: 3, 14: 8, 128: 3, 129: 8}
    at = 0
    while at < len(status):
        code = status[at]
        at += 1
        if code == 4:
            return charset_of(U16(status, at)[0]) or "utf8mb4"
        if code in (5, 6):
            at += 1 + status[at]
        elif code == 2:
            at += 2 + status[at]
        elif code == 11:
            at += 1 + status[at]
            at += 1 + status[at]
        elif code in sizes:
            at += sizes[code]
        else:
            break
    return "utf8mb4"


def query_text(body: bytes, compressed: bool = False) -> tuple[str, str]:
    """Return only database and statement of a Query event, quickly."""
    database, at, _ = _query_head(body)
    raw = inflate_query(body, at) if compressed else body[at:]
    if raw == b"BEGIN":
        return database, "BEGIN"
    status = body[13 : 13 + U16(body, 11)[0]]
    return database, _statement(raw, status)


def _query_head(body: bytes) -> tuple[str, int, bytes]:
    size = body[8]
    at = 13 + U16(body, 11)[0]
    status = body[13:at]
    database, at = take(body, at, size)
    if at >= len(body) + 1:
        raise ValueError("a query event ends before its statement")
    return database.decode("utf-8", "replace"), at + 1, status


def _statement(raw: bytes, status: bytes) -> str:
    charset = _client_charset(status)
    try:
        return text_decoder(charset if is_text(charset) else "utf8mb4")(raw)
    except UnicodeDecodeError:
        # A statement may contain binary literals in any encoding. These bytes are replaced; nothing depends on them.
        return raw.decode("utf-8", "backslashreplace")


def _query(body: bytes) -> Facts:
    thread, seconds, _, error, _ = _QUERY.unpack_from(body)
    database, at, status = _query_head(body)
    return {
        "thread_id": thread,
        "execution_seconds": seconds,
        "error_code": error,
        "status": status,
        "database": database,
        "text": _statement(body[at:], status),
    }


def _query_compressed(body: bytes) -> Facts:
    _, at, _ = _query_head(body)
    return _query(body[:at] + inflate_query(body, at))


def _user_var(body: bytes) -> Facts:
    name, at = take(body, 4, U32(body, 0)[0])
    if body[at]:
        return {"variable": name.decode(), "type": 0, "charset": 63, "value": None}
    kind, charset, size = body[at + 1], U32(body, at + 2)[0], U32(body, at + 6)[0]
    value, _ = take(body, at + 10, size)
    return {"variable": name.decode(), "type": kind, "charset": charset, "value": value}


def _xa_prepare(body: bytes) -> Facts:
    one_phase, form, gtrid, bqual = body[0], U32(body, 1)[0], U32(body, 5)[0], U32(body, 9)[0]
    first, at = take(body, 13, gtrid)
    second, _ = take(body, at, bqual)
    return {"one_phase": bool(one_phase), "format_id": form, "gtrid": first, "bqual": second}


def gtid_identity(body: bytes) -> tuple[str, str, int]:
    """Return (server UUID, "", number) of a GTID event without a tag, quickly."""
    raw = body[1:17].hex()
    return f"{raw[:8]}-{raw[8:12]}-{raw[12:16]}-{raw[16:20]}-{raw[20:]}", "", I64(body, 17)[0]


def _gtid(body: bytes) -> Facts:
    source, tag, number = gtid_identity(body)
    facts: Facts = {"source": source, "tag": tag, "number": number, "flags": body[0]}
    if len(body) >= 42 and body[25] == 2:
        facts |= {"last_committed": I64(body, 26)[0], "sequence_number": I64(body, 34)[0]}
        at = 42
        if len(body) >= at + 7:
            immediate = int.from_bytes(body[at : at + 7], "little")
            at += 7
            original = immediate
            if immediate >> 55:
                immediate &= (1 << 55) - 1
                original = int.from_bytes(body[at : at + 7], "little")
                at += 7
            facts |= {"immediate_commit": immediate, "original_commit": original}
            if at < len(body):
                facts["transaction_length"], at = length_encoded(body, at)
    return facts


def _anonymous(body: bytes) -> Facts:
    return _gtid(body) | {"source": "", "tag": "", "number": 0}


def tagged_identity(body: bytes) -> tuple[str, str, int]:
    """Return (server UUID, tag, number) of a tagged GTID event."""
    facts = _gtid_tagged(body)
    return facts["source"], facts["tag"], facts["number"]


def _gtid_tagged(body: bytes) -> Facts:
    """Decode a tagged GTID event: version, size, last mandatory field, then (field id, value) in order."""
    at = 0
    for _ in range(3):
        _, at = variable_unsigned(body, at)
    facts: Facts = {"source": "", "tag": "", "number": 0, "flags": 0}
    names = {2: "number", 4: "last_committed", 5: "sequence_number"}
    unsigned = {0: "flags", 6: "immediate_commit", 7: "original_commit", 8: "transaction_length"}
    while at < len(body):
        field, at = variable_unsigned(body, at)
        if field == 1:
            raw = bytearray()
            for _ in range(16):
                value, at = variable_unsigned(body, at)
                raw.append(value & 0xFF)
            facts["source"] = str(UUID(bytes=bytes(raw)))
        elif field == 3:
            size, at = variable_unsigned(body, at)
            tag, at = take(body, at, size)
            facts["tag"] = tag.decode()
        elif field in names:
            facts[names[field]], at = variable_signed(body, at)
        else:
            value, at = variable_unsigned(body, at)
            if field in unsigned:
                facts[unsigned[field]] = value
    facts.setdefault("original_commit", facts.get("immediate_commit", 0))
    return facts


def maria_gtid_identity(body: bytes) -> tuple[int, int, int]:
    """Return (domain, number, flags) of a MariaDB GTID event; its server is in the header."""
    return U32(body, 8)[0], U64(body, 0)[0], body[12]


def _maria_gtid(body: bytes) -> Facts:
    domain, number, flags = maria_gtid_identity(body)
    commit = U64(body, 13)[0] if flags & 2 else 0
    return {"domain": domain, "number": number, "flags": flags, "commit_id": commit}


def _maria_gtid_list(body: bytes) -> Facts:
    count = U32(body, 0)[0] & 0x0FFFFFFF
    if count * 16 > len(body):
        raise ValueError(f"{count} GTIDs in {len(body)} bytes")
    entries = Struct("<IIQ").iter_unpack(body[4 : 4 + 16 * count])
    return {"gtids": tuple((domain, number, server) for domain, server, number in entries)}


def _heartbeat_v2(body: bytes) -> Facts:
    facts: Facts = {"log_file": "", "position": 0}
    at = 0
    while at < len(body) and body[at]:
        kind = body[at]
        size, at = length_encoded(body, at + 1)
        raw, at = take(body, at, size)
        if kind == 1:
            facts["log_file"] = raw.decode()
        elif kind == 2:
            facts["position"] = length_encoded(raw, 0)[0]
    return facts


def _payload(body: bytes) -> Facts:
    payload = parse_payload(body)
    return {"compression": payload.compression, "size": payload.size or 0}


Parser = tuple[Callable[..., e.Event], Callable[[bytes], Facts]]
PARSERS: Final[dict[int, Parser]] = {
    T.QUERY: (e.Query, _query),
    T.MARIA_QUERY_COMPRESSED: (e.Query, _query_compressed),
    T.STOP: (e.Stop, lambda body: {}),
    T.ROTATE: (e.Rotate, _rotate),
    T.INTVAR: (e.IntVar, lambda body: {"kind": body[0], "value": U64(body, 1)[0]}),
    T.RAND: (e.Rand, lambda body: {"seed1": U64(body, 0)[0], "seed2": U64(body, 8)[0]}),
    T.USER_VAR: (e.UserVar, _user_var),
    T.XID: (e.Xid, lambda body: {"xid": U64(body, 0)[0]}),
    T.XA_PREPARE: (e.XaPrepare, _xa_prepare),
    T.GTID: (e.Gtid, _gtid),
    T.ANONYMOUS_GTID: (e.Gtid, _anonymous),
    T.GTID_TAGGED: (e.Gtid, _gtid_tagged),
    T.PREVIOUS_GTIDS: (e.PreviousGtids, lambda body: {"gtids": GtidSet.decode(body)}),
    T.MARIA_GTID: (e.MariaGtid, _maria_gtid),
    T.MARIA_GTID_LIST: (e.MariaGtidList, _maria_gtid_list),
    T.ROWS_QUERY: (e.RowsQuery, lambda body: {"text": body[1:].decode("utf-8", "backslashreplace")}),
    T.MARIA_ANNOTATE_ROWS: (e.RowsQuery, lambda body: {"text": body.decode("utf-8", "backslashreplace")}),
    T.TRANSACTION_PAYLOAD: (e.TransactionPayload, _payload),
    T.INCIDENT: (
        e.Incident,
        lambda body: {"kind": U16(body, 0)[0], "message": take_short(body, 2)[0].decode("utf-8", "replace")},
    ),
    T.HEARTBEAT: (e.Heartbeat, lambda body: {"log_file": body.decode("utf-8", "replace"), "position": 0}),
    T.HEARTBEAT_V2: (e.Heartbeat, _heartbeat_v2),
    T.MARIA_BINLOG_CHECKPOINT: (
        e.MariaCheckpoint,
        lambda body: {"log_file": take(body, 4, U32(body, 0)[0])[0].decode()},
    ),
    T.MARIA_START_ENCRYPTION: (e.StartEncryption, lambda body: {"scheme": body[0], "key_version": U32(body, 1)[0]}),
}


def parse_event(raw: e.RawEvent) -> e.Event:
    """Decode any event that needs no context. An unknown type becomes `Unknown`, with its bytes."""
    header = parse_header(raw.data, raw.next_position)
    body = raw.data[HEADER_SIZE:]
    parser = PARSERS.get(raw.code)
    if parser is None:
        return e.Unknown(header=header, file=raw.file, offset=raw.offset, body=body)
    make, read = parser
    return make(header=header, file=raw.file, offset=raw.offset, **read(body))
