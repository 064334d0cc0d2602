"""Run the log stage of `tailorbird verify`: compare each requested source table with its topic, and repair it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

from cdc.model.errors import Retriable
from cdc.model.schema import TableId
from tailorbird.operate.probes.kafka_probe import kafka_problem
from tailorbird.verify.log.run_log_repair import repaired
from tailorbird.verify.log.run_topics import compare_topics
from tailorbird.verify.log.topic_comparison import LogStageOptions
from tailorbird.verify.request import Request, StageResult, Terminal


def verify_topics(request: Request, terminal: Terminal) -> Iterator[StageResult]:
    """Compare each requested source table, and those that a requested joined table reads. Repair them if requested.

    Raises Retriable while Kafka is unavailable."""
    with _Bars(terminal) as bars:
        options = LogStageOptions(
            since=request.since,
            resume=request.resume,
            max_load=request.max_load,
            threads=request.threads,
            reported=bars.reported,
            waits=lambda why: terminal.notify(f"waiting: {why}"),
        )
        topology, brokers = request.topology, request.topology.log.brokers
        # a probe answers within two seconds; the ledger would wait much longer
        if unavailable := kafka_problem(brokers):
            raise Retriable(f"Kafka at {brokers}: {unavailable}", "tailorbird stack status")
        for found in compare_topics(topology, None if request.everything else request.captured, options):
            bars.close()
            if request.repair and found.keys and found.look is not None:
                yield repaired(request, found, terminal)
            else:
                yield StageResult(verdict=found.verdict)


class _Bars(ExitStack):
    """Progress bars, one for the current table."""

    def __init__(self, terminal: Terminal) -> None:
        super().__init__()
        self._terminal, self._table, self._shown = terminal, "", 0
        self._bar: Callable[[int], None] | None = None

    def reported(self, table: TableId, rows: int) -> None:
        """Show how many rows of a table are compared."""
        if str(table) != self._table or self._bar is None:
            self.close()
            self._bar = self.enter_context(self._terminal.progress(f"log {table}", None))
            self._table, self._shown = str(table), 0
        self._bar(rows - self._shown)
        self._shown = rows
