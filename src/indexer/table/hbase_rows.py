"""Read and decode all rows of a joined table."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Iterator

import happybase
from thriftpy2.thrift import TException

from cdc.model.errors import Fatal, Retriable
from cdc.model.naming import hbase_table
from cdc.stored.cells import RowCodec, StoredRow, is_barrier, layout_id_of
from cdc.topology.topology import Table, Topology
from indexer.table.hbase_layouts import StoredLayouts

# HBase closes a scanner that gets no call for 60 s, so batches are small enough to decode in between.
_BATCH = 1000


def scan_rows(topology: Topology, table: Table) -> dict[bytes, StoredRow]:
    """Return every row of a table by row key, decoded with its stored layout, without barriers.

    Raises Fatal if a row cannot be decoded with its layout, Retriable if HBase does not answer. Rows that are
    written during the scan may be missing, so scan while nothing is written."""
    layouts = StoredLayouts(topology.hbase.thrift, topology=topology.name, table=table.name)
    codecs: dict[int, RowCodec] = {}
    rows: dict[bytes, StoredRow] = {}
    for row_key, cells in _scan(topology, table):
        try:
            layout_id = layout_id_of(cells)
            codec = codecs.get(layout_id)
            if codec is None:
                codec = codecs[layout_id] = RowCodec(layouts.layout(layout_id))
            rows[row_key] = codec.row(cells)
        except (KeyError, ValueError, struct.error) as error:
            name = hbase_table(topology.name, table.name)
            raise Fatal(f"row {row_key.hex()} of {name} cannot be read through its layout: {error!r}") from error
    return rows


def _scan(topology: Topology, table: Table) -> Iterator[tuple[bytes, dict[bytes, bytes]]]:
    """Yield each row key with its cells by qualifier, without barriers."""
    host, _, port = topology.hbase.thrift.rpartition(":")
    prefix = len(table.family) + 1
    try:
        with contextlib.closing(happybase.Connection(host, int(port), timeout=60_000)) as connection:
            # no variable holds the scanner: it closes itself through the connection, so it must end before that does
            for row_key, cells in connection.table(hbase_table(topology.name, table.name)).scan(
                columns=[table.family.encode()], batch_size=_BATCH
            ):
                if not is_barrier(row_key):
                    yield row_key, {column[prefix:]: value for column, value in cells.items()}
    except (TException, OSError) as error:
        raise Retriable(
            f"HBase's Thrift server at {topology.hbase.thrift} does not answer: {error}", "`tailorbird stack status`"
        ) from error
