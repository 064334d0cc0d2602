"""Leave out tables that cannot be captured, and capture them again once the cause is gone. Runs between transactions.

A schema change in the log or on the server may make a table unsupported, or supported again. When it is left out, that
is logged once and stored in the checkpoint. So even after a restart, a snapshot starts when it is supported again.
"""

from __future__ import annotations

from collections.abc import Callable

from cdc.model.errors import Skippable
from cdc.model.event import Position
from cdc.model.schema import TableId
from ingest.capture.observer import Observer
from ingest.ddl.catalog import TableDefinition
from ingest.events.columns import same_columns
from ingest.events.left_out import LeftOutTable
from ingest.events.tables import Tables
from ingest.records.capture_interfaces import Record
from ingest.records.records import Recorder
from ingest.repair.repairs import name_of
from ingest.repair.rounds import RepairRunner


def update_left_out(
    tables: Tables,
    repairs: RepairRunner,
    recorder: Recorder,
    observer: Observer,
    number: Callable[[], int],
    position: Callable[[], Position],
    now_ms: int,
    *,
    reads: bool = True,
) -> list[Record]:
    """Record tables that are newly left out, and start snapshots of tables that are supported again.

    Returns the records to append. `number` takes the next sequence number. Without `reads`, tables are captured again
    without a snapshot. `position` is the one in the source's log.
    """
    if not tables.unsettled:
        return []
    undecided, records = tables.take_undecided(), list[Record]()
    found = tables.left_out(undecided)
    for table in [tables.named(name) for name in tables.passed] if undecided is None else sorted(undecided):
        name = name_of(table)
        if name not in tables.passed or table in found or (table.database, table.table) in tables.catalog.unknown:
            continue
        del tables.passed[name]
        marker = number()
        if tables.exists(table) and tables.captured(table.database, table.table):
            observer.phase("table is captured again: it was left out; its snapshot starts", table=str(table))
            records.append(recorder.schema(tables.schema(table)))
            repairs.drop(table)
            if reads:
                repairs.snapshots.start(table, where=tables.where(table), marker=marker)
            else:
                repairs.snapshots.mark_partial(table)
    for table, why in found.items():
        held = tables.passed.get(name_of(table))
        repairs.snapshots.stop(table)
        repairs.drop(table)
        if held is None or not _is_same(held, why):
            since, rows = (held["since_ms"], held["rows"]) if held else (now_ms, 0)
            left = LeftOutTable(since_ms=since, rows=rows, why=why.message, remedy=why.hint)
            if held and held.get("ended"):
                left["ended"] = True
            tables.passed[name_of(table)] = left
            number()
        if tables.merged.contains(table):
            records += _end_rows(tables, recorder, table, position(), number, now_ms)
        if name_of(table) not in tables.reported:
            tables.reported.add(name_of(table))
            observer.phase("table is left out", table=str(table), why=why.message, remedy=why.hint)
    tables.reported.intersection_update(tables.passed)
    return records


def _end_rows(
    tables: Tables, recorder: Recorder, table: TableId, position: Position, number: Callable[[], int], now_ms: int
) -> list[Record]:
    """Return the marker that ends the rows of a table that no longer fits into its merged table, once."""
    left, schema = tables.passed[name_of(table)], recorder.published.get(table)
    if left.get("ended"):
        return []
    left["ended"] = True
    # without a schema no row of it was published
    return [] if schema is None else [recorder.writer(schema).marker(position, number(), now_ms)]


def _is_same(held: LeftOutTable, why: Skippable) -> bool:
    return (held["why"], held["remedy"]) == (why.message, why.hint)


def differs(known: TableDefinition | None, shown: TableDefinition, table: TableId) -> bool:
    """Return whether the server's definition (`shown`) differs from the known one in engine, primary key or columns, or
    only one of both is a sequence. True if none is known."""
    if known is None or known.primary_key != shown.primary_key:
        return True
    if (known.engine or shown.engine).lower() != shown.engine.lower() or known.sequence != shown.sequence:
        return True
    return not same_columns(known.schema(table, 0).columns, shown.schema(table, 0).columns)
