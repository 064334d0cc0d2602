"""Read stored layouts (the columns, types and qualifiers of a joined table) by id from `<topology>:layouts`."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import happybase
from thriftpy2.thrift import TException

from cdc.model.errors import Retriable, Skippable
from cdc.model.naming import layouts_table
from cdc.stored.layout import LAYOUT_QUALIFIER, LAYOUTS_FAMILY, Layout, layout_row, layout_rows_prefix, load_layout

_COLUMN = LAYOUTS_FAMILY + b":" + LAYOUT_QUALIFIER


class StoredLayouts:
    """The layouts of one joined table. A layout never changes, so each is read once. Threads may share it.

    `thrift` is the address `host:port` of HBase's Thrift server. The connection is opened when a layout is first
    needed."""

    def __init__(self, thrift: str, *, topology: str, table: str, timeout: float = 10.0) -> None:
        self._thrift, self._topology, self._table = thrift, topology, table
        self._timeout_ms = round(timeout * 1000)
        self._known: dict[int, Layout] = {}
        self._lock = threading.Lock()

    def layout(self, layout_id: int) -> Layout:
        """Return the layout with an id. Raises Skippable if it is not stored, Retriable if HBase does not answer.

        A layout is stored before its first row, so a missing one means that the row is invalid."""
        with self._lock:
            known = self._known.get(layout_id)
            if known is None:
                known = self._known[layout_id] = self._read(layout_id)
            return known

    def newest_read(self) -> Layout | None:
        """Return the newest of the layouts that were read before, or None. Does not ask HBase."""
        with self._lock:
            return self._known[max(self._known)] if self._known else None

    def newest(self) -> Layout | None:
        """Return the layout with the greatest id, or None if none is stored. Raises the same errors as `layout`."""
        with self._layouts_table() as table:
            ids = [int(key.rpartition(b"/")[2]) for key, _ in table.scan(row_prefix=layout_rows_prefix(self._table))]
        return self.layout(max(ids)) if ids else None

    def stored(self) -> list[bytes]:
        """Return all layouts as they are stored, also those that this version cannot read. Raises Retriable."""
        with self._layouts_table() as table:
            rows = table.scan(row_prefix=layout_rows_prefix(self._table), columns=[_COLUMN])
            return [cells[_COLUMN] for _, cells in rows if _COLUMN in cells]

    @contextlib.contextmanager
    def _layouts_table(self) -> Iterator[happybase.Table]:
        host, _, port = self._thrift.rpartition(":")
        try:
            with contextlib.closing(happybase.Connection(host, int(port), timeout=self._timeout_ms)) as connection:
                yield connection.table(layouts_table(self._topology))
        except (TException, OSError) as error:
            raise Retriable(
                f"HBase's Thrift server at {self._thrift} does not answer: {error}", "`tailorbird stack status`"
            ) from error

    def _read(self, layout_id: int) -> Layout:
        with self._layouts_table() as table:
            cells = table.row(layout_row(self._table, layout_id), columns=[_COLUMN])
        if _COLUMN not in cells:
            raise Skippable(f"layout {layout_id} of table {self._table} is not stored")
        try:
            return load_layout(cells[_COLUMN])
        except (KeyError, ValueError, TypeError) as error:
            raise Skippable(f"layout {layout_id} of table {self._table} cannot be read: {error!r}") from error
