"""Read the binary logs of MySQL and MariaDB without loss: from files or servers, as events or rows.

The package can be imported alone: it needs no Kafka and no Spark. `open_binlog(uri)` returns a `Binlog`.
`open_reader(uri)` is faster, for consumers that only need row changes.
"""

from ingest.binlog.binlog import Binlog
from ingest.binlog.format.columns import ColumnHint, LoggedColumn, SchemaSource
from ingest.binlog.format.flavour import ABSENT, Flavour
from ingest.binlog.format.tablemap import TableMap
from ingest.binlog.json.diff import JsonDiff, JsonDiffs, apply_diffs
from ingest.binlog.json.jsonb import JSON_NULL
from ingest.binlog.reading.handlers import ContentHandler, HandlerChain, TransactionAggregator
from ingest.binlog.reading.position import BinlogPosition, parse_position
from ingest.binlog.reading.reader import BinlogReader, Statement
from ingest.binlog.reading.stream import Committed, EventStream, RowBatch, StreamOptions
from ingest.binlog.run_binlog import create_transport, open_binlog, open_reader

__all__ = [
    "ABSENT",
    "JSON_NULL",
    "Binlog",
    "BinlogPosition",
    "BinlogReader",
    "ColumnHint",
    "Committed",
    "ContentHandler",
    "EventStream",
    "Flavour",
    "HandlerChain",
    "JsonDiff",
    "JsonDiffs",
    "LoggedColumn",
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
