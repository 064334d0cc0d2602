"""The log stage of `tailorbird verify`, wired: the sources' servers, the ledger and Kafka; and its repair."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import typer

from cdc.model.errors import Retriable
from cdc.model.schema import TableId
from joins.select.parser import tables_of
from tailorbird.operate.probes.kafka_probe import kafka_problem
from tailorbird.verify.log.kafka_repair import ask_for
from tailorbird.verify.log.load import limits_of
from tailorbird.verify.log.run_log_stage import TopicCompared, Ways, compared
from tailorbird.verify.request import Request, Said, Terminal


def verified_log(asked: Request, terminal: Terminal) -> Iterator[Said]:
    """Each captured table that was asked for, or that a table which was asked for reads. Retriable: Kafka is away."""
    topology = asked.topology
    # asked first, for two seconds: the ledger would wait much longer for it
    if unavailable := kafka_problem(topology.log.brokers):
        raise Retriable(f"Kafka at {topology.log.brokers}: {unavailable}", "tailorbird stack status")
    read = {table for name in asked.tables for table in tables_of(topology, topology.tables[name])}
    with _Bars(terminal) as bars:
        ways = Ways(
            since=asked.since,
            resume=asked.resume,
            max_load=limits_of(asked.max_load),
            threads=asked.threads,
            reported=bars.reported,
            waits=lambda why: typer.echo(f"waiting: {why}", err=True),
        )
        for found in compared(topology, None if asked.everything else {*asked.captured, *read}, ways):
            bars.close()
            if asked.repair and found.keys and found.look is not None:
                yield _repaired(asked, found, terminal)
            else:
                yield Said(verdict=found.verdict)


def _repaired(asked: Request, found: TopicCompared, terminal: Terminal) -> Said:
    """Have the capture set right what differs, then look at the same rows again."""
    count = len(found.keys)
    plan = f"{count:,} rows of {found.table}: the capture reads them again and publishes what differs"
    if asked.dry_run:
        return Said(verdict=found.verdict, repair=f"would mend {plan}")
    if not terminal.ask(f"mend {plan}?"):
        return Said(verdict=found.verdict, repair="nothing was mended")
    assert found.look is not None, "it was compared"
    done = 0
    for some, offset in ask_for(asked.topology, found.table, found.keys):
        if not found.obeyed(offset):
            why = f"mended {done:,} of {count:,}; the capture has not obeyed yet: does it run? It obeys once it does"
            return Said(verdict=found.verdict, repair=why)
        done += len(some)
    return Said(verdict=found.verdict, repair=f"mended {plan}", repaired=found.look(found.keys))


class _Bars(ExitStack):
    """A bar for one table after the other."""

    def __init__(self, terminal: Terminal) -> None:
        super().__init__()
        self._terminal, self._table, self._shown = terminal, "", 0
        self._bar: Callable[[int], None] | None = None

    def reported(self, table: TableId, rows: int) -> None:
        """So many rows of a table are done."""
        if str(table) != self._table or self._bar is None:
            self.close()
            self._bar = self.enter_context(self._terminal.progress(f"log {table}", None))
            self._table, self._shown = str(table), 0
        self._bar(rows - self._shown)
        self._shown = rows
