"""Read the rows and barriers of a joined table from PostgreSQL: the far end of the table stage."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from cdc.model.errors import Skippable, UsageError
from cdc.model.types import Canonical
from cdc.stored.cells import RowCodec, document_id
from cdc.stored.layout import Layout
from cdc.topology.topology import Table, Topology
from joins.stores.postgres.pg_relations import run_sql
from joins.stores.postgres.pg_server import Transaction
from joins.stores.postgres.pg_table import PostgresTable, StoredState
from joins.stores.postgres.relational import (
    KEY,
    TIMESTAMP,
    FromText,
    column_type,
    from_text,
    key_of,
    quoted,
    shown,
    to_text,
)
from tailorbird.verify.settling import SettlingPolicy
from tailorbird.verify.table.proc_barriers import BarrierReader
from tailorbird.verify.table.table_stage import Stored

_PAGE = 2_000
_SNAPSHOT = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY"


class PostgresRows(BarrierReader[PostgresTable]):
    """Reads rows by hexadecimal row key, for one thread. Each read sees one state of the table between two batches.

    Raises Retriable while the server is unavailable, UsageError if the table is missing."""

    store = "PostgreSQL"

    def __init__(self, topology: Topology, table: Table, *, settling: SettlingPolicy) -> None:
        assert topology.postgres is not None, "the reader of topologies requires it"
        super().__init__(PostgresTable(topology.postgres, table.name), settling)

    def check(self, file: str) -> None:
        """Raise UsageError if the table is not there."""
        if self.joined.state() is None:
            raise UsageError(f"{self.joined.server} has no table {self.joined.name}", f"`tailorbird run {file}`")

    def layout(self) -> Layout | None:
        """Return the layout of the rows that readers see; None before the first complete result."""
        state = self.joined.state()
        return state.served if state else None

    def scan(self) -> Iterator[tuple[str, Stored]]:
        """Yield (row key in hexadecimal, row) of every row, in no certain order. All rows are of one moment.

        Raises Skippable if the table has no complete result yet."""
        # a page at a time would see rows of several batches, and a cursor would keep the transaction open
        yield from self.joined.call(self._scanned)

    def _scanned(self, t: Transaction) -> list[tuple[str, Stored]]:
        run_sql(t, _SNAPSHOT)
        layout, relation = self._served(t)
        found, codec = list[tuple[str, Stored]](), RowCodec(layout)
        with t.cursor("tailorbird_verify") as cursor:
            cursor.itersize = _PAGE
            for row in cursor.execute(f"SELECT {_selected(layout)} FROM {relation}".encode()):
                found.append(_stored(codec, row))
        return found

    def rows(self, keys: Sequence[str]) -> Mapping[str, Stored]:
        """Return the existing rows of these keys."""

        def read(t: Transaction) -> dict[str, Stored]:
            run_sql(t, _SNAPSHOT)
            layout, relation = self._served(t)
            found, codec = dict[str, Stored](), RowCodec(layout)
            for key in keys:
                where, arguments = where_key(codec, key)
                row = run_sql(t, f"SELECT {_selected(layout)} FROM {relation} WHERE {where}", arguments).fetchone()
                if row is not None:
                    found[key] = _stored(codec, row)[1]
            return found

        return self.joined.call(read)

    def remove(self, rows: Mapping[str, int]) -> None:
        """Delete rows, each as of a timestamp (ms), so that later writes remain."""

        def delete(t: Transaction) -> None:
            layout, relation = self._served(t)
            codec = RowCodec(layout)
            for key, timestamp in rows.items():
                where, arguments = where_key(codec, key)
                run_sql(t, f"DELETE FROM {relation} WHERE {where} AND {TIMESTAMP} < %s", (*arguments, timestamp))

        self.joined.call(delete)

    def _served(self, t: Transaction) -> tuple[Layout, str]:
        return served(self.joined, self.joined.read_state(t))


def served(joined: PostgresTable, state: StoredState | None) -> tuple[Layout, str]:
    """Return the layout and the quoted name of the relation that readers see. Raises Skippable before the first
    complete result."""
    if state is None or state.relation is None or state.served is None:
        raise Skippable(f"table {joined.name} has no complete result yet")
    return state.served, f"{joined.rows}.{quoted(state.relation)}"


def _selected(layout: Layout) -> str:
    columns = [shown(quoted(column.name), column.type) for column in layout.columns]
    return ", ".join([*columns, f"{TIMESTAMP}"])


def _stored(codec: RowCodec, row: Sequence[object]) -> tuple[str, Stored]:
    """Return the row key in hexadecimal, and the row with its version: HBase's of a put in the same batch."""
    values = values_of_texts(codec.layout, row)
    version = 2 * (int(str(row[-1])) + 1)
    return document_id(codec.row_key(values)), Stored(version, values)


def values_of_texts(layout: Layout, row: Sequence[object]) -> dict[str, Canonical]:
    """Return the canonical values of a row of texts, in the order of the layout's columns."""
    found = dict[str, Canonical]()
    for column, text in zip(layout.columns, row, strict=False):
        read: FromText = from_text(column.type)
        found[column.name] = None if text is None else read(str(text))
    return found


def where_key(codec: RowCodec, key: str) -> tuple[str, list[object]]:
    """Return the condition of a row, by its row key in hexadecimal, and its arguments."""
    row_key, layout = bytes.fromhex(key), codec.layout
    if key_of(layout) == (KEY,):
        return f"{KEY} = %s", [row_key]
    values, types = codec.key_values(row_key), {column.name: column.type for column in layout.columns}
    conditions = [f"{quoted(name)} = %s::{column_type(types[name])}" for name in layout.row_key]
    return " AND ".join(conditions), [to_text(types[name])(values[name]) for name in layout.row_key]
