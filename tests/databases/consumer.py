"""A consumer of the topics that works like the joins: rows by key, with the columns of the newest schema.

A record has the schema of its time. A column that was added later reads as the default it was added with; a value of an
older type is converted if the conversion is exact.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from cdc.model.naming import TRUNCATE_KEY, change_topic, history_topic, schemas_topic
from cdc.model.schema import TableId, TableSchema
from cdc.model.types import SPATIAL
from cdc.topology.topology import Topology
from ingest.changes.versions import SchemaRecords
from ingest.records.capture_interfaces import Record
from joins.query.convert import Unfit, fit_of
from joins.query.drift import default_of, remembering

Records = Mapping[str, list[Record]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumedTable:
    """A consumer's rows of one table: `rows` under the columns of `schema`; `wrong`: what it cannot read."""

    schema: TableSchema
    rows: list[dict[str, Any]]
    wrong: list[str]


def consumed(topology: Topology, records: Records) -> dict[str, ConsumedTable]:
    """Return a consumer's rows of every table that was ever published, by the table's name."""
    schemas = SchemaRecords(topology)
    alive: dict[TableId, bool] = {}
    for record in records.get(schemas_topic(topology.name), ()):
        schemas.schema(record.value)
    for record in records.get(history_topic(topology.name), ()):
        schemas.history(record.key, record.value)
    for table in schemas.tables():
        alive[table] = True
    return {table.table: _held(topology, table, schemas, records) for table in alive}


def _held(topology: Topology, table: TableId, schemas: SchemaRecords, records: Records) -> ConsumedTable:
    schema = remembering([schema for _, schema in schemas.of(table).found])
    images, wrong = rows_of(records.get(change_topic(topology.name, table), ()))
    rows = []
    for image in images:
        row: dict[str, Any] = {}
        for column in schema.columns:
            value = image[column.name] if column.name in image else default_of(schema, column.name)
            if column.type.kind in SPATIAL and isinstance(value, dict):
                row[column.name] = value  # compared by the bytes of its WKB
                continue
            try:
                row[column.name] = fit_of(column.type)(value)
            except Unfit:
                wrong.append(f"{column.name} holds {value!r}, which is no {column.column_type}")
                row[column.name] = value
        rows.append(row)
    return ConsumedTable(schema=schema, rows=rows, wrong=wrong[:3])


def rows_of(records: Iterable[Record]) -> tuple[list[dict[str, Any]], list[str]]:
    """Return a consumer's rows at a topic's end, by the records' order, and errors in this order.

    A second consumer uses `source.sequence` and drops older records: both must have the same rows.
    """
    rows: dict[bytes, tuple[int, Any]] = {}
    by_number: dict[bytes, tuple[int, Any]] = {}
    for record in records:
        if record.value is None:
            rows.pop(record.key, None)
            continue
        event = orjson.loads(record.value)
        number = event["source"]["sequence"]
        if record.key == TRUNCATE_KEY:
            rows = {key: one for key, one in rows.items() if one[0] >= number}
            by_number = {key: one for key, one in by_number.items() if one[0] >= number}
            continue
        rows[record.key] = number, event["after"]
        if event["after"] is None:
            del rows[record.key]
        if record.key not in by_number or number >= by_number[record.key][0]:
            by_number[record.key] = number, event["after"]
    alive = {key: row for key, (_, row) in rows.items()}
    other = {key: row for key, (_, row) in by_number.items() if row is not None}
    keys = [key for key in {*alive, *other} if alive.get(key) != other.get(key)]
    return list(alive.values()), [f"a reader by order and one by sequence differ: {keys[:3]}"] if keys else []
