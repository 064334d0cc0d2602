"""Write rows of a SELECT directly as JSON: the key and the image of a record, without a dict of values.

A function is generated for each table, as for the rows of a binlog. It gives the same bytes as `orjson.dumps` of the
canonical values. A row with a value that has no canonical form raises ValueError; such rows are read value by value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import orjson

# How a column's bytes become JSON: a number as it is; text in UTF-8; text without characters that JSON escapes; by a
# function that returns JSON.
Form = Literal["number", "text", "quoted", "function"]
_FORMS: dict[Form, str] = {
    "number": "{0}",
    "text": "dumps({0}.decode())",
    "quoted": "b'\"%b\"' % {0}",
    "function": "f{1}({0})",
}


class EncodedRow(NamedTuple):
    """A row that a snapshot read: its record key and its image, as JSON."""

    key: bytes
    image: bytes


class ColumnForm(NamedTuple):
    """Describes how the values of one column are written."""

    name: str
    form: Form
    function: Callable[[bytes], bytes] | None = None


RowFunction = Callable[[Sequence[bytes | None]], EncodedRow]


@lru_cache(256)  # each chunk of a table asks for its function
def row_function(columns: tuple[ColumnForm, ...], key: tuple[str, ...]) -> RowFunction:
    """Return the function from a row's values, in the order of the columns, to its key and image.

    `key` are the names of the key's columns, in their order in a record key.
    """
    at = {column.name: number for number, column in enumerate(columns)}
    names = ", ".join(f"c{number}" for number in range(len(columns)))
    lines = [f"def write(row):\n    {names}, = row"]
    for number, column in enumerate(columns):
        written = _FORMS[column.form].format(f"c{number}", number)
        lines.append(f"    c{number} = null if c{number} is None else {written}")
    keys = ", ".join(f"c{at[name]}" for name in key)
    lines.append(f"    return new(Encoded, (key % ({keys},), image % ({names},)))")
    scope: dict[str, Any] = {
        "null": b"null", "dumps": orjson.dumps, "Encoded": EncodedRow, "new": tuple.__new__,
        "key": _template(key), "image": _template([column.name for column in columns]),
    }  # fmt: skip
    scope |= {f"f{number}": column.function for number, column in enumerate(columns)}
    exec("\n".join(lines), scope)  # only numbers of columns are in the text
    found: RowFunction = scope["write"]
    return found


def _template(names: Sequence[str]) -> bytes:
    members = (orjson.dumps(name).replace(b"%", b"%%") + b":%b" for name in names)
    return b"{" + b",".join(members) + b"}"
