"""Records of `…history` and `…schemas` → the schemas that a table's rows have, each from which number on; pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from cdc.model.errors import Skippable
from cdc.model.filters import TableRule
from cdc.model.schema import TableId, TableSchema, schema_from_json
from cdc.topology.topology import Topology
from ingest.changes.feed_interfaces import SchemaVersions
from ingest.events.published import published


class SchemaRecords:
    """All records of both topics so far; it may be told a record again."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._newest: dict[TableId, TableSchema] = {}
        self._history: dict[str, tuple[TableId, int, TableSchema | None]] = {}

    def schema(self, value: bytes | None) -> None:
        """Take a record of `…schemas`; ValueError, KeyError or TypeError where it is none."""
        if value is not None:
            schema = schema_from_json(json.loads(value))
            self._newest[schema.table_id] = schema

    def history(self, key: bytes | None, value: bytes | None) -> None:
        """Take a record of `…history`."""
        name = (key or b"[]").decode()
        if value is None:
            self._history.pop(name, None)
            return
        reported: Mapping[str, Any] = json.loads(value)
        if json.loads(name)[:1] not in (["state"], ["change"]) or "table" not in reported:
            return
        table = TableId(source=reported["source"], database=reported["database"], table=reported["table"])
        schema = schema_from_json(reported["schema"]) if reported["schema"] else None
        self._history[name] = table, int(reported["sequence"]), schema

    def tables(self) -> Iterable[TableId]:
        """Those of which rows can have been published."""
        return tuple(self._newest)

    def of(self, table: TableId) -> SchemaVersions:
        """The schemas of a table, as its rows leave its source; KeyError for one of which none was published."""
        newest = self._newest[table]
        source = self._topology.sources.get(table.source)
        rule = source.rules.get(table) if source is not None else None
        found: dict[int, TableSchema] = {}
        # what a change says stands above the state that was made of those before it
        for _, (of, number, schema) in sorted(self._history.items(), key=lambda record: record[0].startswith('["c')):
            if of == table and schema is not None and (left := _left(schema, rule, newest)) is not None:
                found[number] = left
        return SchemaVersions(tuple(sorted(found.items())) or ((0, newest),))


def _left(schema: TableSchema, rule: TableRule | None, newest: TableSchema) -> TableSchema | None:
    """A table as its rows left; None while it had nothing that tells them apart."""
    try:
        return published(schema, (), rule)
    except Skippable:
        pass  # it has a unique key, which the history does not hold as one: it is the newest one's, where it has that
    if any(schema.column(name) is None for name in newest.primary_key):
        return None
    try:
        return published(schema, (), TableRule(message_key_columns=newest.primary_key))
    except Skippable:
        return None  # no row of this schema was told
