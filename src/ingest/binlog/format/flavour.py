"""Output forms of decoded values. Decoder code is generated for each combination of these choices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Flavour:
    """Output form of each family of types.

    `rows`: a dict by column name without absent columns, or a tuple with `ABSENT` in their place. `decimal`: the
    server's text, or `Decimal`. `json`: Python values (`JSON_NULL` for a null document), or JSON text. `temporal`: the
    server's text (UTC); `iso` puts a T between date and time and a Z after TIMESTAMP. `binary`: bytes, or base64 text.
    `packed` (geometries and vectors): the server's bytes. `bit`: a number. `unknown_sign`: what to do with an integer
    whose highest bit is set, if neither metadata nor a schema defines its sign. `canonical` is the form of
    `cdc.model.types`: a value without such a form, such as a zero date, raises `Unrepresentable`.
    """

    rows: Literal["dict", "tuple"] = "dict"
    decimal: Literal["text", "number"] = "text"
    json: Literal["value", "text", "canonical"] = "value"
    temporal: Literal["text", "iso", "canonical"] = "text"
    binary: Literal["bytes", "base64"] = "bytes"
    packed: Literal["bytes", "canonical"] = "bytes"
    bit: Literal["number", "canonical"] = "number"
    unknown_sign: Literal["refuse", "signed", "unsigned"] = "refuse"


NATIVE: Final = Flavour()


class Absent:
    """Type of `ABSENT`, which stands for a column that the row image does not contain; this is not NULL."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "ABSENT"


ABSENT: Final = Absent()


class EnumIndex(int):
    """An ENUM value whose labels are not known: the 1-based index, 0 for the invalid value."""


class SetMask(int):
    """A SET value whose labels are not known: bit n is the n-th label."""
