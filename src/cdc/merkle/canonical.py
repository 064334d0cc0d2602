"""Canonical text of a row, computed equally by a database's SQL and by Python, and the row's hash.

A row's text consists of the parts of its covered columns, joined by commas, in the order of the table's columns:

    form of a column       part of a value                             part of NULL
    number                 its decimal digits                          nothing
    bits                   the same of BIT(n), read as a number        nothing
    decimal, scale s       "-12.30": exactly s fractional digits       nothing
    day                    "2017-09-15"                                nothing
    moment, n digits       "2017-09-15 10:12:00.500": exactly n of them, UTC
    clock, n digits        "-12:30:00.250": likewise
    text                   "6:héllo": its length as UTF-8 in front, in bytes
    bytes                  "x00FF": x, then hex in capitals
    geometry                 the same of MySQL's bytes of it: SRID and WKB
    floats                   the same of a vector's bytes: four per number, little-endian

Only a text may contain a comma, and a text starts with its length. So no two rows have the same text. The precision is
the column's, not the value's: the database prints it so, and a row written before an ALTER reads like one written after
it.

The hash is the first half of SHA-256, 128 bits. Every server has it, and it costs hardly more than MD5, which MySQL 9.6
removed and machines in FIPS mode refuse. Columns whose text differs between servers (FLOAT, DOUBLE, JSON, unusual
character sets, masked columns) are left out; `left_out` returns the reason. `verify` compares them by value
in rows that differ in another column, except masked ones.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from hashlib import sha256
from operator import itemgetter
from struct import error as StructError
from struct import pack
from typing import Any, Literal

from cdc.model.geometry import stored_of
from cdc.model.schema import Column, TableSchema
from cdc.model.types import Canonical, Kind, Struct

FormKind = Literal["number", "bits", "decimal", "day", "moment", "clock", "text", "bytes", "geometry", "floats"]
Part = Callable[[Any], str]
_FORMS: dict[Kind, FormKind] = {
    "bool": "number", "int8": "number", "int16": "number", "int32": "number", "int64": "number", "uint64": "number",
    "decimal": "decimal", "date": "day", "datetime": "moment", "timestamp": "moment", "time": "clock",
    "string": "text", "bytes": "bytes", "point": "geometry", "geometry": "geometry", "list": "floats",
}  # fmt: skip
# Character sets for which tests have compared the servers' conversion to UTF-8 with that of the log's decoder.
CHARSETS = frozenset(
    "armscii8 ascii big5 cp1250 cp1251 cp1256 cp1257 cp850 cp852 cp866 cp932 dec8 eucjpms euckr gb18030 gb2312 gbk"
    " geostd8 greek hebrew hp8 keybcs2 koi8r koi8u latin1 latin2 latin5 latin7 macce macroman sjis swe7 tis620 ucs2"
    " ujis utf16 utf16le utf32 utf8 utf8mb3 utf8mb4".split()
)
_DIGITS = re.compile(r"^(?:datetime|timestamp|time)\((\d)\)", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """Text form of the values of one column within a row's text. `digits` is the number of fractional digits, if any.

    `default` is the value in rows that lack the column, if `default_known`."""

    name: str
    kind: FormKind
    digits: int = 0
    default: Canonical = None
    default_known: bool = False

    def part(self) -> Part:
        """Return the function from a canonical value (not NULL) to its text within the row's text."""
        if self.kind == "number":
            return _number
        if self.kind in ("moment", "clock"):
            return _moment(self.digits) if self.kind == "moment" else _clock(self.digits)
        if self.kind == "decimal":
            return _decimal(self.digits)
        return {"bits": _bits, "day": _day, "text": _text, "bytes": _bytes, **_PACKED}[self.kind]


@dataclass(frozen=True, slots=True, kw_only=True)
class CoveredColumns:
    """Columns that the digest of a table covers, its key columns, and why each other column is left out.

    `without_grid` is the reason why the table has no digest at all; empty if it has one.
    """

    forms: tuple[Form, ...]
    key: tuple[str, ...]
    left_out: tuple[tuple[str, str], ...] = ()
    without_grid: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """Return the covered columns."""
        return tuple(form.name for form in self.forms)

    @property
    def shape(self) -> str:
        """Return a text that identifies the covered columns and formats. Digests are comparable only if their shapes
        are equal."""
        forms = ",".join(f"{form.name!r}:{form.kind}{form.digits or ''}" for form in self.forms)
        defaults = ",".join(repr(form.default) for form in self.forms if form.default_known)
        return f"3|{forms}|{','.join(map(repr, self.key))}|{defaults}"


def covered(schema: TableSchema, masked: Collection[str] = ()) -> CoveredColumns:
    """Return which columns a table's digest covers. `masked` columns are left out: the database has other values for
    them."""
    forms, out = list[Form](), list[tuple[str, str]]()
    for column in schema.columns:
        why = "it is masked" if column.name in masked else left_out(column)
        if why:
            out.append((column.name, why))
        else:
            forms.append(form_of(column))
    lost = [name for name in schema.primary_key if name in dict(out)]
    why = f"column {lost[0]} of its key is left out: {dict(out)[lost[0]]}" if lost else ""
    if not schema.primary_key:
        why = "it has no key"
    return CoveredColumns(forms=tuple(forms), key=schema.primary_key, left_out=tuple(out), without_grid=why)


def left_out(column: Column) -> str:
    """Return the reason why a column is not in digests; empty if it is."""
    kind = column.type.kind
    if kind in ("float32", "float64"):
        return "stores print floating-point numbers in different ways"
    if kind == "json":
        return "stores print JSON in different ways"
    if kind not in _FORMS:
        return f"its type {column.column_type} has no text that every store makes"
    if kind == "string" and (column.charset or "utf8mb4").lower() not in CHARSETS:
        return f"its character set {column.charset} was not compared between stores"
    return ""


def form_of(column: Column) -> Form:
    """Return the format of a column that is not left out."""
    type_, digits = column.type, 0
    kind = "bits" if column.column_type.lower().startswith("bit") and type_.kind == "bytes" else _FORMS[type_.kind]
    if kind == "decimal":
        digits = type_.scale
    elif kind in ("moment", "clock") and (match := _DIGITS.match(column.column_type)):
        digits = int(match[1])
    return Form(
        name=column.name, kind=kind, digits=digits, default=column.default, default_known=column.default_known
    )  # fmt: skip


def hash_of(text: str) -> int:
    """Return the hash of a text: the first 128 bits of its SHA-256."""
    return int.from_bytes(sha256(text.encode()).digest()[:16], "big")


class RowText:
    """Function from a row (column → canonical value) to its text and hash, for rows with these columns.

    A column that is missing in a row has its default value; `whole` returns whether all needed defaults are known.
    """

    def __init__(self, forms: Iterable[Form]) -> None:
        self._forms = tuple(forms)
        self._parts = tuple((form.name, form.part()) for form in self._forms)
        names, parts = [name for name, _ in self._parts], [part for _, part in self._parts]
        self._values: Callable[[Mapping[str, Any]], tuple[Any, ...]] = (
            itemgetter(*names) if len(names) > 1 else lambda row: tuple(row[name] for name in names)
        )
        # Python's own function of a number, without a function of ours around it
        self._fast = tuple(int.__repr__ if part is _number else part for part in parts)
        self._missing = {form.name: form.default if form.default_known else None for form in self._forms}
        self._unknown = frozenset(form.name for form in self._forms if not form.default_known)

    def __call__(self, row: Mapping[str, Canonical]) -> str:
        """Return the row's text. Raises ValueError for a value that its column cannot have."""
        try:  # the usual row, which has all columns, in a third less time
            values = zip(self._fast, self._values(row), strict=True)
            return ",".join(["" if value is None else part(value) for part, value in values])
        except (AttributeError, KeyError, TypeError, StructError):
            return self._with_defaults(row)

    def _with_defaults(self, row: Mapping[str, Canonical]) -> str:
        found = []
        name = ""
        try:
            for name, part in self._parts:
                value = row[name] if name in row else self._missing[name]
                found.append("" if value is None else part(value))
        except (AttributeError, TypeError, StructError) as error:  # such as a value of a former column of this name
            raise ValueError(f"the value of {name} does not have the column's type") from error
        return ",".join(found)

    def hash(self, row: Mapping[str, Canonical]) -> int:
        """Return the hash of the row's text, as a number of 128 bits."""
        return hash_of(self(row))

    def whole(self, row: Mapping[str, Canonical]) -> bool:
        """Return whether the row's hash can be computed: every missing column has a known default."""
        return not any(name not in row for name in self._unknown)


def _number(value: int) -> str:
    return str(int(value))


def _bits(value: str) -> str:
    return str(int.from_bytes(base64.b64decode(value), "little"))


def _day(value: str) -> str:
    return value.removesuffix("Z")


def _text(value: str) -> str:
    return f"{len(value) if value.isascii() else len(value.encode())}:{value}"


def _bytes(value: str) -> str:
    return "x" + base64.b64decode(value).hex().upper()


def _geometry(value: Struct) -> str:
    return "x" + stored_of(value).hex().upper()


def _floats(value: list[float]) -> str:
    return "x" + pack(f"<{len(value)}f", *value).hex().upper()


_PACKED: dict[str, Part] = {"geometry": _geometry, "floats": _floats}


def _decimal(scale: int) -> Part:
    def part(value: str) -> str:
        if len(value.partition(".")[2]) == scale:
            return value
        try:
            exact = Decimal(value)
            scaled = round(exact, scale)
        except (InvalidOperation, OverflowError) as error:
            raise ValueError(f"{value!r} is not a decimal number with {scale} fractional digits") from error
        return f"{scaled if scaled == exact else exact:f}"

    return part


def _padded(text: str, digits: int) -> str:
    """Pad the fraction of a time with zeros to `digits` digits. A longer fraction is not cut."""
    whole, dot, fraction = text.partition(".")
    fraction = fraction.ljust(digits, "0")
    return f"{whole}.{fraction}" if dot or digits else whole


def _moment(digits: int) -> Part:
    length = 20 + digits if digits else 19

    def part(value: str) -> str:
        text = f"{value[:10]} {value[11:].removesuffix('Z')}"
        return text if len(text) == length else _padded(text, digits)

    return part


def _clock(digits: int) -> Part:
    return lambda value: _padded(value, digits)
