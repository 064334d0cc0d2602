"""Read rows of external tables through HBase's Thrift server."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping, Sequence

import happybase
from thriftpy2.thrift import TException

from cdc.model.errors import Retriable
from cdc.stored.foreign import ForeignTable
from indexer.foreign.mapping import ForeignRow
from indexer.index.collapse import RowChange

PAGE = 1000


class ForeignReader:
    """Reads one external table through HBase's Thrift server. Threads may share it: each has its own connection."""

    def __init__(self, thrift: str, table: ForeignTable, *, timeout: float = 20.0) -> None:
        self._thrift, self._table, self._timeout_ms = thrift, table, round(timeout * 1000)
        self._columns = [family.encode() for family in table.families]
        self._own = threading.local()

    def rows(self, keys: Sequence[bytes]) -> list[ForeignRow]:
        """Return the rows that exist. Raises Retriable if HBase does not answer."""
        if not keys:
            return []
        with self._answering():
            found = self._connection().rows(list(keys), columns=self._columns, include_timestamp=True)
        return [_row(key, cells) for key, cells in found if cells]

    def pages(self, bucket: int, after: bytes | None) -> Iterator[list[RowChange]]:
        """Yield pages of all rows whose key is greater than `after`, in order, as changes without cells.

        An external table has a single bucket, so `bucket` is ignored."""
        start = (self._table.start_row or b"") if after is None else after + b"\x00"
        with self._answering():
            page: list[RowChange] = []
            for key, _ in self._connection().scan(
                row_start=start, row_stop=self._table.stop_row, columns=self._columns, batch_size=PAGE
            ):
                page.append(RowChange(key, 0, {}, False))
                if len(page) == PAGE:
                    yield page
                    page = []
            if page:
                yield page

    def _connection(self) -> happybase.Table:
        if getattr(self._own, "table", None) is None:
            host, _, port = self._thrift.rpartition(":")
            connection = happybase.Connection(host, int(port), timeout=self._timeout_ms)
            self._own.table = connection.table(self._table.table)
        return self._own.table

    @contextlib.contextmanager
    def _answering(self) -> Iterator[None]:
        try:
            yield
        except (TException, OSError) as error:
            self._own.table = None  # the next call connects again
            raise Retriable(
                f"HBase's Thrift server at {self._thrift} cannot read {self._table.table}: {error}",
                "`tailorbird stack status`",
            ) from error


def _row(key: bytes, cells: Mapping[bytes, tuple[bytes, int]]) -> ForeignRow:
    values = {(column.partition(b":")[0], column.partition(b":")[2]): value for column, (value, _) in cells.items()}
    return ForeignRow(key, values, max(timestamp for _, timestamp in cells.values()))
