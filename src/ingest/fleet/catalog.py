"""Catalog of a fleet: the databases, tables and columns that agents see and that their policies allow them to
report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from ingest.fleet.frames import unzipped, zipped

_UNPACKED = 12 * 1024 * 1024  # bytes of one database's catalog: the topic accepts records of 16 MiB


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSeen:
    """One table: its estimated number of rows (None: unknown), and its columns with their types."""

    name: str
    rows: int | None
    columns: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseSeen:
    """One database of a connection, as its agent reports it."""

    agent: str
    connection: str
    database: str
    tables: tuple[TableSeen, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form for messages and the topic; inverse of `database_of`."""
        tables = [
            {"name": one.name, "rows": one.rows, "columns": [list(c) for c in one.columns]} for one in self.tables
        ]
        return {"database": self.database, "tables": tables}


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
    return DatabaseSeen(agent=agent, connection=connection, database=value["database"], tables=tuple(tables))


def packed(seen: DatabaseSeen) -> bytes:
    """Return the catalog of a database as compressed bytes, which the agent then sends in parts."""
    return zipped(orjson.dumps(seen.to_json()))


def unpacked(content: bytes, agent: str, connection: str) -> DatabaseSeen:
    """Decode a compressed catalog; inverse of `packed`. Raises LookupError, TypeError or ValueError if it is
    malformed."""
    return database_of(orjson.loads(unzipped(content, _UNPACKED)), agent, connection)
