"""Encode changes into pieces to send to a client of MaxScale's protocol.

A piece ends between two changes, and knows the offsets after it. So for a client that does not read, only one piece is
in memory; the rest is read from Kafka later.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import orjson

from cdc.formats.avro_rows import AvroRows
from cdc.formats.maxscale import RowWriter, TransactionNumber, number_of, schema_line
from cdc.model.event import ChangeEvent, Position
from cdc.model.schema import TableSchema
from ingest.binlog.format.gtid import MariaGtidSet
from ingest.changes.feed_interfaces import SchemaVersions
from ingest.changes.merging import ChangeBatch, Offsets

_MARIA = re.compile(r"\d+-\d+-\d+(,\d+-\d+-\d+)*")
_PIECE = 64 * 1024  # maximum bytes of a piece, unless a single change is longer
UNLOGGED = -1  # schema version for a client that has not received a schema line yet


class RowForm(Protocol):
    """Encoder of rows under one schema."""

    def header(self, gtid: TransactionNumber) -> bytes:
        """Return the bytes before the first row of the schema."""

    def row(self, event: ChangeEvent) -> bytes:
        """Return the rows of a change; empty if the format cannot represent it."""

    def block(self, rows: list[bytes]) -> bytes:
        """Join encoded rows to one block."""


class JsonRows:
    """Encodes rows as JSON objects, one per line; implements `RowForm`."""

    def __init__(self, schema: TableSchema) -> None:
        self._schema, self._writer = schema, RowWriter(schema)

    def header(self, gtid: TransactionNumber) -> bytes:
        """Return the bytes before the first row of the schema. Implements `RowForm`."""
        return orjson.dumps(schema_line(self._schema, gtid), option=orjson.OPT_APPEND_NEWLINE)

    def row(self, event: ChangeEvent) -> bytes:
        """Return the rows of a change; empty if the format cannot represent it. Implements `RowForm`."""
        return b"".join(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE) for row in self._writer.rows_of(event))

    def block(self, rows: list[bytes]) -> bytes:
        """Join encoded rows to one block. Implements `RowForm`."""
        return b"".join(rows)


FORMS: Mapping[str, Callable[[TableSchema], RowForm]] = {"JSON": JsonRows, "AVRO": AvroRows}


@dataclass(frozen=True, slots=True)
class Gate:
    """Begin of a client's stream: the first transaction (per domain) and the first schema version whose changes are
    sent."""

    since: TransactionNumber | None = None
    version: int = 0

    def opens(self, event: ChangeEvent, schema: TableSchema) -> bool:
        """Return whether the stream begins with this change."""
        if schema.version < self.version:
            return False
        if self.since is None:
            return True
        number = number_of(event)
        return number.domain == self.since.domain and number.sequence >= self.since.sequence

    def reached(self, position: Position) -> bool:
        """Return whether a position is within or after the first transaction."""
        assert self.since is not None, "only a gate with a transaction searches"
        domains = maria_domains(position.gtid_set)
        if domains is not None:
            return domains.get(self.since.domain, -1) >= self.since.sequence
        return position.sequence >= self.since.sequence


def maria_domains(gtid_set: str) -> dict[int, int] | None:
    """Return the last sequence number of each domain in a MariaDB GTID set; None for GTID sets of other servers."""
    if _MARIA.fullmatch(gtid_set) is None:
        return None
    return {domain: number for domain, (_, number) in MariaGtidSet.parse(gtid_set).domains.items()}


class Piece(NamedTuple):
    """Bytes for a client, the offsets after them, the schema version last sent, and whether the stream has begun
    (`open`)."""

    data: bytes
    next: Offsets
    version: int
    open: bool


def pieces(
    batch: ChangeBatch, versions: SchemaVersions, form: Callable[[TableSchema], RowForm], starts: Offsets, *,
    sent_version: int = UNLOGGED, gate: Gate | None = None,
) -> Iterator[Piece]:  # fmt: skip
    """Yield the pieces for a batch that was read from the offsets `starts`.

    `form` returns the encoder of a schema; `sent_version` is the last schema version that the client has received. The
    last piece ends with the batch and may be empty.
    """
    at, rows, size, head = dict(starts), list[bytes](), 0, b""
    writer: RowForm | None = None
    for change in batch.changes:
        schema = versions.at(change.event.source.sequence)
        if gate is None or gate.opens(change.event, schema):
            gate = None
            if writer is None or schema.version != sent_version:
                if writer is not None and schema.version != sent_version:
                    yield Piece(head + writer.block(rows) if rows else head, dict(at), sent_version, True)
                    rows, size, head = [], 0, b""
                writer = form(schema)
                if schema.version != sent_version:
                    head, sent_version = writer.header(number_of(change.event)), schema.version
            if row := writer.row(change.event):
                rows.append(row)
                size += len(row)
        at[change.partition] = change.offset + 1
        if size >= _PIECE and writer is not None:
            yield Piece(head + writer.block(rows), dict(at), sent_version, True)
            rows, size, head = [], 0, b""
    last = head + writer.block(rows) if rows and writer is not None else head
    yield Piece(last, batch.next, sent_version, gate is None)
