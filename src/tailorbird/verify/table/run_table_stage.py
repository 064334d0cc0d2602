"""Run the table stage of `tailorbird verify`: connect to the sources, DuckDB and HBase, compare, repair by the join."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from cdc.model.errors import Skippable
from cdc.stored.layout import Layout
from cdc.topology.topology import Table, Topology
from ingest.postgres import selects
from ingest.records import chunks
from joins.select.compiler import compile_plan
from tailorbird.operate.status.kafka_dead_letters import newest_schemas
from tailorbird.verify.findings import Verdict
from tailorbird.verify.request import Request, StageResult, Terminal
from tailorbird.verify.settling import SettlingPolicy
from tailorbird.verify.table.hbase_stored_rows import StoredRows
from tailorbird.verify.table.kafka_reread import RereadRequester
from tailorbird.verify.table.rereads import TableReread, WhereKeys, rereads
from tailorbird.verify.table.source_query import SourceQuery, obstacle
from tailorbird.verify.table.table_repair import repair_rows
from tailorbird.verify.table.table_stage import DifferingRow, Row, TableStage
from tailorbird.verify.verdict_text import timestamp_reported

# Seconds to wait for the table: while it makes no progress, and in total.
_STANDSTILL, _MOST = 60.0, 600.0
_BETWEEN_LOOKS = 1.0


def verify_tables(request: Request, terminal: Terminal) -> Iterator[StageResult]:
    """Compare each table with the result of its query, and repair it if requested.

    Raises Retriable while a server is unavailable."""
    for name in request.tables:
        yield _verified(request, request.topology.tables[name], terminal)


def _verified(request: Request, table: Table, terminal: Terminal) -> StageResult:
    topology = request.topology
    kept = StoredRows(topology, table, settling=_settling())
    kept.joined.check(topology.file)
    layout, barrier = kept.layouts.newest(), kept.joined.barrier()
    why = obstacle(topology, table, layout, barrier)
    if why or layout is None:
        cut = timestamp_reported(barrier.timestamp if barrier else None)
        return StageResult(verdict=Verdict(stage="table", table=table.name, cut=cut, unknown=(why,)))
    try:
        return _compared(request, table, layout, kept, terminal)
    except Skippable as error:
        cut = timestamp_reported(barrier.timestamp if barrier else None)
        return StageResult(verdict=Verdict(stage="table", table=table.name, cut=cut, unknown=(error.message,)))


def _compared(request: Request, table: Table, layout: Layout, kept: StoredRows, terminal: Terminal) -> StageResult:
    topology = request.topology
    with terminal.progress(f"table {table.name}", None) as reported:
        stage = TableStage(
            table=table.name,
            row_key=layout.row_key,
            columns=tuple(column.name for column in layout.columns),
            sources=SourceQuery(topology, table, layout),
            kept=kept,
            seconds=time.monotonic,
            pause=lambda _: time.sleep(_BETWEEN_LOOKS),
            reported=reported,
        )
        verdict, wrong = stage.compare()
    if not (request.repair and wrong):
        return StageResult(verdict=verdict)
    return _repaired(request, table, kept, stage, verdict, wrong, terminal)


def _repaired(
    request: Request,
    table: Table,
    kept: StoredRows,
    stage: TableStage,
    verdict: Verdict,
    wrong: Sequence[DifferingRow],
    terminal: Terminal,
) -> StageResult:
    rebuild = f"`tailorbird run {request.topology.file} --rebuild {table.name}`"
    plan = _planned(request.topology, table)
    read = plan([row for one in wrong if (row := one.row) is not None])
    again = sum(one.expected is not None for one in wrong)
    if again and not read:
        why = f"not repaired: the join publishes such rows only when they change; {rebuild} rebuilds the table"
        return StageResult(verdict=verdict, repair=why)
    gone = len(wrong) - again
    if not read and not request.dry_run and not terminal.sure(f"{_extra(gone)}. Delete them anyway?"):
        why = f"nothing was removed: {_extra(gone)}; {rebuild} rebuilds the table, --force deletes the rows"
        return StageResult(verdict=verdict, repair=why)
    what = _steps(gone, again, read)
    if request.dry_run:
        return StageResult(verdict=verdict, repair=f"would {what}")
    if read and not terminal.ask(f"{what}?"):
        return StageResult(verdict=verdict, repair="nothing was repaired")
    join = RereadRequester(request.topology, plan, kept.joined.reached, settling=_settling())
    done = repair_rows(wrong, kept, join, now_ms=time.time_ns() // 1_000_000, without_join=not read)
    repaired = stage.look([one.key for one in wrong]).verdict
    line = done.line
    if repaired.differing and not done.reason:
        line += (
            f"; {repaired.differing:,} rows still differ: the join's state and the sources disagree. "
            f"No more is changed without your decision: {rebuild} rebuilds the table"
        )
    return StageResult(verdict=verdict, repair=line, repaired=repaired)


def _extra(gone: int) -> str:
    return f"the sources do not have {_rows(gone)} of HBase, and this table's join cannot write single rows again"


def _steps(gone: int, again: int, read: Sequence[TableReread]) -> str:
    """Describe the steps of a repair: rows to delete (`gone`), rows to write again, and source rows to read."""
    if not read:
        return f"delete {_rows(gone)} of HBase at their versions, if you confirm it (--force)"
    tables = ", ".join(f"{'rows' if one.where else 'all rows'} of {one.table}" for one in read)
    once_more = f"writes {_rows(again)} again" if again else "writes the rows again if it has them"
    parts = [f"read {tables} again, so that the join {once_more}"]
    if gone:
        parts.append(f"then delete those of {_rows(gone)} of HBase that the join has not written again")
    return ", and ".join(parts)


def _rows(count: int) -> str:
    return "1 row" if count == 1 else f"{count:,} rows"


def _planned(topology: Topology, table: Table) -> Callable[[Sequence[Row]], Sequence[TableReread]]:
    schemas = newest_schemas(topology)

    def where_of(source: str) -> WhereKeys:
        return selects.where_keys if topology.sources[source].type == "postgresql" else chunks.where_keys

    return partial(rereads, compile_plan(topology, table, schemas), schemas, where_of=where_of)


def _settling() -> SettlingPolicy:
    return SettlingPolicy(standstill=_STANDSTILL, most=_MOST)
