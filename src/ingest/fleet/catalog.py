"""The map: which databases, tables and columns agents see, as far as their hosts' owners let them tell; pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from ingest.fleet.frames import unzipped, zipped

_UNPACKED = 12 * 1024 * 1024  # bytes of one database's map: the topic takes records of 16 MiB


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSeen:
    """One table: about how many rows it has (None: the server does not say), and its columns with their types."""

    name: str
    rows: int | None
    columns: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseSeen:
    """One database behind a connection of an agent's."""

    agent: str
    connection: str
    database: str
    tables: tuple[TableSeen, ...]

    def to_json(self) -> dict[str, Any]:
        """As it is sent and stored; inverse of `database_of`."""
        tables = [
            {"name": one.name, "rows": one.rows, "columns": [list(c) for c in one.columns]} for one in self.tables
        ]
        return {"database": self.database, "tables": tables}


def database_of(reported: Mapping[str, Any], agent: str, connection: str) -> DatabaseSeen:
    """Read what an agent tells; KeyError, TypeError or ValueError when it is none."""
    tables = []
    for one in reported["tables"]:
        rows, name = one["rows"], one["name"]
        if not isinstance(name, str) or not (rows is None or isinstance(rows, int)):
            raise ValueError("a table's name is a text, its rows are a number")
        tables.append(TableSeen(name=name, rows=rows, columns=tuple((str(n), str(t)) for n, t in one["columns"])))
    if not isinstance(reported["database"], str):
        raise ValueError("a database's name is a text")
    return DatabaseSeen(agent=agent, connection=connection, database=reported["database"], tables=tuple(tables))


def packed(seen: DatabaseSeen) -> bytes:
    """A database's map as it is sent, to be cut."""
    return zipped(orjson.dumps(seen.to_json()))


def unpacked(content: bytes, agent: str, connection: str) -> DatabaseSeen:
    """Inverse of `packed`; LookupError, TypeError or ValueError where it is none."""
    return database_of(orjson.loads(unzipped(content, _UNPACKED)), agent, connection)
