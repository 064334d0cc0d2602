"""Parts of Avro object container files: a header once, then blocks, so that rows can be streamed as blocks.

The schema is MaxScale's (`cdc.formats.maxscale`). Needs fastavro (`tailorbird[formats]`). Source: Avro's specification,
"Object Container Files".
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Iterable
from importlib.util import find_spec
from typing import Any

from cdc.formats.maxscale import RowWriter, TransactionNumber, schema_line
from cdc.model.event import ChangeEvent
from cdc.model.schema import TableSchema


def avro_is_installed() -> bool:
    """Return whether fastavro is installed."""
    return find_spec("fastavro") is not None


_MAGIC = b"Obj\x01"


class AvroRows:
    """Encodes the rows of one table under one schema. Raises UsageError that names the extra if fastavro is not
    installed."""

    def __init__(self, schema: TableSchema) -> None:
        from cdc.model.extras import extras_named

        with extras_named("formats"):
            from fastavro import parse_schema, schemaless_writer
        self._schema, self._rows = schema, RowWriter(schema, binary=True)
        self._parsed: Any = parse_schema(schema_line(schema, TransactionNumber(0, 0, 0)))
        self._write = schemaless_writer
        self._sync = hashlib.md5(json.dumps(schema.to_json()).encode()).digest()

    def header(self, gtid: TransactionNumber) -> bytes:
        """Return the header of a container. Its schema contains `gtid`."""
        metadata = {"avro.schema": json.dumps(schema_line(self._schema, gtid)).encode(), "avro.codec": b"null"}
        entries = b"".join(_sized(name.encode()) + _sized(value) for name, value in metadata.items())
        return _MAGIC + _long(len(metadata)) + entries + _long(0) + self._sync

    def row(self, event: ChangeEvent) -> bytes:
        """Return the row images of a change as Avro bytes, preceded by their number as one ASCII digit.

        Returns empty bytes for a change that the format cannot represent.
        """
        rows = self._rows.rows_of(event)
        if not rows:
            return b""
        out = io.BytesIO()
        for row in rows:
            self._write(out, self._parsed, row)
        return bytes([len(rows)]) + out.getvalue()

    def block(self, rows: Iterable[bytes]) -> bytes:
        """Return one block of the container that contains the results of `row`."""
        found = list(rows)
        body = b"".join(row[1:] for row in found)
        return _long(sum(row[0] for row in found)) + _long(len(body)) + body + self._sync


def _long(value: int) -> bytes:
    """Encode a number for Avro: zigzag, seven bits per byte."""
    left, out = (value << 1) ^ (value >> 63), bytearray()
    while left > 0x7F:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*out, left])


def _sized(data: bytes) -> bytes:
    return _long(len(data)) + data
