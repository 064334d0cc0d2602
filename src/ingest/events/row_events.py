"""Decode TABLE_MAP and rows events of a binary log.

A rows event is decoded only when its transaction is committed. Until then only its bytes are kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from cdc.model.schema import TableId
from ingest.binlog import Flavour
from ingest.binlog.format.canonical import Unrepresentable
from ingest.binlog.format.codes import DELETES, HEADER_SIZE, INSERTS, ROWS_EVENTS, EventType
from ingest.binlog.format.errors import BinlogError
from ingest.binlog.reading.events import RawEvent
from ingest.binlog.reading.stream import EventStream
from ingest.binlog.rows.rows import TableDecoder
from ingest.events.columns import described, is_hidden
from ingest.events.hidden import Trim
from ingest.events.log_events import (
    Image,
    Operation,
    RefusedImage,
    RowsLogged,
    RowsPartial,
    RowsQuarantined,
    TableDescribed,
)
from ingest.events.tables import Tables
from ingest.events.values import judged

ENVELOPE = Flavour(json="canonical", temporal="canonical", binary="base64", packed="canonical", bit="canonical")
_SHOWN = Flavour(json="canonical", temporal="text", binary="base64", bit="canonical")
OPERATION: dict[int, Operation] = {
    code: "insert" if code in INSERTS else "delete" if code in DELETES else "update" for code in ROWS_EVENTS
}
_PARTIAL = int(EventType.PARTIAL_UPDATE_ROWS)


class RowsEvent(NamedTuple):
    """One undecoded rows event of a captured table. `decoder` is None if the columns are not known, for the reason
    `why`.

    `width` is the number of columns of a whole row. `map` are the bytes of the TABLE_MAP event.
    """

    raw: RawEvent
    table: TableId
    decoder: TableDecoder | None
    width: int
    why: str
    map: bytes


class RowEvents:
    """Decoder of the rows events in one stream. It remembers the TABLE_MAP events to which they refer."""

    def __init__(self, stream: EventStream, tables: Tables) -> None:
        self._stream, self._tables = stream, tables
        self._described: dict[tuple[str, str], TableDecoder] = {}
        # For the decoder of each captured table: the table, and the number of columns of a whole row.
        self.known: dict[TableDecoder, tuple[TableId, int]] = {}
        self._trims: dict[TableDecoder, Trim] = {}
        self._kept: dict[bytes, tuple[TableId, str]] = {}
        self._maps: dict[bytes, bytes] = {}

    def map(self, raw: RawEvent) -> TableDescribed | None:
        """Register a TABLE_MAP event. Returns an event if its metadata is new for a captured table.

        Otherwise returns None.
        """
        data, size = raw.data, self._stream.id_size
        key = data[HEADER_SIZE : HEADER_SIZE + size]
        table = _table_named(data, HEADER_SIZE + size + 2)
        if not self._tables.captured(*table):
            self._kept.pop(key, None)
            self._stream.map_table(raw)
            return None
        self._maps[key] = data
        try:
            decoder = self._stream.map_table(raw)
        except BinlogError as error:
            self._kept[key] = (self._id(table), error.reason)
            return None
        before = self._described.get(table)
        if before is decoder:
            self._kept.pop(key, None)
            return None
        trim = self._tables.trim(self._id(table), decoder.table.columns)
        gone = trim.hidden if trim else frozenset[str]()
        columns = [c for c in decoder.table.columns if not is_hidden(c.name) and c.name not in gone]
        if not all(column.named for column in columns):
            decoder.whole = False
            self._kept[key] = (self._id(table), "the log does not name its columns, and no statement defines them")
            self._tables.unnamed(self._id(table))
            return None
        self._kept.pop(key, None)
        if before is not None:
            # compare with the previous metadata only
            before.whole = False
            self.known.pop(before, None)
        decoder.whole = trim is None
        if trim is not None:
            self._trims[decoder] = trim
        self._described[table], self.known[decoder] = decoder, (self._id(table), len(columns))
        if decoder.table.described:
            return TableDescribed(self._id(table), *described(decoder.table, trim))
        return None

    def _id(self, table: tuple[str, str]) -> TableId:
        return self._tables.id_of(table)

    def event(self, raw: RawEvent) -> RowsEvent | None:
        """Return the undecoded rows event of a captured table; None for other tables.

        Raises MissingTableMap if the log did not contain its TABLE_MAP.
        """
        key = raw.data[HEADER_SIZE : HEADER_SIZE + self._stream.id_size]
        if self._kept and key in self._kept:
            table, why = self._kept[key]
            return RowsEvent(raw, table, None, 0, why, self._maps[key])
        decoder = self._stream.decoder_of(raw)
        if not decoder.wanted:
            return None
        table, width = self.known[decoder]
        return RowsEvent(raw, table, decoder, width, "", self._maps[key])

    def log_events(self, event: RowsEvent) -> Iterator[RowsLogged | RowsPartial | RowsQuarantined]:
        """Yield the log events of a rows event.

        These are RowsLogged, or RowsPartial if a row image lacks columns. If the event cannot be decoded, it is one
        RowsQuarantined with the event's bytes.
        """
        raw, table, decoder, width, why, _ = event
        if decoder is None:
            yield self._keep(event, why)
            return
        data, code, size, plain = raw.data, raw.code, self._stream.id_size, True
        try:
            rows = decoder.decode(code, data, size)
        except Unrepresentable:
            rows, plain = judged_rows(decoder, data, size), False
        except BinlogError as error:
            yield self._keep(event, error.reason)
            return
        trim = self._trims.get(decoder) if self._trims else None
        for operation, changed in trim.rows(OPERATION[code], rows) if trim else ((OPERATION[code], rows),):
            images = changed[0] if operation == "update" else changed[:1]
            if code == _PARTIAL or any(len(_reported(image)) < width for image in images):
                yield RowsPartial(table, operation, changed, raw.file, raw.offset)
            else:
                yield RowsLogged(table, operation, changed, plain, raw.file, raw.offset)

    def _keep(self, event: RowsEvent, why: str) -> RowsQuarantined:
        raw = event.raw
        return RowsQuarantined(event.table, why, self._stream.server.server, event.map, raw.data, raw.file, raw.offset)


def judged_rows(decoder: TableDecoder, event: bytes, id_size: int) -> list[Any]:
    """Decode the rows of an event in which a value has no canonical form. Such images become RefusedImage."""
    shown = TableDecoder(decoder.table, _SHOWN).decode(event[4], event, id_size)
    columns = decoder.table.columns
    if OPERATION[event[4]] == "update":
        return [(judged(columns, before), judged(columns, after)) for before, after in shown]
    return [judged(columns, image) for image in shown]


def _reported(image: Image) -> dict[str, Any]:
    return image.values if isinstance(image, RefusedImage) else image


def _table_named(data: bytes, at: int) -> tuple[str, str]:
    """Return database and table of a TABLE_MAP event, whose names begin at byte `at`."""
    size = data[at]
    database = data[at + 1 : at + 1 + size].decode(errors="replace")
    at += size + 2
    return database, data[at + 1 : at + 1 + data[at]].decode(errors="replace")
