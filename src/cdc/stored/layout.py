"""Stored layout of a joined table, which turns its bytes back into typed columns.

A layout is a record in `<topology>:layouts` (row `layout/<table>/<id, 6 digits>`, column `f:json`). Every row of the
joined table contains the id. The indexer needs only the layout to read the bytes.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import orjson

from cdc.model.types import Canonical, LogicalType, parse_type

FORMATS = (1, 2)  # 2 if a key column may be NULL: programs that know only format 1 refuse it
LAYOUTS_FAMILY = b"f"
LAYOUT_QUALIFIER = b"json"


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutColumn:
    """One column: its name in the query's result, its type, and the source column it comes from (only shown to people).

    `members`: the value is a comma-separated list (a SET), which an index counts and filters by member.
    """

    name: str
    type: LogicalType
    origin: str
    members: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The columns of a table in order, the format of its row keys, and the number of its salt buckets (= regions).

    `topology` and `table` name it, `id` counts its versions from 1, `family` is the one column family. Qualifiers are
    the column names in UTF-8. `row_key` names the columns that form the key, in order; `nullable_key` those of them
    that may be NULL, which a byte in the key indicates (`cdc.stored.cells`).
    """

    topology: str
    table: str
    id: int
    family: str
    columns: tuple[LayoutColumn, ...]
    row_key: tuple[str, ...]
    salt_buckets: int
    nullable_key: tuple[str, ...] = ()

    @property
    def format(self) -> int:
        """Return the lowest format number that can represent this layout, so that the oldest possible programs can read
        it."""
        return 2 if self.nullable_key else 1

    def may_hold(self, row_key: Sequence[Canonical]) -> bool:
        """Return whether a row may have this key: NULL only in nullable columns."""
        return None not in row_key or all(
            value is not None or name in self.nullable_key for name, value in zip(self.row_key, row_key, strict=True)
        )

    def same_shape(self, other: Layout) -> bool:
        """Return whether rows written under either layout read alike; ids and source columns are not compared."""
        own, theirs = ([(column.name, column.type) for column in one.columns] for one in (self, other))
        return (own, self.same_keys(other), self.family) == (theirs, True, other.family)

    def same_keys(self, other: Layout) -> bool:
        """Return whether a row has the same HBase row key under either layout."""
        return (self.row_key, self.nullable_key, self.salt_buckets) == (
            other.row_key,
            other.nullable_key,
            other.salt_buckets,
        )


def layout_row(table: str, layout_id: int) -> bytes:
    """Return the row key of a stored layout. Keys sort by id, so the last row of the table's prefix is the newest."""
    return f"layout/{table}/{layout_id:06d}".encode()


def layout_rows_prefix(table: str) -> bytes:
    """Return the prefix of all layouts of a table."""
    return f"layout/{table}/".encode()


def timestamp_row(table: str, query_id: str, batch: int) -> bytes:
    """Return the row key under which a batch's timestamp is stored: column `f:stamp`, 8 bytes big-endian,
    milliseconds."""
    return f"stamp/{table}/{query_id}/{batch:012d}".encode()


def repairs_row(table: str) -> bytes:
    """Return the row key under which the repairs of a table are counted: column `f:count`, 8 bytes big-endian."""
    return f"repairs/{table}".encode()


def dump_layout(layout: Layout) -> bytes:
    """Return the stored form, JSON in UTF-8; inverse of `load_layout`."""
    return json.dumps(
        {
            "format": layout.format,
            "topology": layout.topology,
            "table": layout.table,
            "id": layout.id,
            "family": layout.family,
            "columns": [
                {"name": c.name, "type": str(c.type), "origin": c.origin, **({"members": True} if c.members else {})}
                for c in layout.columns
            ],
            "row_key": list(layout.row_key),
            "salt_buckets": layout.salt_buckets,
            **({"nullable_key": list(layout.nullable_key)} if layout.nullable_key else {}),
        },
        separators=(",", ":"),
    ).encode()


def load_layout(stored: bytes) -> Layout:
    """Read a stored layout. Raises KeyError or ValueError if it is not one of a known format."""
    value = orjson.loads(stored)
    if value["format"] not in FORMATS:
        raise ValueError(f"layout of format {value['format']}, this version reads up to format {FORMATS[-1]}")
    return Layout(
        topology=value["topology"],
        table=value["table"],
        id=value["id"],
        family=value["family"],
        columns=tuple(
            LayoutColumn(
                name=c["name"], type=parse_type(c["type"]), origin=c["origin"], members=c.get("members", False)
            )
            for c in value["columns"]
        ),
        row_key=tuple(value["row_key"]),
        salt_buckets=value["salt_buckets"],
        nullable_key=tuple(value.get("nullable_key", ())),
    )
