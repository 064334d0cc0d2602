"""Store layouts, batch timestamps, rows and barriers in HBase, through its Thrift server and happybase.

Thrift sends one timestamp per call, so the puts and the deletes of a chunk are two calls. Every write has an explicit
timestamp and may be repeated. Raises Retriable while HBase is unavailable or slow, UsageError for a missing table.
"""

from __future__ import annotations

import contextlib
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any, TypeVar

import happybase
from Hbase_thrift import IllegalArgument  # type: ignore[import-not-found]  # happybase makes this module when imported
from thriftpy2.thrift import TException

from cdc.model.errors import Fatal, Retriable, UsageError
from cdc.model.naming import hbase_table, layouts_table
from cdc.stored.cells import BARRIER, LAYOUT, Barrier, barrier_key, is_barrier, load_barrier
from cdc.stored.layout import (
    LAYOUT_QUALIFIER,
    LAYOUTS_FAMILY,
    Layout,
    dump_layout,
    layout_row,
    layout_rows_prefix,
    load_layout,
    repairs_row,
)
from cdc.stored.layout import timestamp_row as timestamp_row_of
from cdc.topology.topology import SchemaChangeBehavior, Table, Topology
from joins.runtime.cuts import Positions
from joins.runtime.sink import Cells
from joins.stores.evolution import evolved

T = TypeVar("T")
_LONG = struct.Struct(">q")
_REPAIRS = LAYOUTS_FAMILY + b":count"
_TIMEOUT_MS = 60_000
_RESTED = 30.0  # half of the default idle timeout of HBase's Thrift server
_ROWS_PER_CALL = 500
_MISSING = ("TableNotFoundException", "NamespaceNotFoundException", "NoSuchColumnFamilyException")


class HBaseConnection:
    """One connection to HBase's Thrift server, for one thread. Opened at the first call, and again after a loss.

    An executor needs no pool: each of its Python workers is a process that keeps its own connection between batches."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self.address, self._host, self._port = address, host, int(port)
        self._connection: Any = None
        self._used = 0.0

    def call(self, action: Callable[[Any], T]) -> T:
        """Run an action on the connection. Raises Retriable if HBase is unavailable, UsageError if a table is missing,
        Fatal if HBase refuses the write."""
        if time.monotonic() - self._used > _RESTED:
            self.close()
        self._used = time.monotonic()
        try:
            if self._connection is None:
                self._connection = happybase.Connection(self._host, self._port, timeout=_TIMEOUT_MS)
            return action(self._connection)
        except (TException, OSError) as error:
            self.close()
            text = _first_line(error)
            if any(name in text for name in _MISSING):
                raise UsageError(f"HBase at {self.address}: {text}", "run `tailorbird apply TOPOLOGY` first") from error
            if isinstance(error, IllegalArgument):
                raise Fatal(f"HBase at {self.address} refuses a write: {text}") from error
            raise Retriable(f"HBase at {self.address}: {text}", "is it running? `tailorbird stack status`") from error

    def close(self) -> None:
        """Close the connection; the next call opens another."""
        if self._connection is not None:
            with contextlib.suppress(TException, OSError):
                self._connection.close()
            self._connection = None


_kept: dict[str, HBaseConnection] = {}


def connection(address: str) -> HBaseConnection:
    """Return the connection of this process, which a Python worker keeps between batches.

    Use this function: a task that refers to `_kept` directly would get a pickled copy of the driver's."""
    return _kept.setdefault(address, HBaseConnection(address))


def _first_line(error: BaseException) -> str:
    message = getattr(error, "message", None) or str(error) or type(error).__name__
    text = message.decode(errors="replace") if isinstance(message, bytes) else str(message)
    return text.strip().splitlines()[0][:300]


def write_rows(
    hbase: HBaseConnection,
    table: str,
    family: bytes,
    deletes: Sequence[bytes],
    puts: Sequence[tuple[bytes, Cells]],
    batch_timestamp: int,
) -> None:
    """Write a chunk: row deletes at `batch_timestamp`, whole rows at `batch_timestamp` + 1. May be repeated."""

    def delete(connection: Any) -> None:
        for some in _chunks(deletes):
            _delete(connection.table(table), family, some, batch_timestamp)

    def put(connection: Any) -> None:
        prefix = family + b":"
        for some in _chunks(puts):
            with connection.table(table).batch(timestamp=batch_timestamp + 1) as batch:
                for row, cells in some:
                    batch.put(row, {prefix + qualifier: value for qualifier, value in cells.items()})

    if deletes:
        hbase.call(delete)
    if puts:
        hbase.call(put)


def _delete(table: Any, family: bytes, rows: Sequence[bytes], batch_timestamp: int) -> None:
    with table.batch(timestamp=batch_timestamp) as batch:
        for row in rows:
            batch.delete(row, columns=(family,))


def _families(table: str, connection: Any) -> dict[bytes, Any]:
    found: dict[bytes, Any] = connection.table(table).families()
    return found


def _chunks(items: Sequence[T]) -> Iterator[Sequence[T]]:
    for start in range(0, len(items), _ROWS_PER_CALL):
        yield items[start : start + _ROWS_PER_CALL]


class JoinedTable:
    """A joined table, and its records in `<topology>:layouts`, for use by the driver."""

    def __init__(
        self, hbase: HBaseConnection, *, table: str, layouts: str, name: str, family: str, buckets: int
    ) -> None:
        self.hbase, self.table, self.layouts, self.name = hbase, table, layouts, name
        self.family, self.buckets = family.encode(), buckets

    def check(self, file: str) -> None:
        """Raise UsageError if a table or its column family is missing."""
        for table, family in ((self.table, self.family), (self.layouts, LAYOUTS_FAMILY)):
            try:
                families = self.hbase.call(partial(_families, table))
            except UsageError as error:
                raise UsageError(f"HBase has no table {table}", f"run `tailorbird apply {file}`") from error
            if family not in {name.rstrip(b":") for name in families}:
                raise UsageError(f"{table} has no family {family.decode()}", f"run `tailorbird apply {file}`")

    def settle_layout(self, layout: Layout, behavior: SchemaChangeBehavior) -> Layout:
        """Return the layout to write (`joins.stores.evolution`), and store it if it is new."""
        prefix = layout_rows_prefix(self.name)
        column = LAYOUTS_FAMILY + b":" + LAYOUT_QUALIFIER
        found = self.hbase.call(lambda c: [cells[column] for _, cells in c.table(self.layouts).scan(row_prefix=prefix)])
        stored = [load_layout(value) for value in found]
        newest = max(stored, key=lambda one: one.id, default=None)
        settled = evolved(newest, layout, behavior)
        if settled is newest:
            return settled
        row = layout_row(self.name, settled.id)
        self.hbase.call(lambda c: c.table(self.layouts).put(row, {column: dump_layout(settled)}))
        return settled

    def last_timestamp(self) -> int:
        """Return the greatest timestamp of any batch or barrier of any run, or 0."""
        timestamps = self.hbase.call(lambda c: list(c.table(self.layouts).scan(row_prefix=self._timestamps())))
        barrier = self.barrier()
        reported = barrier.timestamp if barrier else 0
        newest: int = max([reported, *(_LONG.unpack(cells[b"f:stamp"])[0] for _, cells in timestamps)])
        return newest

    def runs(self) -> list[str]:
        """Return the ids of the query runs whose batch timestamps are kept. A rebuild has another id."""
        prefix = self._timestamps()
        rows = self.hbase.call(lambda c: [row for row, _ in c.table(self.layouts).scan(row_prefix=prefix)])
        return sorted({row[len(prefix) :].split(b"/")[0].decode() for row in rows})

    def batch_timestamp(self, query: str, batch: int) -> int | None:
        """Return the timestamp that is bound to a batch of a query's run. None if there is none yet."""
        row = timestamp_row_of(self.name, query, batch)
        found = self.hbase.call(lambda c: c.table(self.layouts).row(row))
        return _LONG.unpack(found[b"f:stamp"])[0] if found else None

    def store_timestamp(self, query: str, batch: int, batch_timestamp: int) -> None:
        """Bind a timestamp to a batch of a query's run. Call it before the batch's first write."""
        row = timestamp_row_of(self.name, query, batch)
        self.hbase.call(lambda c: c.table(self.layouts).put(row, {b"f:stamp": _LONG.pack(batch_timestamp)}))

    def forget_timestamps(self, query: str, before: int) -> None:
        """Delete the timestamps of former runs, and of this run's batches before `before`, which are never repeated."""
        kept = timestamp_row_of(self.name, query, before)
        end = timestamp_row_of(self.name, query, 10**12 - 1)

        def forget(connection: Any) -> None:
            table = connection.table(self.layouts)
            with table.batch() as batch:
                for row, _ in table.scan(row_prefix=self._timestamps()):
                    if not kept <= row <= end:
                        batch.delete(row, columns=(LAYOUTS_FAMILY,))

        self.hbase.call(forget)

    def count_repair(self) -> None:
        """Increase the number of repairs of the table, which every host sees.

        Call it before and after deletes under old timestamps: a scan for later timestamps cannot see them."""
        row = repairs_row(self.name)
        self.hbase.call(lambda c: c.table(self.layouts).counter_inc(row, _REPAIRS))

    def repairs(self) -> int:
        """Return the number that `count_repair` increases, or 0."""
        row = repairs_row(self.name)
        found = self.hbase.call(lambda c: c.table(self.layouts).row(row))
        return _LONG.unpack(found[_REPAIRS])[0] if found else 0

    def write_barriers(self, barriers: Sequence[Barrier], batch_timestamp: int) -> None:
        """Put one barrier per bucket at `batch_timestamp` + 1. Call it after every row of the batch was accepted."""
        column = self.family + b":" + BARRIER

        def put(connection: Any) -> None:
            with connection.table(self.table).batch(timestamp=batch_timestamp + 1) as batch:
                for barrier in barriers:
                    batch.put(barrier_key(barrier.bucket), {column: barrier.to_bytes()})

        self.hbase.call(put)

    def reached(self) -> Positions:
        """Return each source's position in the last barrier. Empty if there is none."""
        barrier = self.barrier()
        return barrier.positions if barrier else {}

    def barrier(self) -> Barrier | None:
        """Return the newest barrier (of bucket 0); None before the first. All rows up to it are stored."""
        column = self.family + b":" + BARRIER
        found = self.hbase.call(lambda c: c.table(self.table).row(barrier_key(0), columns=[column]))
        return load_barrier(found[column]) if column in found else None

    def sweep(self, batch_timestamp: int) -> int:
        """Delete every row that was last written before `batch_timestamp`. Return their number.

        Call it once per run, after its first complete result: rows that were not written by then no longer exist in
        the sources. The deletes have `batch_timestamp`, so they hide no later write. The scan has no time range,
        because HBase would then return overwritten cells. Rows are deleted during the scan, so only a few hundred
        are in memory."""
        column = self.family + b":" + LAYOUT

        def swept(connection: Any) -> int:
            table, count = connection.table(self.table), 0
            rows = table.scan(columns=[column], include_timestamp=True, batch_size=1000)
            stale = (row for row, cells in rows if not is_barrier(row) and cells[column][1] < batch_timestamp)
            while some := list(islice(stale, _ROWS_PER_CALL)):
                _delete(table, self.family, some, batch_timestamp)
                count += len(some)
            return count

        return self.hbase.call(swept)

    def _timestamps(self) -> bytes:
        return timestamp_row_of(self.name, "", 0).split(b"//")[0] + b"/"


def joined_table(topology: Topology, table: Table) -> JoinedTable:
    """Return a joined table with its own connection."""
    return JoinedTable(
        HBaseConnection(topology.hbase.thrift),
        table=hbase_table(topology.name, table.name),
        layouts=layouts_table(topology.name),
        name=table.name,
        family=table.family,
        buckets=table.salt_buckets,
    )
