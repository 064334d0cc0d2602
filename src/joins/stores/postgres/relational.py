"""Columns and values of a joined table in PostgreSQL: a type for each logical type, and the text of each value.

Both directions use the text form of PostgreSQL's types, as COPY reads them and `column::text` shows them in a session
of `joins.stores.postgres.pg_server`. A value must also fit HBase's encoding (`cdc.stored.values`), so that every sink
stores and refuses the same rows.
"""

from __future__ import annotations

import base64
import re
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import orjson

from cdc.model.errors import UsageError
from cdc.model.types import Canonical, LogicalType, Member, float_of
from cdc.stored.layout import Layout
from cdc.stored.values import decoder, encoder

# An entry of a btree index has at most 2,704 bytes. Rows with a longer key are dead letters.
LONGEST_KEY = 2_500
LONGEST_NAME = 63
# Columns of every table: the row key if a column of it may be NULL, the batch and its timestamp, the commit's time,
# and the trace (`cdc.stored.traces`). In staged rows also: the attempt, and whether the row is deleted.
KEY, BATCH, TIMESTAMP, COMMITTED, TRACE = "_key", "_batch", "_timestamp", "_ts", "_from"
ATTEMPT, GONE = "_attempt", "_gone"
_OWN = {KEY, BATCH, TIMESTAMP, COMMITTED, TRACE, ATTEMPT, GONE}
_SYSTEM = {"tableoid", "xmin", "cmin", "xmax", "cmax", "ctid"}

_TYPES = {
    "bool": "boolean", "int8": "smallint", "int16": "smallint", "int32": "integer", "int64": "bigint",
    "uint64": "numeric(20,0)", "float32": "real", "float64": "double precision", "date": "date",
    "datetime": "timestamp", "timestamp": "timestamptz", "time": "interval", "string": "text", "json": "json",
    "bytes": "bytea", "point": "text", "geometry": "text",
}  # fmt: skip
_TIME = re.compile(r"-?\d{2,}:[0-5]\d:[0-5]\d(\.\d{0,5}[1-9])?")
ToText = Callable[[Canonical], str]
FromText = Callable[[str], Canonical]


def column_type(type_: LogicalType, *, in_key: bool = False) -> str:
    """Return the type of a column in PostgreSQL. Texts in a key compare by bytes, JSON in a key is a text."""
    if type_.element is not None:
        return f"{column_type(type_.element)}[]"
    if type_.kind == "decimal":
        return f"numeric({type_.precision},{type_.scale})" if type_.precision else "numeric"
    if in_key and type_.kind in ("string", "json", "point", "geometry"):
        return 'text COLLATE "C"'
    return _TYPES[type_.kind]


def to_text(type_: LogicalType) -> ToText:
    """Return a function from a canonical value (not None) to PostgreSQL's text. It raises ValueError, TypeError,
    OverflowError or struct.error for a value that is not of the type."""
    if type_.element is not None:
        member, check = to_text(type_.element), encoder(type_)

        def listed(value: Canonical) -> str:
            check(value)
            assert isinstance(value, list)
            return "{" + ",".join(_quoted(member(one)) for one in value) + "}"

        return listed
    encode, decode, write = encoder(type_), decoder(type_), _WRITTEN.get(type_.kind, str)
    return lambda value: write(decode(encode(value)))


def from_text(type_: LogicalType) -> FromText:
    """Return a function from the text of `shown` to a canonical value; inverse of `to_text`."""
    if type_.element is not None:
        member = from_text(type_.element)
        return lambda text: _members(member, text)
    return _READ.get(type_.kind, str)


def _members(read: FromText, text: str) -> list[Member]:
    return [read(one) for one in orjson.loads(text)]  # type: ignore[misc]  # members are no lists and not NULL


def shown(column: str, type_: LogicalType) -> str:
    """Return the SQL of a column's text, for `from_text`. `column` is the quoted name."""
    return f"to_json({column}::text[])::text" if type_.element is not None else f"{column}::text"


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _text(value: Canonical) -> str:
    text = str(value)
    if "\0" in text:
        raise ValueError("PostgreSQL's texts cannot contain the character U+0000")
    return text


def _time(value: Canonical) -> str:
    text = str(value)
    if not _TIME.fullmatch(text):
        raise ValueError(f"{text!r} is not a time")
    return text


def _single(text: str) -> Canonical:
    return float_of(struct.unpack(">f", struct.pack(">f", float(text)))[0])


_WRITTEN: dict[str, ToText] = {
    "float32": lambda value: str(value) if isinstance(value, str) else repr(value),
    "float64": lambda value: str(value) if isinstance(value, str) else repr(value),
    "date": lambda value: str(value)[:-1],
    "datetime": lambda value: str(value)[:-1],
    "timestamp": lambda value: str(value)[:-1] + "+00",
    "time": _time,
    "string": _text,
    "json": _text,
    "point": _text,
    "geometry": _text,
    "bytes": lambda value: "\\x" + base64.b64decode(str(value)).hex(),
}
_READ: dict[str, FromText] = {
    "bool": lambda text: text == "true" or text == "t",
    **dict.fromkeys(("int8", "int16", "int32", "int64", "uint64"), int),
    "float32": _single,
    "float64": lambda text: float_of(float(text)),
    "date": lambda text: text + "Z",
    "datetime": lambda text: text.replace(" ", "T") + "Z",
    "timestamp": lambda text: text.replace(" ", "T").removesuffix("+00") + "Z",
    "bytes": lambda text: base64.b64encode(bytes.fromhex(text[2:])).decode(),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredColumn:
    """A column of a table in PostgreSQL: its name, its quoted name and its type there."""

    name: str
    quoted: str
    type: str


def columns_of(layout: Layout) -> list[StoredColumn]:
    """Return the columns of a table. Raises UsageError for a name that PostgreSQL does not allow."""
    found = []
    for column in layout.columns:
        if column.name in _OWN | _SYSTEM or len(column.name.encode()) > LONGEST_NAME or "\0" in column.name:
            what = f"table {layout.table}: PostgreSQL cannot have a column {column.name[:100]!r}"
            raise UsageError(what, "give it another name in the query: AS …")
        type_ = column_type(column.type, in_key=column.name in layout.row_key)
        found.append(StoredColumn(name=column.name, quoted=quoted(column.name), type=type_))
    return found


def key_of(layout: Layout) -> Sequence[str]:
    """Return the columns that identify a row: those of the row key, or `_key` if one of them may be NULL."""
    return (KEY,) if layout.nullable_key else layout.row_key


def quoted(name: str) -> str:
    """Return a name as a quoted identifier of SQL."""
    return '"' + name.replace('"', '""') + '"'
