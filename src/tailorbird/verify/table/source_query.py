"""Compute the expected content of a table: read its source tables completely and run its query in DuckDB."""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Mapping

from cdc.model.schema import TableId
from cdc.model.types import Canonical
from cdc.stored.cells import Barrier, RowCodec, document_id
from cdc.stored.layout import Layout
from cdc.topology.topology import Source, Table, Topology
from joins.stores.postgres.relational import LONGEST_KEY
from tailorbird.verify import mysql_tables, pg_tables
from tailorbird.verify.findings import Until
from tailorbird.verify.mysql_tables import SourceTable, TablesSnapshot
from tailorbird.verify.sql_oracle import answer
from tailorbird.verify.table.table_stage import QueryAnswer, Row


def read_snapshot(source: Source, tables: Collection[TableId]) -> TablesSnapshot:
    """Read whole tables of a source in one consistent snapshot. Raises Retriable while the source is unavailable,
    UsageError if a PostgreSQL table does not exist."""
    read: Read = pg_tables.read_snapshot if source.type == "postgresql" else mysql_tables.read_snapshot
    return read(source, tables)


Read = Callable[[Source, Collection[TableId]], TablesSnapshot]


class SourceQuery:
    """Runs the query of one joined table over its sources. Each call reads its source tables (`tables`) again.

    `clock` returns what `now()` means in the joined table at present (ms), None if its query does not use it.

    Raises Retriable while a source is unavailable, Skippable if the result is unknown."""

    def __init__(
        self,
        topology: Topology,
        table: Table,
        layout: Layout,
        tables: Collection[TableId],
        *,
        clock: Callable[[], int | None] = lambda: None,
        read: Read = read_snapshot,
    ) -> None:
        self._topology, self._table, self._tables, self._read = topology, table, tables, read
        self._clock = clock
        self._scales = _scales(layout)
        self._codec = RowCodec(layout, longest_key=LONGEST_KEY) if table.sink == "postgres" else RowCodec(layout)

    def ask(self) -> QueryAnswer:
        """Return the result of the query, and the sources' positions, which are at or after the snapshots."""
        positions: dict[str, str] = {}
        given: dict[TableId, SourceTable] = {}
        for name in sorted({one.source for one in self._tables}):
            snapshot = self._read(self._topology.sources[name], [one for one in self._tables if one.source == name])
            positions[name] = snapshot.position
            given |= snapshot.tables
        rows: dict[str, Row] = {}
        refused = 0
        clock = self._clock()
        found = answer(self._topology, self._table, given, clock)
        for answered in found.rows:
            row = rescaled(answered, self._scales)
            try:
                rows[document_id(self._codec.row_key(row))] = row
            except (ValueError, struct.error):
                refused += 1
        return QueryAnswer(rows, positions, refused, found.unknown, clock)


def rescaled(row: Row, scales: Mapping[str, int]) -> Row:
    """Return the row with as many fractional digits in each decimal as the table stores (`scales`, by column).

    They differ after an ALTER of a source column's scale: the table keeps the type that it had. A value that needs
    more digits stays as it is, so it differs from what is stored."""
    return {name: _rescaled(value, scales[name]) if name in scales else value for name, value in row.items()}


def _scales(layout: Layout) -> dict[str, int]:
    """Return the number of fractional digits of each column of decimals, or of lists of them."""
    types = {column.name: column.type.element or column.type for column in layout.columns}
    return {name: type_.scale for name, type_ in types.items() if type_.kind == "decimal"}


def _rescaled(value: Canonical, scale: int) -> Canonical:
    if isinstance(value, list):
        return [_rescaled(member, scale) for member in value]  # type: ignore[misc]  # lists contain no lists
    if not isinstance(value, str):
        return value
    whole, _, digits = value.partition(".")
    if digits[scale:].strip("0"):
        return value
    return f"{whole}.{digits[:scale]:0<{scale}}" if scale else whole


def obstacle(sources: Mapping[str, Source], layout: Layout | None, barrier: Barrier | None) -> tuple[str, Until]:
    """Return the reason why a table cannot be compared with its sources (by name), or an empty text; and what must
    change before it can be."""
    for name, source in sources.items():
        if source.type == "sql" or source.poll is not None:
            return f"source {name} is polled and has no log positions", "topology"
        if source.is_only_reported:
            what = {"kafka": "external topics", "maxscale": "a MaxScale"}.get(source.type, source.type)
            return f"source {name} is {what}: its tables cannot be queried", "topology"
        if source.snapshot_mode == "never":
            return f"source {name} was captured without a snapshot (snapshot_mode: never)", "topology"
    if layout is None or barrier is None:
        return "the join has not completed a cut yet", ""
    if barrier.watermark is not None:
        return "it joins by time: its rows depend on the watermark, which the sources do not determine", "change"
    return "", ""
