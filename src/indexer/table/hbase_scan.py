"""Scan a joined table. Rows are returned as the changes that a replay of the write-ahead log would result in."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence

import happybase
from thriftpy2.thrift import TException

from cdc.model.errors import Retriable
from cdc.model.naming import hbase_table
from cdc.stored.cells import is_barrier
from cdc.topology.topology import Table, Topology
from indexer.index.collapse import RowChange

# HBase closes a scanner that gets no call for 60 s, so pages are small enough to be indexed in between.
PAGE = 1000


class TableScan:
    """Scans one joined table, salt bucket by salt bucket; threads may scan different buckets."""

    def __init__(self, topology: Topology, table: Table, *, timeout: float = 60.0) -> None:
        self._thrift, self._name = topology.hbase.thrift, hbase_table(topology.name, table.name)
        self._family, self._timeout_ms = table.family.encode(), round(timeout * 1000)

    def pages(self, bucket: int, after: bytes | None, *, to_the_end: bool = False) -> Iterator[list[RowChange]]:
        """Yield pages of a bucket's rows after row key `after` (None: from the start), in order, without barriers.

        With `to_the_end`, all later rows follow. They are outside of any bucket, where only external programs write.

        A row has the version of its newest cell, like the edit that replication shipped. So a scan never overwrites
        newer documents. Raises Retriable if HBase does not answer: resume after the last row of the last page."""
        start = bytes([bucket]) if after is None else after + b"\x00"
        return self.between(start, bytes([bucket + 1]) if bucket < 255 and not to_the_end else None)

    def between(self, start: bytes, stop: bytes | None) -> Iterator[list[RowChange]]:
        """Yield pages of the rows with keys from `start` to `stop` (excluded; None: no end), like `pages`."""
        return self.within([(start, stop)])

    def within(self, ranges: Sequence[tuple[bytes, bytes | None]]) -> Iterator[list[RowChange]]:
        """Yield pages of the rows of several ranges, one range after the other, over one connection."""
        with self._connected() as table:
            page: list[RowChange] = []
            for start, stop in ranges:
                for key, cells in table.scan(
                    row_start=start, row_stop=stop, columns=[self._family], include_timestamp=True, batch_size=PAGE
                ):
                    if not is_barrier(key):
                        page.append(_change(key, cells))
                    if len(page) == PAGE:
                        yield page
                        page = []
            if page:
                yield page

    def versions(self, bucket: int, *, to_the_end: bool = False) -> Iterator[list[tuple[bytes, int]]]:
        """Yield the keys and versions of the rows that `pages` yields, without their values."""
        stop = bytes([bucket + 1]) if bucket < 255 and not to_the_end else None
        return self.versions_between(bytes([bucket]), stop)

    def versions_between(self, start: bytes, stop: bytes | None) -> Iterator[list[tuple[bytes, int]]]:
        """Yield the keys and versions of the rows that `between` yields, without their values.

        The version is computed from one cell per row, because all cells of a whole row have the same timestamp."""
        with self._connected() as table:
            page: list[tuple[bytes, int]] = []
            for key, cells in table.scan(
                row_start=start,
                row_stop=stop,
                columns=[self._family],
                filter="FirstKeyOnlyFilter() AND KeyOnlyFilter()",
                include_timestamp=True,
                batch_size=PAGE,
            ):
                if not is_barrier(key):
                    page.append((key, 2 * next(timestamp for _, timestamp in cells.values())))
                if len(page) == PAGE:
                    yield page
                    page = []
            if page:
                yield page

    def first_from(self, key: bytes) -> RowChange | None:
        """Return the first row whose key is `key` or greater, or None after the last row. Used for samples."""
        with self._connected() as table:
            # a barrier may be the first row, one per bucket
            for found, cells in table.scan(
                row_start=key, columns=[self._family], include_timestamp=True, batch_size=3, limit=3
            ):
                if not is_barrier(found):
                    return _change(found, cells)
        return None

    def rows(self, keys: Sequence[bytes]) -> list[RowChange]:
        """Return the rows that exist."""
        with self._connected() as table:
            found = table.rows(list(keys), columns=[self._family], include_timestamp=True)
        return [_change(key, cells) for key, cells in found if cells]

    @contextlib.contextmanager
    def _connected(self) -> Iterator[happybase.Table]:
        host, _, port = self._thrift.rpartition(":")
        try:
            with contextlib.closing(happybase.Connection(host, int(port), timeout=self._timeout_ms)) as connection:
                yield connection.table(self._name)
        except (TException, OSError) as error:
            raise Retriable(
                f"HBase's Thrift server at {self._thrift} does not answer: {error}", "`tailorbird stack status`"
            ) from error


def _change(key: bytes, cells: Mapping[bytes, tuple[bytes, int]]) -> RowChange:
    family = next(iter(cells)).index(b":") + 1  # every cell belongs to the requested family
    values = {column[family:]: value for column, (value, _) in cells.items()}
    return RowChange(key, 2 * max([timestamp for _, timestamp in cells.values()]), values, False)
