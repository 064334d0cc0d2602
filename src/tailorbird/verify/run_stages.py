"""Run the stages of `tailorbird verify` in the order of the data flow: log, table, index."""

from __future__ import annotations

from collections.abc import Iterator

from tailorbird.verify.index.run_index_stage import verify_indexes
from tailorbird.verify.log.run_log_stage import verify_topics
from tailorbird.verify.request import Request, StageResult, Terminal
from tailorbird.verify.table.run_table_stage import verify_tables


def verify_stages(request: Request, terminal: Terminal) -> Iterator[StageResult]:
    """Yield the result of each requested stage for each table. Raises Retriable while a server is unavailable."""
    if "log" in request.stages:
        yield from verify_topics(request, terminal)
    if "table" in request.stages:
        yield from verify_tables(request, terminal)
    if "index" in request.stages:
        yield from verify_indexes(request, terminal)
