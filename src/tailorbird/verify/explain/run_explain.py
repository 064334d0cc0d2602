"""Run `tailorbird explain`: read the row and its trace from its store, and the schemas and events from Kafka."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import orjson

from cdc.model.errors import Retriable, UsageError
from cdc.model.extras import extras_named
from cdc.model.types import Canonical
from cdc.stored.layout import Layout
from cdc.stored.traces import Origin
from cdc.topology.topology import Table, Topology
from joins.query.drift import remembering
from joins.select.compiler import compile_plan
from joins.select.parser import tables_of
from joins.stores.kafka_schemas import read_versions
from tailorbird.verify.explain.events import Versions, named, read
from tailorbird.verify.explain.explanation import Explanation, TracedEvent, TracedRow, explained
from tailorbird.verify.explain.hbase_row import JoinedRows
from tailorbird.verify.explain.kafka_event import MissingRecord, RecordReader
from tailorbird.verify.explain.pg_row import PostgresTracedRows
from tailorbird.verify.explain.traced_rows import TracedRows

_SCHEMAS = 10.0  # seconds


def traced_rows(topology: Topology, table: Table) -> TracedRows:
    """Return the reader of a table's rows with their traces."""
    if table.sink == "iceberg":
        with extras_named("iceberg"):
            from tailorbird.verify.explain.iceberg_row import IcebergTracedRows

        return IcebergTracedRows(topology, table)
    return PostgresTracedRows(topology, table) if table.sink == "postgres" else JoinedRows(topology, table)


class Explainer(contextlib.AbstractContextManager["Explainer"]):
    """Explains rows of one table. A context manager, which closes the Kafka consumer.

    Raises UsageError for an unknown table or column, Retriable while a server is unavailable."""

    def __init__(self, topology: Topology, table: str) -> None:
        if table not in topology.tables:
            raise UsageError(f"{topology.file}: no table {table}", "one of " + ", ".join(topology.tables))
        self.table = topology.tables[table]
        self._rows = traced_rows(topology, self.table)
        self._versions = _versions(topology, table)
        schemas = {table_id: remembering(list(some)) for table_id, some in self._versions.items()}
        self.plan = compile_plan(topology, self.table, schemas)
        self._log = RecordReader(topology.log.brokers)

    def __exit__(self, *exc: object) -> None:
        self._log.__exit__(*exc)

    @property
    def layout(self) -> Layout:
        """Return the newest layout of the table."""
        return self._rows.layout

    def explain(self, key: Mapping[str, Canonical], columns: Sequence[str] = ()) -> Explanation | None:
        """Explain the row with a key, or only its cells in `columns`. None if there is no such row. Raises UsageError
        for an unknown column or an invalid key."""
        if unknown := [name for name in columns if name not in (one.name for one in self.layout.columns)]:
            raise UsageError(f"table {self.table.name} has no column {unknown[0]}", "look at `tailorbird explain-plan`")
        row = self._rows.row(key)
        return None if row is None else self._explained(row, columns)

    def explain_at(self, row_key: bytes) -> Explanation | None:
        """Explain the row at an HBase row key, whose hexadecimal form is the id of its document. None if there is no
        such row."""
        row = self._rows.row_at(row_key)
        return None if row is None else self._explained(row, ())

    def _explained(self, row: TracedRow, columns: Sequence[str]) -> Explanation:
        not_known = ""
        if row.trace is None:
            not_known = "the row was written by a version without traces; it can be explained after its next change"
        elif row.layout_id != self.layout.id:
            not_known = f"the row has layout {row.layout_id} of an older query, and was not written again since"
        origins = [one for one in row.trace or () if isinstance(one, Origin) and not not_known]
        events = [self._read(event) for one in origins if (event := named(self.plan, one)) is not None]
        return explained(self.plan, row, events, columns, unknown=not_known)

    def _read(self, event: TracedEvent) -> TracedEvent:
        record = self._log.record(event.topic, event.partition, event.offset)
        if isinstance(record, MissingRecord):
            return replace(event, state="gone", why=record.why)
        return read(self.plan, event, *record, self._versions)


def _versions(topology: Topology, table: str) -> Versions:
    needed = tables_of(topology, topology.tables[table])
    deadline = time.monotonic() + _SCHEMAS
    brokers = topology.log.brokers
    found = read_versions(brokers, topology.name, needed, lambda _: None, lambda: time.monotonic() > deadline)
    if missing := sorted(str(one) for one in needed - set(found)):
        raise Retriable(f"no schema of {', '.join(missing)} in the log at {brokers}", "`tailorbird status` says why")
    return found


def keys_of(layout: Layout, text: str) -> Iterator[tuple[str, Canonical]]:
    """Parse a row key to (column, value): JSON values separated by commas, or one text without quotes. Raises
    UsageError for another number of values than the row key has."""
    try:
        values = orjson.loads(f"[{text}]")
    except ValueError:
        values = [text]
    if len(values) != len(layout.row_key):
        names = ", ".join(layout.row_key)
        raise UsageError(f"{text!r} has {len(values)} values", f"give those of {names} as JSON, separated by commas")
    yield from zip(layout.row_key, values, strict=True)
