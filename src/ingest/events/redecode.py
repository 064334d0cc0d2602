"""Decode quarantined rows, which were stored as raw events, once their columns are known.

The columns come from the server, if the table has not changed since, or from an operator. The rows are then published
in order, with new sequence numbers, before any later row of the table.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from struct import error as StructError
from typing import Any

from cdc.model.errors import Skippable
from cdc.model.schema import Column, TableId
from ingest.binlog.format.canonical import Unrepresentable
from ingest.binlog.format.codes import HEADER_SIZE
from ingest.binlog.format.columns import ColumnHint, apply_schema
from ingest.binlog.format.errors import BinlogError
from ingest.binlog.format.server_version import server_version_of
from ingest.binlog.format.tablemap import parse_table_map
from ingest.binlog.rows.rows import TableDecoder
from ingest.events.log_events import RowsLogged, TransactionBegan
from ingest.events.row_events import ENVELOPE, OPERATION, judged_rows


def decoded(dead_letter: Mapping[str, Any], columns: Sequence[Column]) -> tuple[TransactionBegan, RowsLogged]:
    """Decode the log events of a quarantine record. Raises Skippable if the columns do not fit its rows."""
    table = TableId(source=dead_letter["source"], database=dead_letter["database"], table=dead_letter["table"])
    event, mapped = base64.b64decode(dead_letter["event"]), base64.b64decode(dead_letter["table_map"])
    hints = [ColumnHint(name=c.name, type=c.column_type, charset=c.charset) for c in columns]
    plain = True
    try:
        found = parse_table_map(mapped[HEADER_SIZE:], server_version_of(dead_letter["server"]))
        known = apply_schema(found.columns, hints, found.name)
        decoder = TableDecoder(type(found)(**{**_fields(found), "columns": known}), ENVELOPE)
        try:
            rows = decoder.decode(event[4], event)
        except Unrepresentable:
            rows, plain = judged_rows(decoder, event, 6), False
    except (BinlogError, StructError, IndexError, ValueError, KeyError) as error:
        why = error.reason if isinstance(error, BinlogError) else f"the event cannot be decoded: {error}"
        raise Skippable(
            f"rows of {table} at {dead_letter['file']}:{dead_letter['pos']} do not have these columns: {why}",
            "`tailorbird schema set` with the columns of that place",
        ) from error
    began = TransactionBegan(
        dead_letter["gtid"],
        dead_letter["source_ts_ms"] * 1000,
        dead_letter["server_id"],
        dead_letter["file"],
        dead_letter["pos"],
    )
    return began, RowsLogged(table, OPERATION[event[4]], rows, plain, dead_letter["file"], dead_letter["pos"])


def _fields(table: Any) -> dict[str, Any]:
    return {name: getattr(table, name) for name in type(table).__dataclass_fields__}


def waiting(dead_letters: Iterable[Mapping[str, Any]], table: TableId, first: int) -> list[Mapping[str, Any]]:
    """Return the quarantine records of a table, in order, that have this or a later sequence number."""
    mine = (
        dead_letter
        for dead_letter in dead_letters
        if (dead_letter["source"], dead_letter["database"], dead_letter["table"])
        == (table.source, table.database, table.table)
        and dead_letter["sequence"] >= first
    )
    return sorted(mine, key=lambda dead_letter: int(dead_letter["sequence"]))
