"""Read a row of a joined table with its trace from PostgreSQL."""

from __future__ import annotations

from cdc.model.errors import UsageError
from cdc.stored.cells import RowCodec
from cdc.stored.traces import entries_of
from cdc.topology.topology import Table, Topology
from joins.stores.postgres.pg_relations import run_sql
from joins.stores.postgres.pg_server import Transaction
from joins.stores.postgres.pg_table import PostgresTable
from joins.stores.postgres.relational import BATCH, TIMESTAMP, TRACE, quoted, shown
from tailorbird.verify.explain.explanation import TracedRow
from tailorbird.verify.explain.traced_rows import TracedRows
from tailorbird.verify.table.pg_stored_rows import served, values_of_texts, where_key


class PostgresTracedRows(TracedRows):
    """Reads rows of one joined table. Raises Retriable while the server is unavailable, UsageError if the table has no
    complete result yet."""

    def __init__(self, topology: Topology, table: Table) -> None:
        assert topology.postgres is not None, "the reader of topologies requires it"
        self.name, self._table = table.name, PostgresTable(topology.postgres, table.name)
        state = self._table.state()
        if state is None or state.served is None:
            raise UsageError(f"table {table.name} has no complete result yet", "has its join run? `tailorbird run`")
        self.layout = state.served

    def row_at(self, row_key: bytes) -> TracedRow | None:
        """Return the row at a row key, or None."""

        def read(t: Transaction) -> TracedRow | None:
            layout, relation = served(self._table, self._table.read_state(t))
            where, arguments = where_key(RowCodec(layout), row_key.hex())
            columns = [shown(quoted(column.name), column.type) for column in layout.columns]
            selected = ", ".join([*columns, BATCH, TIMESTAMP, TRACE])
            row = run_sql(t, f"SELECT {selected} FROM {relation} WHERE {where}", arguments).fetchone()
            if row is None:
                return None
            *_, batch, timestamp, trace = row
            return TracedRow(
                row_key=row_key, timestamp=timestamp + 1, values=values_of_texts(layout, row), layout_id=layout.id,
                batch=batch, trace=tuple(entries_of(trace)) if trace else None,
            )  # fmt: skip

        return self._table.call(read)
