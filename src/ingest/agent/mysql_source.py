"""A MySQL server as a source: its end, its schemas, its snapshot and its stream, each on a connection of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from cdc.event import Position
from cdc.schema import TableId, TableSchema
from cdc.topology import Source as Settings
from ingest.agent import mysql_schema
from ingest.agent.facts import Fact, Image
from ingest.agent.mysql_binlog import Binlog
from ingest.agent.mysql_connection import connected
from ingest.agent.mysql_snapshot import read_rows


class MySqlSource:
    """Implements `seams.Source`; checks the server's settings whenever it is asked for schemas."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def head(self) -> Position:
        """See `seams.Source`."""
        with connected(self._settings) as connection:
            return mysql_schema.head(connection, self._settings)

    def schemas(self, known: Mapping[TableId, TableSchema]) -> Mapping[TableId, TableSchema]:
        """See `seams.Source`; Fatal or UsageError, with the remedy, when server or tables cannot be captured."""
        with connected(self._settings) as connection:
            mysql_schema.check_server(connection, self._settings)
            return mysql_schema.table_schemas(connection, self._settings, known)

    @contextmanager
    def snapshot(self, schemas: Mapping[TableId, TableSchema]) -> Iterator[Iterator[tuple[TableSchema, list[Image]]]]:
        """See `seams.Source`."""
        with connected(self._settings) as connection:
            try:
                yield read_rows(connection, self._settings, schemas)
            finally:
                if connection.open:
                    connection._force_close()  # type: ignore[attr-defined]  # a polite close would read the rest

    @contextmanager
    def stream(self, position: Position, schemas: Mapping[TableId, TableSchema]) -> Iterator[Iterator[Fact]]:
        """See `seams.Source`; Fatal when the log no longer continues the position."""
        with connected(self._settings) as connection:
            mysql_schema.check_position(connection, self._settings, position.gtid_set)
            charsets = mysql_schema.charsets(connection, self._settings)
        binlog = Binlog(self._settings, position, schemas, charsets)
        try:
            yield binlog.facts()
        finally:
            binlog.close()
