"""Row changes → Solr documents, through the stored layout and nothing else; and the fields that a layout asks for.

    kind                            field of the column's name                      query field (`_q_<column>`)
    bool                            boolean
    int8 int16 int32                pint
    int64                           plong
    float32 float64                 pdouble
    uint64                          string, as plong ends at 2^63
    decimal                         string, as pdouble rounds                       pdouble
    date datetime timestamp         string, as Solr's dates end at milliseconds     pdate
    time                            string
    string                          exact (any length; configset/conf/managed-schema.xml)
    json bytes                      stored (shown, never filtered by)

The stored field holds the canonical value (cdc.types); NULL is a field that is absent. Columns of `search` are analysed
as words too (`_t_<column>`).
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from cdc import fields
from cdc.cells import Barrier, RowCodec, document_id
from cdc.errors import Skippable
from cdc.layout import Layout, LayoutColumn
from cdc.types import Canonical, Kind
from indexer.collapse import RowChange

Value = bool | int | float | str
Document = dict[str, Value]

_FIELD_TYPES: dict[Kind, str] = {
    "bool": "boolean",
    "int8": "pint",
    "int16": "pint",
    "int32": "pint",
    "int64": "plong",
    "uint64": "string",
    "decimal": "string",
    "float32": "pdouble",
    "float64": "pdouble",
    "date": "string",
    "datetime": "string",
    "timestamp": "string",
    "time": "string",
    "string": "exact",
    "json": "stored",
    "bytes": "stored",
}
_QUERY_TYPES: dict[Kind, str] = {"decimal": "pdouble", "date": "pdate", "datetime": "pdate", "timestamp": "pdate"}
_MILLISECONDS = len("2017-09-15T10:12:00.123")


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """A field that the collection's schema must have; `type` is a name in the configset's schema."""

    name: str
    type: str
    stored: bool


def fields_of(layout: Layout, search: Iterable[str]) -> tuple[Field, ...]:
    """The fields that documents of a layout use, beyond those that every collection begins with."""
    found: list[Field] = []
    for column in layout.columns:
        kind = column.type.kind
        found.append(Field(name=column.name, type=_FIELD_TYPES[kind], stored=True))
        if kind in _QUERY_TYPES:
            found.append(Field(name=fields.query_field(column.name), type=_QUERY_TYPES[kind], stored=False))
        if column.name in search:
            found.append(Field(name=fields.words_field(column.name), type="words", stored=False))
    return tuple(found)


def _solr_date(canonical: str) -> str:
    """A canonical date or datetime as Solr's pdate takes it: UTC, milliseconds at most."""
    text = canonical[:-1]
    return (text[:_MILLISECONDS] if "T" in text else f"{text}T00:00:00") + "Z"


def _float(value: Canonical) -> Value:
    # JSON has no such numbers, and writers turn them into null without a word
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value  # type: ignore[return-value]  # NULL never comes here


# str: Solr's JSON reader would round a number beyond 2^63
_EXACT: dict[Kind, Callable[[Canonical], Value]] = {"float32": _float, "float64": _float, "uint64": str}


def _query_value(kind: Kind) -> Callable[[Canonical], Value]:
    if kind == "decimal":
        return lambda value: float(str(value))
    return lambda value: _solr_date(str(value))


class Mapper:
    """Documents of one layout; built once per layout and index, then called per row. Pure, so safe to share."""

    def __init__(self, layout: Layout, search: Iterable[str]) -> None:
        self.layout = layout
        self.fields = fields_of(layout, search)
        self._codec = RowCodec(layout)
        self._columns = [self._writer(column, column.name in search) for column in layout.columns]

    def document(self, change: RowChange, *, now_ms: int) -> Document:
        """The document of a row that lives; Skippable when its cells are not a whole row of the layout."""
        try:
            row = self._codec.row(change.cells)
        except KeyError as error:
            name = error.args[0].decode(errors="replace")
            raise Skippable(f"not a whole row: cell {name} of layout {self.layout.id} is missing") from error
        except (ValueError, OverflowError, IndexError, struct.error) as error:
            raise Skippable(f"cells that layout {self.layout.id} can not read: {error}") from error
        document: Document = {
            fields.UNIQUE_KEY: document_id(change.row),
            fields.FENCE: change.version,
            fields.KIND: fields.ROW,
            fields.TS: row.ts_ms,
            fields.INDEXED_AT: now_ms,
            fields.BATCH: row.batch,
            fields.LAYOUT: row.layout_id,
        }
        for name, write in self._columns:
            value = row.values[name]
            if value is not None:
                write(document, value)
        return document

    def _writer(self, column: LayoutColumn, searched: bool) -> tuple[str, Callable[[Document, Canonical], None]]:
        name, kind = column.name, column.type.kind
        exact = _EXACT.get(kind)
        query = (fields.query_field(name), _query_value(kind)) if kind in _QUERY_TYPES else None
        words = fields.words_field(name) if searched else None

        def write(document: Document, value: Canonical) -> None:
            document[name] = exact(value) if exact else value  # type: ignore[assignment]  # NULL never comes here
            if query:
                document[query[0]] = query[1](value)
            if words:
                document[words] = str(value)

        return name, write


def stub(change: RowChange) -> Document:
    """What a deleted row leaves: nothing but its key and the version that keeps older writes from bringing it back."""
    return {fields.UNIQUE_KEY: document_id(change.row), fields.FENCE: change.version}


def barrier_document(barrier: Barrier, version: int, *, now_ms: int) -> Document:
    """The document by which a query sees that a batch, and all before it, are visible in one salt bucket."""
    return {
        fields.UNIQUE_KEY: fields.barrier_id(barrier.bucket),
        fields.FENCE: version,
        fields.KIND: fields.BARRIER,
        fields.STAMP: barrier.stamp,
        fields.BATCH: barrier.batch,
        fields.BUCKETS: barrier.buckets,
        fields.POSITIONS: json.dumps(dict(barrier.positions), separators=(",", ":")),
        fields.INDEXED_AT: now_ms,
    }
