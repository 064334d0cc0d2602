"""Convert ChangeEvent ⇄ Debezium's JSON envelope without inline schema, as plain dicts for any JSON library.

Every Debezium consumer reads it (Flink `debezium-json`, Materialize, RisingWave). Source: Debezium's documentation of
"MySQL connector data change events".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cdc.model.event import ChangeEvent, Row, SourceInfo, TransactionInfo
from cdc.model.schema import TableId, TableSchema

VERSION = "tailorbird-1"


def to_envelope(event: ChangeEvent, topology: str) -> dict[str, Any]:
    """Return the record value of an event. `topology` is the first part of `source.name`, like Debezium's
    topic.prefix."""
    source, transaction = event.source, event.transaction
    polled = {"last_update_only": True} if source.last_update_only else {}
    partial = {"partial": True} if source.partial else {}
    phase = {"exact": source.exact, "inexact_after": source.inexact_after}
    return {
        "before": event.before,
        "after": event.after,
        "source": {
            "version": VERSION,
            "connector": source.connector,
            "name": f"{topology}.{source.table_id.source}",
            "ts_ms": source.ts_ms,
            "snapshot": source.snapshot,
            "db": source.table_id.database,
            "table": source.table_id.table,
            "server_id": source.server_id,
            "gtid": source.gtid,
            "file": source.file,
            "pos": source.pos,
            **partial,
            **{name: number for name, number in phase.items() if number},
            "row": source.row,
            "sequence": source.sequence,
            **polled,
        },
        "op": event.op,
        "ts_ms": event.ts_ms,
        "transaction": transaction
        and {
            "id": transaction.id,
            "total_order": transaction.total_order,
            "data_collection_order": transaction.data_collection_order,
        },
    }


def from_envelope(value: Mapping[str, Any]) -> ChangeEvent:
    """Read a record value. Raises KeyError or ValueError if it is not an envelope of Tailorbird."""
    source, transaction = value["source"], value["transaction"]
    if value["op"] not in ("c", "u", "d", "r", "t"):
        raise ValueError(f"op {value['op']!r} in an envelope")
    return ChangeEvent(
        op=value["op"],
        before=value["before"],
        after=value["after"],
        source=SourceInfo(
            table_id=TableId(source=source["name"].rpartition(".")[2], database=source["db"], table=source["table"]),
            ts_ms=source["ts_ms"],
            server_id=source["server_id"],
            gtid=source["gtid"],
            file=source["file"],
            pos=source["pos"],
            row=source["row"],
            sequence=source["sequence"],
            snapshot=source["snapshot"],
            connector=source["connector"],
            last_update_only=source.get("last_update_only", False),
            partial=source.get("partial", False),
            exact=source.get("exact", 0),
            inexact_after=source.get("inexact_after", 0),
        ),
        ts_ms=value["ts_ms"],
        transaction=transaction and TransactionInfo(**transaction),
    )


def key_of(schema: TableSchema, row: Row) -> dict[str, Any]:
    """Return the record key of a row: its primary key columns, in key order."""
    return {name: row[name] for name in schema.primary_key}
