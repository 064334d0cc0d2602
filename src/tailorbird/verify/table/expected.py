"""What a table must be, as its sources are now: their tables, whole, and the query's answer by DuckDB."""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection

from cdc.model.schema import TableId
from cdc.stored.cells import Barrier, RowCodec, document_id
from cdc.stored.layout import Layout
from cdc.topology.topology import Source, Table, Topology
from joins.select.parser import tables_of
from tailorbird.verify import mysql_tables, pg_tables
from tailorbird.verify.mysql_tables import SourceTable, TablesSnapshot
from tailorbird.verify.sql_oracle import answer
from tailorbird.verify.table.table_stage import Answered, Row


def read_snapshot(source: Source, tables: Collection[TableId]) -> TablesSnapshot:
    """Some tables of a source, whole, in one consistent snapshot. Retriable while it is away."""
    read: Read = pg_tables.read_snapshot if source.type == "postgresql" else mysql_tables.read_snapshot
    return read(source, tables)


Read = Callable[[Source, Collection[TableId]], TablesSnapshot]


class Expected:
    """Asks the sources of one table; each call reads everything anew. Retriable while a source is away, Skippable where
    the query's answer is not known.
    """

    def __init__(self, topology: Topology, table: Table, layout: Layout, *, read: Read = read_snapshot) -> None:
        self._topology, self._table, self._read = topology, table, read
        self._codec = RowCodec(layout)
        self._tables = tables_of(topology, table)

    def ask(self) -> Answered:
        """The query's answer, and where the sources were at most when they were read."""
        positions: dict[str, str] = {}
        given: dict[TableId, SourceTable] = {}
        for name in sorted({one.source for one in self._tables}):
            snapshot = self._read(self._topology.sources[name], [one for one in self._tables if one.source == name])
            positions[name] = snapshot.position
            given |= snapshot.tables
        rows: dict[str, Row] = {}
        refused = 0
        found = answer(self._topology, self._table, given)
        for row in found.rows:
            try:
                rows[document_id(self._codec.row_key(row))] = row
            except (ValueError, struct.error):
                refused += 1
        return Answered(rows, positions, refused, found.unknown)


def obstacle(topology: Topology, table: Table, layout: Layout | None, barrier: Barrier | None) -> str:
    """Why a table can not be compared with its sources; empty where it can."""
    sources = {one.source: topology.sources[one.source] for one in tables_of(topology, table)}
    for name, source in sources.items():
        if source.type == "sql" or source.poll is not None:
            return f"source {name} is polled: it has no position that a cut could name"
        if source.is_only_reported:
            what = {"kafka": "topics of others", "maxscale": "a MaxScale"}.get(source.type, source.type)
            return f"source {name} is {what}: what it told is all that is known of it"
        if source.snapshot_mode == "never":
            return f"source {name} was captured without its first rows (snapshot_mode: never)"
    if layout is None or barrier is None:
        return "it has no whole cut yet: the join has not come so far"
    if barrier.watermark is not None:
        return "it joins by time: its rows come when the watermark passes, which the sources do not tell"
    return ""
