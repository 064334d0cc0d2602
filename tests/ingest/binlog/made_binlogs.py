"""Random binlogs, mostly of one-row transactions, and random damage to them."""

from __future__ import annotations

import struct
from random import Random
from typing import Any
from zlib import crc32

from ingest.binlog.format.codes import ColumnType as T
from ingest.binlog.format.columns import LoggedColumn
from ingest.binlog.format.gtid import GtidSet
from ingest.binlog.writer.writer import BinlogWriter

NOW = 1_700_000_000
UUIDS = ("11111111-2222-3333-4444-555555555555", "99999999-2222-3333-4444-555555555555")
TABLES: dict[str, list[LoggedColumn]] = {
    "short": [LoggedColumn(index=0, name="id", type=T.LONG, named=True, unsigned=False)],
    "wide": [
        LoggedColumn(index=0, name="id", type=T.LONG, named=True, unsigned=True),
        LoggedColumn(index=1, name="name", type=T.VARCHAR, named=True, width=300, size=2, charset="utf8mb4"),
        LoggedColumn(index=2, name="price", type=T.NEWDECIMAL, named=True, precision=12, scale=2, unsigned=False),
        LoggedColumn(index=3, name="made", type=T.DATETIME2, named=True, digits=6),
    ],
    "nameless": [LoggedColumn(index=0, name="id", type=T.LONG, named=False, unsigned=False)],
}


def a_row(rng: Random, table: str) -> dict[str, Any]:
    if table != "wide":
        return {"id": rng.randrange(1000)}
    return {
        "id": rng.randrange(1 << 32),
        "name": "ñ" * rng.choice((0, 1, 5, 5, 5, 200)) if rng.random() < 0.9 else None,
        "price": f"{rng.choice(('', '-'))}{rng.randrange(1, 10**10)}.{rng.randrange(100):02d}",
        "made": f"2024-02-{rng.randrange(1, 29):02d} 10:11:{rng.randrange(60):02d}.{rng.randrange(10**6):06d}",
    }


def transaction(rng: Random, writer: BinlogWriter, number: int, unmapped: bool) -> list[bytes]:
    """Write mostly one row; sometimes several, another writer, no GTID, a statement, or an invalid shape."""
    kind = rng.choice(("one",) * 12 + ("rows", "events", "anonymous", "other", "ddl", "commit", "server", "unmapped"))
    table = rng.choice(list(TABLES))
    columns, table_id = TABLES[table], 70 + list(TABLES).index(table)
    source = UUIDS[kind == "other"]
    dated = NOW * 1_000_000 + number if rng.random() < 0.7 else 0
    parts = [writer.anonymous(NOW) if kind == "anonymous" else writer.gtid(source, number, NOW, commit_us=dated)]
    if kind == "ddl":
        return [*parts, writer.query("d", f"CREATE TABLE x{number} (i INT)", NOW)]
    parts.append(writer.query(rng.choice("de"), "BEGIN", NOW))
    if kind != "unmapped" or not unmapped or rng.random() < 0.8:
        parts.append(writer.table_map(table_id, "d", table, columns, NOW))
    for _ in range(2 if kind == "events" else 1):
        operation: Any = rng.choice(("insert", "update", "delete"))
        many = [a_row(rng, table) for _ in range(3 if kind == "rows" else 1)]
        images: list[Any] = [(row, a_row(rng, table)) for row in many] if operation == "update" else many
        if operation == "update":
            images = [(old, {**new, "id": old["id"]}) for old, new in images]
        parts.append(writer.rows(operation, table_id, columns, images, NOW))
    parts.append(writer.query("d", "COMMIT", NOW) if kind == "commit" else writer.xid(number, NOW))
    if kind == "server":
        writer.server_id = 3 - writer.server_id
    return parts


def a_binlog(rng: Random, transactions: int, *, unmapped: bool = True) -> list[bytes]:
    """Return its events after the magic number; `unmapped` says whether a TABLE_MAP may be missing."""
    writer = BinlogWriter()
    events = [writer.begin(NOW, GtidSet.parse(f"{UUIDS[0]}:1-4"))]
    events[:1] = [events[0][4 : 4 + struct.unpack_from("<I", events[0], 13)[0]], events[0]]
    events[1] = events[1][4 + len(events[0]) :]
    for number in range(5, 5 + transactions):
        events += transaction(rng, writer, number, unmapped)
    return events


def damage(rng: Random, events: list[bytes]) -> None:
    """Damage a binlog in one way, after its first two events."""
    at = rng.randrange(2, len(events))
    event = bytearray(events[at])
    match rng.choice(("flip", "resealed", "twice", "lost", "torn", "swapped")):
        case "flip":
            event[rng.randrange(len(event))] ^= 1 << rng.randrange(8)
            events[at] = bytes(event)
        case "resealed":
            event[rng.choice((4, 13, rng.randrange(19, len(event) - 4)))] = rng.randrange(256)
            events[at] = bytes(event[:-4]) + struct.pack("<I", crc32(event[:-4]))
        case "twice":
            events.insert(at, events[at])
        case "lost":
            del events[at]
        case "torn":
            events[at] = events[at][: rng.randrange(len(events[at]))]
            del events[at + 1 :]
        case "swapped":
            other = rng.randrange(2, len(events))
            events[at], events[other] = events[other], events[at]
