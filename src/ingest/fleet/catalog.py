"""Catalog of a fleet: the databases, tables and columns that agents see and that their policies allow them to
report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import orjson

from ingest.fleet.desired import TYPES
from ingest.fleet.frames import unzipped, zipped

_UNPACKED = 12 * 1024 * 1024  # bytes of one database's catalog: the topic accepts records of 16 MiB
_AROUND = 2048  # bytes of a catalog besides its tables: its name may have 64 characters of any kind


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSeen:
    """One table: its estimated number of rows (None: unknown), and its columns with their types."""

    name: str
    rows: int | None
    columns: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseSeen:
    """One database of a connection, as its agent reports it.

    `omitted` says what of it is too large to be reported. `type` is that of sources that capture it.
    """

    agent: str
    connection: str
    database: str
    tables: tuple[TableSeen, ...]
    omitted: str = ""
    type: str = "mysql"

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form for messages and the topic; inverse of `database_of`."""
        tables = [
            {"name": one.name, "rows": one.rows, "columns": [list(c) for c in one.columns]} for one in self.tables
        ]
        found: dict[str, Any] = {"database": self.database, "tables": tables}
        found |= {"omitted": self.omitted} if self.omitted else {}
        return found if self.type == "mysql" else {**found, "type": self.type}


def database_of(value: Mapping[str, Any], agent: str, connection: str) -> DatabaseSeen:
    """Decode a database that an agent reports. Raises KeyError, TypeError or ValueError if it is malformed."""
    tables = []
    for one in value["tables"]:
        rows, name = one["rows"], one["name"]
        if not isinstance(name, str) or not (rows is None or isinstance(rows, int)):
            raise ValueError("a table's name must be a string, and its rows a number")
        tables.append(TableSeen(name=name, rows=rows, columns=tuple((str(n), str(t)) for n, t in one["columns"])))
    if not isinstance(value["database"], str):
        raise ValueError("a database's name must be a string")
    omitted = value.get("omitted", "")
    if not isinstance(omitted, str):
        raise ValueError("what is omitted must be a string")
    kind = value.get("type", "mysql")
    if kind not in TYPES:
        raise ValueError(f"a database's type must be one of {', '.join(TYPES)}")
    return DatabaseSeen(
        agent=agent, connection=connection, database=value["database"], tables=tuple(tables), omitted=omitted[:200],
        type=kind,
    )  # fmt: skip


def fitting(seen: DatabaseSeen, most: int = _UNPACKED) -> DatabaseSeen:
    """Return the catalog of a database so that it has at most `most` bytes: without the columns of its tables, and if
    that is not enough, without its last tables. `omitted` then says so."""
    if len(orjson.dumps(seen.to_json())) <= most:
        return seen
    bare = tuple(replace(table, columns=()) for table in seen.tables)
    sizes = [len(orjson.dumps({"name": table.name, "rows": table.rows, "columns": []})) + 1 for table in bare]
    left, kept = most - _AROUND, 0
    while kept < len(bare) and sizes[kept] <= left:
        left -= sizes[kept]
        kept += 1
    what = f"the catalog is larger than {most} bytes: the columns of its tables are not listed"
    if kept < len(bare):
        what += f", and {len(bare) - kept} of {len(bare)} tables"
    return replace(seen, tables=bare[:kept], omitted=what)


def packed(seen: DatabaseSeen) -> bytes:
    """Return the catalog of a database as compressed bytes, which the agent then sends in parts.

    What does not fit is omitted (`fitting`): a catalog that is too large would be refused as a whole.
    """
    return zipped(orjson.dumps(fitting(seen).to_json()))


def unpacked(content: bytes, agent: str, connection: str) -> DatabaseSeen:
    """Decode a compressed catalog; inverse of `packed`. Raises LookupError, TypeError or ValueError if it is
    malformed."""
    return database_of(orjson.loads(unzipped(content, _UNPACKED)), agent, connection)
