"""Read columns and values of a stream: exactly from a Tailorbird server, with MaxScale's losses from a real MaxScale.

In a schema line of MaxScale, sequences have type int; in one of Tailorbird, long. MaxScale's JSON cannot represent some
values (MaxScale 24.02, `maxavro_record.cc` and `rpl.cc`):

    BIT            always 0: refused
    BLOB, BINARY   a text if the bytes are UTF-8, otherwise their hex: refused if it may be either
    "" of BLOB and TEXT    one NUL: read as empty
    ENUM, SET      the number in hex without the members: published as that text
    DECIMAL        a double: published as its text
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping
from typing import Any

from cdc.formats.maxscale import columns_reported
from cdc.model.filters import TableRule
from cdc.model.types import from_mysql
from ingest.binlog.format.canonical import Unrepresentable
from ingest.ddl.catalog import ColumnDefinition, Key, TableDefinition
from ingest.mirror.topics import TableReads
from ingest.mirror.values import Read, reader_of, text

_HEX = re.compile(r"([0-9a-f]{2})+")
_NUL = "\0"


def reads_reported(line: Mapping[str, Any], rule: TableRule) -> TableReads:
    """Return a table's columns and value readers from a schema line.

    Raises KeyError, ValueError or TypeError if the line is malformed.
    """
    columns, reads = [], list[tuple[str, Read]]()
    key, reader = rule.message_key_columns, _reader_of(line)
    for name, kind in columns_reported(line["fields"]):
        if rule.leaves_out(name):
            continue
        columns.append(ColumnDefinition(name=name, column_type=kind, nullable=name not in key, charset=None))
        reads.append((name, reader(kind)))
    keys = (Key(name="PRIMARY", kind="primary", columns=key),)
    return TableReads(TableDefinition(columns=tuple(columns), keys=keys), tuple(reads))


def _reader_of(line: Mapping[str, Any]) -> Callable[[str], Read]:
    kinds = {field["name"]: field.get("type") for field in line["fields"]}
    return _of_maxscale if kinds.get("sequence") == "int" else _of_tailorbird


def _of_tailorbird(column_type: str) -> Read:
    match from_mysql(column_type).kind:
        case "bytes":
            return lambda value: base64.b64encode(text(value).encode("latin-1")).decode()
        case "string":
            return _as_text
    return reader_of(column_type)


def _of_maxscale(column_type: str) -> Read:
    if column_type.startswith("bit"):
        return _no_bit
    match from_mysql(column_type).kind:
        case "bytes":
            return _bytes
        case "string":
            return lambda value: "" if value == _NUL else _as_text(value)
    return reader_of(column_type)


def _as_text(value: Any) -> str:
    """Return a text; MaxScale sends numbers for DECIMAL."""
    return value if isinstance(value, str) else str(value)


def _no_bit(value: Any) -> str:
    raise Unrepresentable("a MaxScale sends 0 for every BIT: add the column to ignored_columns")


def _bytes(value: Any) -> str:
    if (content := text(value)) == _NUL:
        return ""
    if _HEX.fullmatch(content) and not _is_text(bytes.fromhex(content)):
        raise Unrepresentable(f"{content[:40]!r} may be a text or the hex of bytes: a MaxScale sends both in this form")
    return base64.b64encode(content.encode()).decode()


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
