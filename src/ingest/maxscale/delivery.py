"""Changes → what a client is sent, piece by piece; pure.

A piece ends between two changes and knows where reading goes on behind it: a client that takes nothing for a while
costs no more than the piece that its socket does not take, the rest is read again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import orjson

from cdc.formats.avro import AvroRows
from cdc.formats.maxscale import RowWriter, TransactionNumber, number_of, schema_line
from cdc.model.event import ChangeEvent, Position
from cdc.model.schema import TableSchema
from ingest.binlog.format.gtid import MariaGtidSet
from ingest.changes.feed_interfaces import SchemaVersions
from ingest.changes.merging import ChangeBatch, Offsets

_MARIA = re.compile(r"\d+-\d+-\d+(,\d+-\d+-\d+)*")
_PIECE = 64 * 1024  # bytes, but for a change that is longer
UNLOGGED = -1  # the version of which a client that has seen no schema line was told


class RowForm(Protocol):
    """How rows are written; one that is made for a schema writes its rows alone."""

    def header(self, gtid: TransactionNumber) -> bytes:
        """What comes before the first row of the schema."""

    def row(self, event: ChangeEvent) -> bytes:
        """A change's rows; nothing for one that is not told."""

    def block(self, rows: list[bytes]) -> bytes:
        """Rows as they are sent together."""


class JsonRows:
    """A JSON object a line."""

    def __init__(self, schema: TableSchema) -> None:
        self._schema, self._writer = schema, RowWriter(schema)

    def header(self, gtid: TransactionNumber) -> bytes:
        """See `RowForm`."""
        return orjson.dumps(schema_line(self._schema, gtid), option=orjson.OPT_APPEND_NEWLINE)

    def row(self, event: ChangeEvent) -> bytes:
        """See `RowForm`."""
        return b"".join(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE) for row in self._writer.rows_of(event))

    def block(self, rows: list[bytes]) -> bytes:
        """See `RowForm`."""
        return b"".join(rows)


FORMS: Mapping[str, Callable[[TableSchema], RowForm]] = {"JSON": JsonRows, "AVRO": AvroRows}


@dataclass(frozen=True, slots=True)
class Gate:
    """From which transaction (of its domain), and from which version of the table on, changes are told."""

    since: TransactionNumber | None = None
    version: int = 0

    def opens(self, event: ChangeEvent, schema: TableSchema) -> bool:
        """Whether all from this change on are told."""
        if schema.version < self.version:
            return False
        if self.since is None:
            return True
        number = number_of(event)
        return number.domain == self.since.domain and number.sequence >= self.since.sequence

    def reached(self, position: Position) -> bool:
        """Whether a position covers a part of the transaction, or what comes behind it."""
        assert self.since is not None, "a search for nothing"
        domains = maria_domains(position.gtid_set)
        if domains is not None:
            return domains.get(self.since.domain, -1) >= self.since.sequence
        return position.sequence >= self.since.sequence


def maria_domains(gtid_set: str) -> dict[int, int] | None:
    """The number that each domain has come to, of MariaDB's GTIDs; None for others'."""
    if _MARIA.fullmatch(gtid_set) is None:
        return None
    return {domain: number for domain, (_, number) in MariaGtidSet.parse(gtid_set).domains.items()}


class Piece(NamedTuple):
    """Bytes, where reading goes on behind them, the version told last, and whether the gate is open behind them."""

    data: bytes
    next: Offsets
    version: int
    open: bool


def pieces(
    batch: ChangeBatch, versions: SchemaVersions, form: Callable[[TableSchema], RowForm], starts: Offsets, *,
    reported: int = UNLOGGED, gate: Gate | None = None,
) -> Iterator[Piece]:  # fmt: skip
    """A batch that was read from `starts` on, for a client that was `reported` a version's schema. The last piece ends
    where the batch does; it may hold no bytes.
    """
    at, rows, size, head = dict(starts), list[bytes](), 0, b""
    writer: RowForm | None = None
    for change in batch.changes:
        schema = versions.at(change.event.source.sequence)
        if gate is None or gate.opens(change.event, schema):
            gate = None
            if writer is None or schema.version != reported:
                if writer is not None and schema.version != reported:
                    yield Piece(head + writer.block(rows) if rows else head, dict(at), reported, True)
                    rows, size, head = [], 0, b""
                writer = form(schema)
                if schema.version != reported:
                    head, reported = writer.header(number_of(change.event)), schema.version
            if row := writer.row(change.event):
                rows.append(row)
                size += len(row)
        at[change.partition] = change.offset + 1
        if size >= _PIECE and writer is not None:
            yield Piece(head + writer.block(rows), dict(at), reported, True)
            rows, size, head = [], 0, b""
    last = head + writer.block(rows) if rows and writer is not None else head
    yield Piece(last, batch.next, reported, gate is None)
