"""Run the repair of a joined table: show the steps, ask the user, let the join write rows again, compare them again."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial

from cdc.topology.topology import Table, Topology
from ingest.postgres import selects
from ingest.records import chunks
from joins.select.compiler import compile_plan
from tailorbird.operate.status.kafka_dead_letters import newest_schemas
from tailorbird.verify.findings import Verdict
from tailorbird.verify.request import Request, StageResult, Terminal
from tailorbird.verify.settling import settling_policy
from tailorbird.verify.table.kafka_reread import RereadRequester
from tailorbird.verify.table.kept_rows import KeptRows
from tailorbird.verify.table.rereads import TableReread, WhereKeys, rereads
from tailorbird.verify.table.table_repair import extra_reported, repair_rows, steps_reported
from tailorbird.verify.table.table_stage import DifferingRow, Row, TableStage


def repaired(
    request: Request,
    table: Table,
    kept: KeptRows,
    stage: TableStage,
    verdict: Verdict,
    wrong: Sequence[DifferingRow],
    terminal: Terminal,
) -> StageResult:
    """Repair the rows in `wrong`, then compare them again. Returns why nothing was done if a repair would have no
    effect or is not confirmed. Raises Retriable while a server is unavailable."""
    rebuild = f"`tailorbird run {request.topology.file} --rebuild {table.name}`"
    plan = _planned(request.topology, table)
    join = RereadRequester(request.topology, plan, kept.reached, settling=settling_policy())
    read = plan([row for one in wrong if (row := one.row) is not None])
    again = sum(one.expected is not None for one in wrong)
    if again and not read:
        why = f"not repaired: the join publishes such rows only when they change; {rebuild} rebuilds the table"
        return StageResult(verdict=verdict, repair=why)
    gone = len(wrong) - again
    if not read and not request.dry_run and not terminal.sure(f"{extra_reported(gone)}. Delete them anyway?"):
        why = f"nothing was removed: {extra_reported(gone)}; {rebuild} rebuilds the table, --force deletes the rows"
        return StageResult(verdict=verdict, repair=why)
    what = steps_reported(gone, again, read)
    if request.dry_run:
        return StageResult(verdict=verdict, repair=f"would {what}")
    if read and not terminal.ask(f"{what}?"):
        return StageResult(verdict=verdict, repair="nothing was repaired")
    done = repair_rows(wrong, kept, join, now_ms=time.time_ns() // 1_000_000, without_join=not read)
    repaired = stage.look([one.key for one in wrong]).verdict
    line = done.line
    if repaired.differing and not done.reason:
        line += (
            f"; {repaired.differing:,} rows still differ: the join's state and the sources disagree. "
            f"No more is changed without your decision: {rebuild} rebuilds the table"
        )
    return StageResult(verdict=verdict, repair=line, repaired=repaired)


def _planned(topology: Topology, table: Table) -> Callable[[Sequence[Row]], Sequence[TableReread]]:
    schemas = newest_schemas(topology)

    def where_of(source: str) -> WhereKeys:
        return selects.where_keys if topology.sources[source].type == "postgresql" else chunks.where_keys

    return partial(rereads, compile_plan(topology, table, schemas), schemas, where_of=where_of)
