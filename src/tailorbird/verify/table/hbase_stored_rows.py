"""Read the rows and barriers of a joined table from HBase: the far end of the table stage."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence

import structlog

from cdc.model.errors import Fatal, Retriable, Skippable, UsageError
from cdc.stored.cells import RowCodec, document_id, layout_id_of
from cdc.stored.layout import Layout
from cdc.topology.topology import Table, Topology
from indexer.index.collapse import RowChange
from indexer.table.hbase_layouts import StoredLayouts
from indexer.table.hbase_scan import PAGE, TableScan
from joins.stores.hbase_table import JoinedTable, joined_table, write_rows
from tailorbird.verify.proc_prefetch import rows_in_order
from tailorbird.verify.settling import SettlingPolicy
from tailorbird.verify.table.proc_barriers import BarrierReader
from tailorbird.verify.table.table_stage import Stored

log = structlog.get_logger()


class StoredRows(BarrierReader[JoinedTable]):
    """Reads rows by hexadecimal key, for one thread.

    Raises Retriable while HBase is unavailable, UsageError if the table is missing."""

    store = "HBase"

    def __init__(self, topology: Topology, table: Table, *, settling: SettlingPolicy) -> None:
        super().__init__(joined_table(topology, table), settling)
        self._buckets = table.salt_buckets
        self._scanned = TableScan(topology, table)
        self.layouts = StoredLayouts(topology.hbase.thrift, topology=topology.name, table=table.name)
        self._codecs: dict[int, RowCodec] = {}

    def check(self, file: str) -> None:
        """Raise UsageError if the table or its column family is missing."""
        self.joined.check(file)

    def layout(self) -> Layout | None:
        """Return the newest layout, None before the first."""
        return self.layouts.newest()

    def scan(self) -> Iterator[tuple[str, Stored]]:
        """Yield (row key in hexadecimal, row) of every row, in the order of the keys.

        A row that cannot be decoded has an error instead of values."""
        scanned = self._scanned
        found = rows_in_order(self._buckets, lambda at, last: scanned.pages(at, None, to_the_end=last))
        for change in found:
            yield document_id(change.row), self._stored(change)

    def rows(self, keys: Sequence[str]) -> Mapping[str, Stored]:
        """Return the existing rows of these keys."""
        found: dict[str, Stored] = {}
        for start in range(0, len(keys), PAGE):
            for change in self._scanned.rows([bytes.fromhex(key) for key in keys[start : start + PAGE]]):
                found[document_id(change.row)] = self._stored(change)
        return found

    def remove(self, rows: Mapping[str, int]) -> None:
        """Delete rows, each as of a timestamp (ms), so that later writes remain. Raises Retriable while HBase is
        unavailable; nothing is deleted if the repair cannot be counted (`JoinedTable.count_repair`)."""
        joined = self.joined
        delete_counted(
            rows,
            joined.count_repair,
            lambda timestamp, keys: write_rows(joined.hbase, joined.table, joined.family, keys, (), timestamp),
        )

    def _stored(self, change: RowChange) -> Stored:
        try:
            return Stored(change.version, self._codec(layout_id_of(change.cells)).row(change.cells).values)
        except (KeyError, ValueError, IndexError, struct.error) as error:
            return Stored(change.version, None, f"incomplete row of its layout: {error!r}")
        except Skippable as error:
            return Stored(change.version, None, error.message)

    def _codec(self, layout_id: int) -> RowCodec:
        codec = self._codecs.get(layout_id)
        if codec is None:
            codec = self._codecs[layout_id] = RowCodec(self.layouts.layout(layout_id))
        return codec


def delete_counted(
    rows: Mapping[str, int], count: Callable[[], None], delete: Callable[[int, Sequence[bytes]], None]
) -> None:
    """Delete rows by timestamp (ms), and count the repair before the first delete and after the last one.

    The first count discards leaves from before the repair, the second one those of a comparison during it."""
    timestamps: dict[int, list[bytes]] = {}
    for key, timestamp in rows.items():
        timestamps.setdefault(timestamp, []).append(bytes.fromhex(key))
    if not timestamps:
        return
    count()
    try:
        for timestamp, keys in timestamps.items():
            delete(timestamp, keys)
    except BaseException:
        try:  # some rows may be deleted
            count()
        except (Retriable, UsageError, Fatal) as error:  # the error of the delete is the one to report
            log.warning(
                "repair_not_counted", reason=str(error), remedy="run `tailorbird verify` without --changed-since"
            )
        raise
    count()
