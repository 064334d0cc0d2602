"""The table stage of `tailorbird verify`, wired: the sources' servers, DuckDB and HBase; and its repair by the join."""

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
from tailorbird.verify.request import Request, Said, Terminal
from tailorbird.verify.settling import SettlingPolicy
from tailorbird.verify.table.expected import Expected, obstacle
from tailorbird.verify.table.forcing import ReadAgain, WhereKeys, rereads
from tailorbird.verify.table.hbase_kept import StoredRows
from tailorbird.verify.table.kafka_reread import RereadRequester
from tailorbird.verify.table.table_repair import repair_rows
from tailorbird.verify.table.table_stage import Row, TableStage, Wrong
from tailorbird.verify.verdict_text import timestamp_reported

# Seconds: for a far end that does not come nearer, and in all.
_STANDSTILL, _MOST = 60.0, 600.0
_BETWEEN_LOOKS = 1.0


def verified_tables(wanted: Request, terminal: Terminal) -> Iterator[Said]:
    """Each table, compared with its query's answer; mended where that is wanted. Retriable, a server is away."""
    for name in wanted.tables:
        yield _verified(wanted, wanted.topology.tables[name], terminal)


def _verified(wanted: Request, table: Table, terminal: Terminal) -> Said:
    topology = wanted.topology
    kept = StoredRows(topology, table, settling=_settling())
    kept.joined.check(topology.file)
    layout, barrier = kept.layouts.newest(), kept.joined.barrier()
    why = obstacle(topology, table, layout, barrier)
    if why or layout is None:
        cut = timestamp_reported(barrier.timestamp if barrier else None)
        return Said(verdict=Verdict(stage="table", table=table.name, cut=cut, unknown=(why,)))
    try:
        return _compared(wanted, table, layout, kept, terminal)
    except Skippable as error:
        cut = timestamp_reported(barrier.timestamp if barrier else None)
        return Said(verdict=Verdict(stage="table", table=table.name, cut=cut, unknown=(error.message,)))


def _compared(wanted: Request, table: Table, layout: Layout, kept: StoredRows, terminal: Terminal) -> Said:
    topology = wanted.topology
    with terminal.progress(f"table {table.name}", None) as reported:
        stage = TableStage(
            table=table.name,
            row_key=layout.row_key,
            columns=tuple(column.name for column in layout.columns),
            sources=Expected(topology, table, layout),
            kept=kept,
            seconds=time.monotonic,
            pause=lambda _: time.sleep(_BETWEEN_LOOKS),
            reported=reported,
        )
        verdict, wrong = stage.compare()
    if not (wanted.repair and wrong):
        return Said(verdict=verdict)
    return _repaired(wanted, table, kept, stage, verdict, wrong, terminal)


def _repaired(
    wanted: Request,
    table: Table,
    kept: StoredRows,
    stage: TableStage,
    verdict: Verdict,
    wrong: Sequence[Wrong],
    terminal: Terminal,
) -> Said:
    rebuild = f"`tailorbird run {wanted.topology.file} --rebuild {table.name}`"
    plan = _planned(wanted.topology, table)
    read = plan([row for one in wrong if (row := one.row) is not None])
    again = sum(one.expected is not None for one in wrong)
    if again and not read:
        said = f"not mended here: its join tells such rows only when they change; {rebuild}"
        return Said(verdict=verdict, repair=f"{said} makes the table anew")
    gone = len(wrong) - again
    if not read and not wanted.dry_run and not terminal.sure(f"{_unasked(gone)}: delete them all the same?"):
        said = f"nothing was removed: {_unasked(gone)}; {rebuild} makes the table anew, --force deletes them"
        return Said(verdict=verdict, repair=said)
    what = _what(gone, again, read)
    if wanted.dry_run:
        return Said(verdict=verdict, repair=f"would {what}")
    if read and not terminal.ask(f"{what}?"):
        return Said(verdict=verdict, repair="nothing was mended")
    join = RereadRequester(wanted.topology, plan, kept.joined.reached, settling=_settling())
    done = repair_rows(wrong, kept, join, now_ms=time.time_ns() // 1_000_000, unasked=not read)
    repaired = stage.look([one.key for one in wrong]).verdict
    said = done.line
    if repaired.differing and not done.reason:
        said += (
            f"; {repaired.differing:,} differ still: the join's state and the sources disagree about them, and nothing "
            f"more is changed without your word: {rebuild} makes the table anew"
        )
    return Said(verdict=verdict, repair=said, repaired=repaired)


def _unasked(gone: int) -> str:
    return f"{_rows(gone)} of HBase that the sources do not have, of which this table's join can not be asked"


def _what(gone: int, again: int, read: Sequence[ReadAgain]) -> str:
    """What a repair does, for people."""
    if not read:
        return f"delete {_rows(gone)} of HBase at their versions, if that is confirmed (--force)"
    tables = ", ".join(f"{'rows' if one.where else 'all rows'} of {one.table}" for one in read)
    once_more = f"writes {_rows(again)} anew" if again else "writes them anew if it has them"
    parts = [f"have {tables} read again, so that the join {once_more}"]
    if gone:
        parts.append(f"then delete of {_rows(gone)} of HBase those that the join has not written again")
    return ", and ".join(parts)


def _rows(count: int) -> str:
    return "1 row" if count == 1 else f"{count:,} rows"


def _planned(topology: Topology, table: Table) -> Callable[[Sequence[Row]], Sequence[ReadAgain]]:
    schemas = newest_schemas(topology)

    def where_of(source: str) -> WhereKeys:
        return selects.where_keys if topology.sources[source].type == "postgresql" else chunks.where_keys

    return partial(rereads, compile_plan(topology, table, schemas), schemas, where_of=where_of)


def _settling() -> SettlingPolicy:
    return SettlingPolicy(standstill=_STANDSTILL, most=_MOST)
