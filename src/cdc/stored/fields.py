"""Names of Solr fields. A column keeps its own name. Every name of Tailorbird starts with `_`, which columns must not.

Solr's unique key is `_id`, so that a column `id` stays a column.
"""

from __future__ import annotations

UNIQUE_KEY = "_id"
KIND = "_kind"  # "row" or "barrier"; the tombstone of a deleted document has none, so `_kind:row` hides it
ROW, BARRIER = "row", "barrier"
FENCE = "_fence"  # the version that decides which of two writes of a document is newer
TS = "_ts"  # commit time (ms) at the source of the newest change that the row shows
INDEXED_AT = "_indexed_at"  # when the indexer posted the document (ms)
BATCH = "_batch"
LAYOUT = "_layout"
ROW_KEY = "_row"  # documents of external tables: the row key in hexadecimal
TIMESTAMP = "_stamp"  # barriers: the batch's timestamp (ms)
BUCKETS = "_buckets"  # barriers: the number of buckets, each with a barrier
POSITIONS = "_positions"  # barriers: JSON, source → position that the table reflects at least

INCOMPLETE = "_incomplete"  # barriers: number of open dead letters since the join's run started


def query_field(column: str) -> str:
    """Return the name of the field to filter, sort and range over. Decimals and times have one in addition to the exact
    text."""
    return f"_q_{column}"


def words_field(column: str) -> str:
    """Return the analysed field of a column that an index searches by words."""
    return f"_t_{column}"


def members_field(column: str) -> str:
    """Return the field with the members of a SET one by one, to count and filter by."""
    return f"_m_{column}"


def location_field(column: str) -> str:
    """Return the field with a point's location, to filter and sort by distance; absent if it has none."""
    return f"_l_{column}"


# Prefixes of fields that are derived from a column for queries, and are not stored.
MADE = ("_q_", "_t_", "_m_", "_l_")


def barrier_id(bucket: int) -> str:
    """Return the unique key of a bucket's barrier. It cannot be a row's id, which is hexadecimal."""
    return f"barrier-{bucket}"


def probe_id(token: str) -> str:
    """Return the unique key of a document with which an indexer checks that Solr is ready. It cannot be a row's id,
    which is hexadecimal."""
    return f"probe-{token}"
