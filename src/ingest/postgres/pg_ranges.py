"""Divide the rest of a table into ranges of its key, by the keys of a sample of its blocks.

The server sorts the sample, so the order of the keys is right for every type and collation. The sample reads some
hundred blocks of a table of any size.
"""

from __future__ import annotations

from cdc.model.schema import TableSchema
from ingest.postgres import selects
from ingest.postgres.pg_connection import PgConnection
from ingest.records.chunk_requests import Key

_BLOCKS = 40  # blocks that are sampled for each range
_ROW = 100  # bytes of a row, for a table that was never analysed
# the size in blocks of a table, or of a partitioned table's partitions
_SIZE = """
SELECT coalesce(sum(pg_relation_size(c.oid)), 0) / current_setting('block_size')::int, sum(greatest(c.reltuples, 0)),
    coalesce(sum(pg_relation_size(c.oid)), 0)
FROM pg_class c WHERE c.relkind = 'r' AND (c.oid = {0}::regclass
    OR c.oid IN (SELECT relid FROM pg_partition_tree({0}::regclass)))
"""


def cuts_of(
    connection: PgConnection, schema: TableSchema, source: str, after: Key, last: Key, wanted: int, least: int
) -> list[Key]:
    """Return keys that divide the rows above `after` up to `last` into at most `wanted` ranges of about equal size.

    `source` is what follows FROM. No range should have fewer than `least` rows.
    """
    name = selects.literal(selects.named(schema.table_id))
    ((blocks, analysed, size),) = connection.texts(_SIZE.format(name))
    rows = float(analysed or 0) or float(size) / _ROW
    wanted = min(wanted, int(rows / least))
    if wanted < 2:
        return []
    share = min(100.0, 100.0 * _BLOCKS * wanted / max(float(blocks), 1.0))
    sql, arguments = selects.select_sample(schema, source, after, last, share)
    sample = connection.query(sql, arguments)
    places = sorted({len(sample) * number // wanted for number in range(1, wanted)})
    found: list[Key] = []
    for place in places if sample else ():
        key = [(value or b"").decode() for value in sample[place]]
        if not found or key != found[-1]:
            found.append(key)
    return found
