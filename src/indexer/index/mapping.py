"""Convert row changes to Solr documents with the stored layout alone; and list the fields that a layout needs.

    kind                            field of the column's name                      query field (`_q_<column>`)
    bool                            boolean
    int8 int16 int32                pint
    int64                           plong
    float32 float64                 pdouble
    uint64                          string, as plong ends at 2^63
    decimal                         string, as pdouble rounds                       pdouble
    date datetime timestamp         string, as Solr's dates end at milliseconds     pdate
    time                            string
    string                          exact (any length; solr/configset/conf/managed-schema.xml)
    json bytes                      stored (shown, never filtered by)
    point geometry                  exact (its EWKT)                                location (`_l_<column>`) of a point

`_l_<column>` contains "latitude,longitude" of points on earth (`cdc.model.geometry.location_of`).
A list has the fields of its element, each with several values: its members, to count, filter and search by. An empty
list is an absent field, like NULL.
A SET is a string whose members are separate values of `_m_<column>` (string, several values), to count and filter by.
The stored field contains the canonical value (cdc.model.types), except for a date, which has no `Z`, and a float32,
which is the shortest number that is read back as the same one (1.1, if the canonical value is 1.100000023841858).
Columns of `search` are also analysed as words (`_t_<column>`).
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from cdc.model.errors import Skippable
from cdc.model.geometry import location_of
from cdc.model.types import Canonical, Kind, LogicalType
from cdc.stored import fields
from cdc.stored.cells import BATCH, NULLS, TS, Barrier, document_id
from cdc.stored.layout import Layout, LayoutColumn
from cdc.stored.values import decoder
from indexer.index.collapse import RowChange

Value = bool | int | float | str
Document = dict[str, Value | list[Value]]

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
    "point": "exact",
    "geometry": "exact",
}
_QUERY_TYPES: dict[Kind, str] = {"decimal": "pdouble", "date": "pdate", "datetime": "pdate", "timestamp": "pdate"}
_MILLISECONDS = len("2017-09-15T10:12:00.123")


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """A field that the collection's schema must have. `type` is a name in the configset's schema, `many` means
    several values.

    `stored`: Solr returns the value in results."""

    name: str
    type: str
    stored: bool
    many: bool = False


LOCATION = "location"
# Types of fields that the configset of older collections lacks.
LATER_TYPES = {LOCATION: {"name": LOCATION, "class": "solr.LatLonPointSpatialField", "docValues": True}}
# Tailorbird's fields that the configset of older collections lacks.
LATER_FIELDS = (Field(name=fields.INCOMPLETE, type="plong", stored=True),)


def fields_of(layout: Layout, search: Iterable[str]) -> tuple[Field, ...]:
    """Return the fields that documents of a layout use, in addition to those of every new collection."""
    found: list[Field] = []
    for column in layout.columns:
        kind, many = column.type.member.kind, column.type.kind == "list"
        found.append(Field(name=column.name, type=_FIELD_TYPES[kind], stored=True, many=many))
        if kind in _QUERY_TYPES:
            found.append(Field(name=fields.query_field(column.name), type=_QUERY_TYPES[kind], stored=False, many=many))
        if column.name in search:
            found.append(Field(name=fields.words_field(column.name), type="words", stored=False, many=many))
        if kind == "point":
            found.append(Field(name=fields.location_field(column.name), type=LOCATION, stored=False))
        if column.members:
            found.append(Field(name=fields.members_field(column.name), type="string", stored=False, many=True))
    return tuple(found)


def _solr_date(canonical: str) -> str:
    """Convert a canonical date or datetime to the format of Solr's pdate: UTC, milliseconds at most."""
    text = canonical[:-1]
    return (text[:_MILLISECONDS] if "T" in text else f"{text}T00:00:00") + "Z"


def _float(value: Canonical) -> Value:
    # JSON cannot represent these numbers, and writers silently turn them into null
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value  # type: ignore[return-value]  # NULL never comes here


_SINGLE = struct.Struct(">f")


def _shortest(value: Canonical) -> Value:
    # the shortest form: nine digits distinguish all float32, and fewer are enough for most
    if not isinstance(value, float) or not math.isfinite(value):
        return _float(value)
    bits = _SINGLE.pack(value)
    for digits in range(6, 9):
        short = float(f"{value:.{digits}g}")
        if abs(short) <= _GREATEST and _SINGLE.pack(short) == bits:
            return short
    return float(f"{value:.9g}")


_GREATEST = _SINGLE.unpack(b"\x7f\x7f\xff\xff")[0]


def _day(value: Canonical) -> Value:
    return str(value).removesuffix("Z")


# uint64 as str: Solr's JSON reader would round a number beyond 2^63
_EXACT: dict[Kind, Callable[[Canonical], Value]] = {
    "float32": _shortest, "float64": _float, "uint64": str, "date": _day,
}  # fmt: skip
_LONG = struct.Struct(">q").unpack

Writer = Callable[[Document, bytes], None]


def _writer(column: LayoutColumn, *, queried: bool) -> Writer:
    """Return a function that decodes a cell and writes the Solr fields of its column.

    `queried` adds the field that queries use. Not called for `string` columns, which are decoded in bulk."""
    name, kind, decode = column.name, column.type.member.kind, decoder(column.type)
    exact, query, located = _EXACT.get(kind), fields.query_field(column.name), fields.location_field(column.name)

    def plain(document: Document, stored: bytes) -> None:
        document[name] = decode(stored)  # type: ignore[assignment]  # NULL never comes here

    def exactly(document: Document, stored: bytes) -> None:
        document[name] = exact(decode(stored))  # type: ignore[misc]  # chosen below only where there is one

    def decimal(document: Document, stored: bytes) -> None:
        document[name] = text = str(decode(stored))
        document[query] = float(text)

    def date(document: Document, stored: bytes) -> None:
        text = str(decode(stored))
        document[name] = exact(text) if exact else text
        document[query] = _solr_date(text)

    def point(document: Document, stored: bytes) -> None:
        document[name] = text = str(decode(stored))
        if place := location_of(text):
            document[located] = f"{place[0]!r},{place[1]!r}"

    def members(document: Document, stored: bytes) -> None:
        if found := decode(stored):
            assert isinstance(found, list)
            document[name] = [solr_value(kind, member) for member in found]
            if queried and kind in _QUERY_TYPES:
                document[query] = [float(member) if kind == "decimal" else _solr_date(str(member)) for member in found]

    if column.type.kind == "list":
        return members
    if queried and kind == "point":
        return point
    if queried and kind in _QUERY_TYPES:
        return decimal if kind == "decimal" else date
    return exactly if exact else plain


def solr_type(kind: Kind) -> str:
    """Return the Solr field type that stores every value of a kind without loss."""
    return _FIELD_TYPES[kind]


def solr_value(kind: Kind, value: Canonical) -> Value:
    """Convert a canonical value (not NULL) to the value that its Solr field stores."""
    exact = _EXACT.get(kind)
    return exact(value) if exact else value  # type: ignore[return-value]  # NULL never comes here


def indexed_row(types: Mapping[str, LogicalType], row: Mapping[str, Canonical]) -> dict[str, Canonical]:
    """Convert a row of canonical values to the values of its document. Columns that `types` lacks stay as they are."""
    return {name: _indexed(types[name], value) if name in types else value for name, value in row.items()}


def _indexed(type_: LogicalType, value: Canonical) -> Canonical:
    if isinstance(value, list):
        # Solr cannot represent an empty list
        return [solr_value(type_.member.kind, member) for member in value] or None
    return None if value is None else solr_value(type_.kind, value)


class Mapper:
    """Converts rows of one layout to documents. Built once per layout and index. Threads may share it.

    Every row passes through it, so the constructor groups the columns by the work that they need. Strings, the
    majority, are decoded in one loop. With `queried=False`, documents have only the stored fields."""

    def __init__(self, layout: Layout, search: Iterable[str], *, queried: bool = True) -> None:
        self.layout = layout
        self.fields = fields_of(layout, set(search))
        wanted = set(search) if queried else set()
        self._texts = [(c.name.encode(), c.name) for c in layout.columns if c.type.kind == "string"]
        others = [column for column in layout.columns if column.type.kind != "string"]
        self._others = [(column.name.encode(), _writer(column, queried=queried)) for column in others]
        self._words = [(c.name, fields.words_field(c.name)) for c in layout.columns if c.name in wanted]
        self._members = [(c.name, fields.members_field(c.name)) for c in layout.columns if c.members and queried]
        self._qualifiers = [column.name.encode() for column in layout.columns]
        self._layout_id = layout.id

    def document(self, change: RowChange, *, now_ms: int) -> Document:
        """Return the document of a live row. Raises Skippable if its cells are not a whole row of the layout."""
        cells = change.cells
        try:
            document: Document = {
                fields.UNIQUE_KEY: document_id(change.row),
                fields.FENCE: change.version,
                fields.KIND: fields.ROW,
                fields.TS: _LONG(cells[TS])[0],
                fields.INDEXED_AT: now_ms,
                fields.BATCH: _LONG(cells[BATCH])[0],
                fields.LAYOUT: self._layout_id,
            }
            nulls = self._null_columns(cells[NULLS])
            for qualifier, name in self._texts:
                stored = cells[qualifier]  # also for NULL: a row that lacks a cell is not whole
                if qualifier not in nulls:
                    document[name] = stored.decode()
            for qualifier, write in self._others:
                stored = cells[qualifier]
                if qualifier not in nulls:
                    write(document, stored)
        except KeyError as error:
            name = error.args[0].decode(errors="replace")
            raise Skippable(f"not a whole row: cell {name} of layout {self.layout.id} is missing") from error
        except (ValueError, OverflowError, IndexError, struct.error) as error:
            raise Skippable(f"cells that layout {self.layout.id} cannot read: {error}") from error
        for name, words in self._words:
            value = document.get(name)
            if value is not None:
                document[words] = [str(member) for member in value] if isinstance(value, list) else str(value)
        for name, members in self._members:
            if text := document.get(name):
                document[members] = [*str(text).split(",")]
        return document

    def _null_columns(self, bitmap: bytes) -> frozenset[bytes]:
        """Return the qualifiers of the columns that are NULL: those whose bit is set in `bitmap`.

        Raises IndexError if the bitmap is shorter than the layout."""
        if len(bitmap) * 8 < len(self._qualifiers):
            raise IndexError(f"cell {NULLS.decode()} has {len(bitmap)} bytes")
        if not any(bitmap):
            return frozenset()
        return frozenset(q for i, q in enumerate(self._qualifiers) if bitmap[i >> 3] >> (i & 7) & 1)


def _text(value: Value) -> Value:
    return ("true" if value else "false") if isinstance(value, bool) else str(value)


def _whole(bits: int) -> Callable[[Value], Value]:
    def convert(value: Value) -> Value:
        number = int(value)
        if (number != value and str(number) != value) or not -(1 << bits - 1) <= number < 1 << bits - 1:
            raise ValueError(f"{value!r} is not a whole number of {bits} bits")
        return number

    return convert


def _truth(value: Value) -> Value:
    if value not in (True, False, "true", "false"):
        raise ValueError(f"{value!r} is neither true nor false")
    return value in (True, "true")


def _instant(value: Value) -> Value:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not a time")
    return value


# Conversions of values for a field of another type; ValueError if a value does not fit.
CONVERSIONS: dict[str, Callable[[Value], Value]] = {
    "exact": _text,
    "string": _text,
    "stored": _text,
    LOCATION: _text,
    "words": _text,
    "pint": _whole(32),
    "plong": _whole(64),
    "pdouble": float,
    "boolean": _truth,
    "pdate": _instant,
}


def fitted(value: Value | list[Value], type_: str, many: bool) -> Value | list[Value]:
    """Convert a value, or each member of a list, for a field of Solr type `type_`.

    Unless the field holds several values (`many`), a list must have one member, which is returned alone. Raises
    ValueError or OverflowError if a value does not fit, and KeyError for a type that is not in `CONVERSIONS`.
    """
    if not isinstance(value, list):
        return CONVERSIONS[type_](value)
    if not many and len(value) != 1:
        raise ValueError(f"{len(value)} values")
    converted = [CONVERSIONS[type_](member) for member in value]
    return converted if many else converted[0]


def tombstone(change: RowChange) -> Document:
    """Return the document that replaces a deleted row: its key, and the version that a later document must exceed."""
    return {fields.UNIQUE_KEY: document_id(change.row), fields.FENCE: change.version}


def barrier_document(barrier: Barrier, version: int, *, now_ms: int) -> Document:
    """Return the barrier of one salt bucket. Once queries see it, they see this batch and all earlier ones of the
    bucket."""
    return {
        fields.UNIQUE_KEY: fields.barrier_id(barrier.bucket),
        fields.FENCE: version,
        fields.KIND: fields.BARRIER,
        fields.TIMESTAMP: barrier.timestamp,
        fields.BATCH: barrier.batch,
        fields.BUCKETS: barrier.buckets,
        fields.INCOMPLETE: barrier.incomplete,
        fields.POSITIONS: json.dumps(dict(barrier.positions), separators=(",", ":")),
        fields.INDEXED_AT: now_ms,
    }
