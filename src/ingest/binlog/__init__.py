"""A listener for the binary logs of MySQL and MariaDB that loses nothing: files or servers in, events or rows out.

Importable alone: it needs no Kafka and no Spark. `open_binlog(uri)` gives a `Binlog`; `open_reader(uri)` is the fast
way for consumers of row changes only.
"""

from ingest.binlog.binlog import Binlog
from ingest.binlog.columns import Column, ColumnHint, SchemaSource
from ingest.binlog.flavour import ABSENT, Flavour
from ingest.binlog.handlers import ContentHandler, Pipeline, TransactionAggregator
from ingest.binlog.jsonb import JSON_NULL
from ingest.binlog.jsondiff import JsonDiff, JsonDiffs, apply_diffs
from ingest.binlog.position import Checkpoint, parse_position
from ingest.binlog.reader import Reader, Statement
from ingest.binlog.run import create_transport, open_binlog, open_reader
from ingest.binlog.stream import Committed, EventStream, RowBatch, StreamOptions
from ingest.binlog.tablemap import TableMap

__all__ = [
    "ABSENT",
    "JSON_NULL",
    "Binlog",
    "Checkpoint",
    "Column",
    "ColumnHint",
    "Committed",
    "ContentHandler",
    "EventStream",
    "Flavour",
    "JsonDiff",
    "JsonDiffs",
    "Pipeline",
    "Reader",
    "RowBatch",
    "SchemaSource",
    "Statement",
    "StreamOptions",
    "TableMap",
    "TransactionAggregator",
    "apply_diffs",
    "create_transport",
    "open_binlog",
    "open_reader",
    "parse_position",
]
