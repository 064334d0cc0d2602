"""Find an older position in a server's binary log, and the tables that can be decoded from it on.

The log is read once, from the beginning of the file that contains the position to the log's end, without decoding rows.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from cdc.model.errors import UsageError
from cdc.model.event import Position
from cdc.topology.topology import Source
from ingest.binlog import BinlogPosition, BinlogReader, StreamOptions
from ingest.binlog.format.codes import EventType
from ingest.binlog.format.errors import CorruptBinlog, MissingTableMap, UndecodableValue, UnsupportedEvent
from ingest.binlog.format.gtid import AnyGtidSet, covers
from ingest.binlog.format.packed import U32
from ingest.binlog.transports.mysql_transport import MysqlTransport
from ingest.events.log_place import LogPlace, parse_place, time_text
from ingest.events.log_scan import LogStart, start_of
from ingest.events.tables import Tables
from ingest.mysql.mysql_connection import address_of, connected, query, translated
from ingest.records.capture_interfaces import ServerTables

_FIRST_EVENTS = frozenset({EventType.ROTATE, EventType.FORMAT_DESCRIPTION, EventType.HEARTBEAT, EventType.HEARTBEAT_V2})


def log_start(
    source: Source, text: str, stopped: Callable[[], bool], seen: ServerTables, head: Position, tables: Tables
) -> LogStart | None:
    """Return the start of a capture at a GTID set, position or time; None if `stopped` returns True before.

    `seen` are the server's tables at its log's end `head`.

    Raises UsageError if the text is no position, or the log does not contain it.
    """
    place = parse_place(text, maria=seen.dialect.maria)
    file = _file_of(source, place, stopped)
    if not file:
        return None
    with _reading(source, file, tables) as reader, _readable(source):
        return start_of(
            reader, place, file, seen.dialect, seen.catalog, head, tables,
            now_micros=time.time_ns() // 1000, stopped=stopped,
        )  # fmt: skip


def _file_of(source: Source, place: LogPlace, stopped: Callable[[], bool]) -> str:
    """Return the log file that contains a place; an empty text if `stopped` returns True before. Raises UsageError if
    the server does not have it."""
    with connected(source) as connection, translated(source, "list the server's binary logs"):
        files = [str(row[0]) for row in query(connection, "SHOW BINARY LOGS")]
    if place.file:
        if place.file in files:
            return place.file
        what = f"source {source.name}: the server has no binary log {place.file}"
        raise UsageError(what, f"choose a position from {files[0]} to {files[-1]}")
    began = 0
    for file in reversed(files):
        if stopped():
            return ""
        began, before = _begin_of(source, file)
        # a log from its very beginning contains everything
        whole = file == files[0] and not before and file.rpartition(".")[2].strip("0") == "1"
        if whole or (place.gtids is not None and before is not None and covers(place.gtids, before)):
            return file
        if place.micros is not None and began * 1_000_000 <= place.micros:
            return file
    what = (
        f"source {source.name}: the log lacks {place.text}: the server has purged it before {files[0]}, which begins "
    )
    what += f"at {time_text(began * 1_000_000)}"
    raise UsageError(what, "choose a later time, or a GTID set that contains the server's purged transactions")


def _begin_of(source: Source, file: str) -> tuple[int, AnyGtidSet | None]:
    """Return when a log file begins (seconds since 1970), and the transactions before it."""
    began = 0
    with _reading(source, file, None) as reader:
        for raw in reader.raw_events():
            if raw.code == EventType.FORMAT_DESCRIPTION:
                began = U32(raw.data, 0)[0]
            elif raw.code not in _FIRST_EVENTS:
                break
        return began, reader.stream.progress.gtids


@contextmanager
def _readable(source: Source) -> Iterator[None]:
    """Turn errors of a damaged log into UsageError. A normal start repairs such a log, but not a search through it."""
    try:
        yield
    except (CorruptBinlog, UnsupportedEvent, MissingTableMap, UndecodableValue) as damage:
        what = f"source {source.name}: the log cannot be read to its end: {damage.message}"
        raise UsageError(what, "choose a later place, or start without --from") from damage


@contextmanager
def _reading(source: Source, file: str, tables: Tables | None) -> Iterator[BinlogReader]:
    """Read a log file from its beginning to the log's end, over a connection of its own."""
    # another server id, because a server disconnects the older of two readers with one id
    address = replace(address_of(source), server_id=0, follow=False)
    options = StreamOptions(tables=tables.captured if tables is not None else lambda database, table: False)
    reader = BinlogReader(MysqlTransport(address), BinlogPosition(file=file, position=4), options)
    try:
        yield reader
    finally:
        reader.close()
