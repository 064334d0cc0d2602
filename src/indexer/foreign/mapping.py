"""Convert rows of external tables to Solr documents, by the fields that the topology declares."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from cdc.model.errors import Skippable
from cdc.stored import fields
from cdc.stored.foreign import ForeignField, ForeignTable
from cdc.stored.values import decoder
from indexer.index.mapping import Document, Field, Value, solr_type, solr_value
from indexer.peer.wire import Write

Column = tuple[bytes, bytes]
Cells = Mapping[Column, bytes]


class ForeignRow(NamedTuple):
    """The current state of a row in HBase: value by (family, qualifier), and the newest timestamp among them."""

    row: bytes
    cells: Cells
    timestamp: int


class ForeignMapper:
    """Converts rows of an external table to documents. Threads may share it, because it has no mutable state."""

    def __init__(self, table: ForeignTable, search: Iterable[str]) -> None:
        self._table, self._search = table, tuple(search)
        self._decoders = {field.name: decoder(field.type) for field in table.fields}
        made = [
            Field(name=field.name, type=solr_type(field.type.kind), stored=True, many=field.many)
            for field in table.fields
        ]
        words = [Field(name=fields.words_field(name), type="words", stored=False, many=True) for name in self._search]
        self.fields = (*made, *words, Field(name=fields.ROW_KEY, type="string", stored=True))

    def key(self, row: bytes, column: Column | None = None) -> str:
        """Return the document's id: the row key or, for one document per cell, row, family and qualifier joined by
        hyphens.

        Raises Skippable if a part is not UTF-8 text."""
        if column is None:
            return self._text(row)
        return "-".join(self._text(part, within=True) for part in (row, *column))

    def documents(self, row: bytes, cells: Cells, *, version: int, now_ms: int) -> dict[str, Document]:
        """Return the documents of a row by id. Raises Skippable, naming the column, if a cell cannot be decoded.

        `version` is stored as the document's fence (see docs/glossary.md), `now_ms` as the time of indexing. Empty if
        the row has no document."""
        if self._table.mapping == "column":
            return {
                self.key(row, column): self._document(row, {column: value}, version, now_ms, column)
                for column, value in cells.items()
                if self.wants(column)
            }
        if not any(self.wants(column) for column in cells):
            return {}
        return {self.key(row): self._document(row, cells, version, now_ms, None)}

    def concerns(self, write: Write) -> bool:
        """Return whether a write is to a row and a column family that this table's documents use."""
        return self._table.covers(write.row) and write.family.decode(errors="replace") in self._table.families

    def tombstone(self, key: str, row: bytes, *, version: int) -> Document:
        """Return the document that replaces a deleted one. It has only the id, the row key and the version."""
        return {fields.UNIQUE_KEY: key, fields.FENCE: version, fields.ROW_KEY: row.hex()}

    def wants(self, column: Column) -> bool:
        """Return whether any field of the document is filled from this column."""
        return any(field.matches(*column) for field in self._table.fields if field.family)

    def _document(self, row: bytes, cells: Cells, version: int, now_ms: int, column: Column | None) -> Document:
        document: Document = {
            fields.UNIQUE_KEY: self.key(row, column),
            fields.FENCE: version,
            fields.KIND: fields.ROW,
            fields.TS: version // 2,
            fields.INDEXED_AT: now_ms,
            fields.ROW_KEY: row.hex(),
        }
        for field in self._table.fields:
            values = list(self._values(field, row, cells))
            if values:
                document[field.name] = values if field.many else values[-1]
        for name in self._search:
            if name in document:
                document[fields.words_field(name)] = document[name]
        return document

    def _values(self, field: ForeignField, row: bytes, cells: Cells) -> Iterator[Value]:
        sources: Iterable[bytes]
        if not field.family:
            sources = [row]
        else:
            found = sorted((q, value) for (f, q), value in cells.items() if field.matches(f, q))
            prefix = len(field.qualifier.encode()) - 1 if field.many else 0
            sources = [q[prefix:] if field.take == "qualifier" else value for q, value in found]
        for stored in sources:
            try:
                value = self._decoders[field.name](stored)
            except (ValueError, OverflowError, IndexError, struct.error) as error:
                where = "row key" if not field.family else f"{field.family}:{field.qualifier}"
                raise Skippable(
                    f"field {field.name}: {where} is not a {field.type}: {stored[:40].hex()}: {error}"
                ) from error
            if value is not None:
                yield solr_value(field.type.kind, value)

    def _text(self, part: bytes, *, within: bool = False) -> str:
        if self._table.unique_key == "hex":
            return part.hex()
        try:
            text = part.decode()
        except UnicodeDecodeError as error:
            raise Skippable(f"row key {part.hex()} is not UTF-8: set unique_key: hex") from error
        return text.replace("-", "\\-") if within else text
