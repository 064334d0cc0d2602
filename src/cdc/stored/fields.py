"""Names of Solr fields. A column keeps its own name; every name of ours begins with `_`, which columns may not.

Solr's unique key is `_id`, so that a column `id` stays a column.
"""

from __future__ import annotations

UNIQUE_KEY = "_id"
KIND = "_kind"  # "row" or "barrier"; the stub that a delete leaves has none, so `_kind:row` hides it
ROW, BARRIER = "row", "barrier"
FENCE = "_fence"  # the version that decides which of two writes of a document is the newer one
TS = "_ts"  # commit time (ms) at the source of the newest change that the row shows
INDEXED_AT = "_indexed_at"  # when the indexer posted the document (ms)
BATCH = "_batch"
LAYOUT = "_layout"
ROW_KEY = "_row"  # of documents of foreign tables: the row key in hexadecimal
TIMESTAMP = "_stamp"  # of barriers: the batch's stamp (ms)
BUCKETS = "_buckets"  # of barriers: how many buckets each hold a barrier
POSITIONS = "_positions"  # of barriers: JSON, source → position that the table reflects at least

INCOMPLETE = "_incomplete"  # of barriers: how many records and rows the join has refused since its run began


def query_field(column: str) -> str:
    """The field to filter, sort and range over where the exact one is text: pdouble for decimal, pdate for times."""
    return f"_q_{column}"


def words_field(column: str) -> str:
    """The analysed field of a column that an index searches by words."""
    return f"_t_{column}"


def members_field(column: str) -> str:
    """The field with the members of a SET one by one, to count and filter by."""
    return f"_m_{column}"


def location_field(column: str) -> str:
    """The field with a point's place on earth, to filter and sort by distance; absent where it has none."""
    return f"_l_{column}"


# How the names of fields begin that are made from a column's to query by, and are not stored.
MADE = ("_q_", "_t_", "_m_", "_l_")


def barrier_id(bucket: int) -> str:
    """Unique key of a bucket's barrier; no row's id, which is hexadecimal."""
    return f"barrier-{bucket}"


def probe_id(token: str) -> str:
    """Unique key of a stub by which an indexer sees that Solr is ready; no row's id, which is hexadecimal."""
    return f"probe-{token}"
