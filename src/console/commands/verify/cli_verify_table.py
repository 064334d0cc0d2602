"""The table stage of `tailorbird verify`, wired: the sources' servers, DuckDB and HBase."""

from __future__ import annotations

import time
from collections.abc import Iterator

from cdc.topology.topology import Table
from console.verify.asked import Request, Said, Terminal
from console.verify.findings import Verdict
from console.verify.patience import Patience
from console.verify.table.expected import Expected, obstacle
from console.verify.table.hbase_kept import StoredRows
from console.verify.table.table_stage import TableStage
from console.verify.telling import stamp_told

# Seconds: for a far end that does not come nearer, and in all.
_STANDSTILL, _MOST = 60.0, 600.0
_BETWEEN_LOOKS = 1.0


def verified_tables(wanted: Request, terminal: Terminal) -> Iterator[Said]:
    """Each table, compared with its query's answer. Retriable, a server is away."""
    for name in wanted.tables:
        verdict = _verified(wanted, wanted.topology.tables[name], terminal)
        mends = f"tailorbird run {wanted.topology.file} --rebuild {name}"
        repair = wanted.repair and verdict.differing
        yield Said(verdict=verdict, repair=f"not mended here: `{mends}` makes the table anew" if repair else "")


def _verified(wanted: Request, table: Table, terminal: Terminal) -> Verdict:
    topology = wanted.topology
    kept = StoredRows(topology, table, patience=Patience(standstill=_STANDSTILL, most=_MOST))
    kept.joined.check(topology.file)
    layout, barrier = kept.layouts.newest(), kept.joined.barrier()
    why = obstacle(topology, table, layout, barrier)
    if why or layout is None:
        cut = stamp_told(barrier.stamp if barrier else None)
        return Verdict(stage="table", table=table.name, cut=cut, untold=(why,))
    with terminal.progress(f"table {table.name}", None) as told:
        return TableStage(
            table=table.name,
            row_key=table.row_key,
            columns=tuple(column.name for column in layout.columns),
            sources=Expected(topology, table, layout),
            kept=kept,
            seconds=time.monotonic,
            pause=lambda _: time.sleep(_BETWEEN_LOOKS),
            told=told,
        ).compare()
