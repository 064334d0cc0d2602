"""Derive the schema versions of a table's rows from the records of `…history` and `…schemas`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import orjson

from cdc.model.errors import Skippable
from cdc.model.filters import TableRule
from cdc.model.schema import TableId, TableSchema, schema_from_json
from cdc.topology.topology import Topology
from ingest.changes.feed_interfaces import SchemaVersions
from ingest.events.published import published


class SchemaRecords:
    """All records of both topics so far. A record may be added twice."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._newest: dict[TableId, TableSchema] = {}
        self._history: dict[str, tuple[TableId, int, TableSchema | None]] = {}

    def schema(self, value: bytes | None) -> None:
        """Add a record of `…schemas`. Raises ValueError, KeyError or TypeError if it is malformed."""
        if value is not None:
            schema = schema_from_json(orjson.loads(value))
            self._newest[schema.table_id] = schema

    def history(self, key: bytes | None, value: bytes | None) -> None:
        """Add a record of `…history`."""
        name = (key or b"[]").decode(errors="replace")
        if value is None:
            self._history.pop(name, None)
            return
        change: Mapping[str, Any] = orjson.loads(value)
        if orjson.loads(name)[:1] not in (["state"], ["change"]) or "table" not in change:
            return
        table = TableId(source=change["source"], database=change["database"], table=change["table"])
        schema = schema_from_json(change["schema"]) if change["schema"] else None
        self._history[name] = table, int(change["sequence"]), schema

    def tables(self) -> Iterable[TableId]:
        """Return the tables of which rows may have been published."""
        return tuple(self._newest)

    def of(self, table: TableId) -> SchemaVersions:
        """Return the published schemas of a table, by sequence number. Raises KeyError if there is none."""
        newest = self._newest[table]
        source = self._topology.sources.get(table.source)
        rule = source.rule_of(table) if source is not None else None
        found: dict[int, TableSchema] = {}
        # of two records with one number, that of the change is used and not that of the state
        for _, (of, number, schema) in sorted(self._history.items(), key=lambda record: record[0].startswith('["c')):
            if of == table and schema is not None and (left := _left(schema, rule, newest)) is not None:
                found[number] = left
        return SchemaVersions(tuple(sorted(found.items())) or ((0, newest),))


def _left(schema: TableSchema, rule: TableRule | None, newest: TableSchema) -> TableSchema | None:
    """Return the published form of a schema of the history; None if the table had no key at the time."""
    try:
        return published(schema, (), rule)
    except Skippable:
        pass  # the history does not contain unique keys, so the key of the newest schema is tried below
    if any(schema.column(name) is None for name in newest.primary_key):
        return None
    try:
        return published(schema, (), TableRule(message_key_columns=newest.primary_key))
    except Skippable:
        return None  # no row with this schema was published
