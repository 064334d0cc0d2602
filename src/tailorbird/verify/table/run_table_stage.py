"""Run the table stage of `tailorbird verify`: connect to the servers, compare each table, repair it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

from cdc.model.errors import Skippable
from cdc.topology.topology import Table
from tailorbird.verify.findings import Verdict
from tailorbird.verify.request import Request, StageResult, Terminal
from tailorbird.verify.settling import settling_policy
from tailorbird.verify.table.kept_rows import kept_rows
from tailorbird.verify.table.run_table_repair import repaired
from tailorbird.verify.table.source_query import SourceQuery, obstacle
from tailorbird.verify.table.table_stage import TableStage
from tailorbird.verify.verdict_text import timestamp_reported

_BETWEEN_LOOKS = 1.0  # seconds


def verify_tables(request: Request, terminal: Terminal) -> Iterator[StageResult]:
    """Compare each table with the result of its query, and repair it if requested.

    Raises Retriable while a server is unavailable."""
    for name in request.tables:
        yield _verified(request, request.topology.tables[name], terminal)


def _verified(request: Request, table: Table, terminal: Terminal) -> StageResult:
    topology, reads = request.topology, request.reads[table.name]
    kept = kept_rows(topology, table, settling=settling_policy())
    kept.check(topology.file)
    layout, barrier = kept.layout(), kept.barrier()
    cut = timestamp_reported(barrier.timestamp if barrier else None)
    why, until = obstacle({one.source: topology.sources[one.source] for one in reads}, layout, barrier)
    incomparable = Verdict(stage="table", table=table.name, cut=cut)
    if why or layout is None:
        return StageResult(verdict=replace(incomparable, unknown=(why,), until=until))
    try:
        with terminal.progress(f"table {table.name}", None) as reported:
            stage = TableStage(
                table=table.name,
                row_key=layout.row_key,
                columns=tuple(column.name for column in layout.columns),
                sources=SourceQuery(topology, table, layout, reads, clock=kept.clock),
                kept=kept,
                store=kept.store,
                seconds=time.monotonic,
                pause=lambda _: time.sleep(_BETWEEN_LOOKS),
                reported=reported,
            )
            verdict, wrong = stage.compare()
        if not (request.repair and wrong):
            return StageResult(verdict=verdict)
        return repaired(request, table, kept, stage, verdict, wrong, terminal)
    except Skippable as error:
        return StageResult(verdict=replace(incomparable, unknown=(error.message,), until="change"))
