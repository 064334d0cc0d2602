"""The log stage of `tailorbird verify`, wired: the sources' servers, the ledger and Kafka."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

from cdc.words.errors import Retriable
from cdc.words.schema import TableId
from console.probes.kafka_probe import kafka_problem
from console.verify.asked import Request, Said, Terminal
from console.verify.log.run import verify_log
from joins.select.parser import tables_of


def verified_log(asked: Request, terminal: Terminal) -> Iterator[Said]:
    """Each captured table that was asked for, or that a table which was asked for reads. Retriable: Kafka is away."""
    topology = asked.topology
    # asked first, for two seconds: the ledger would wait much longer for it
    if away := kafka_problem(topology.log.brokers):
        raise Retriable(f"Kafka at {topology.log.brokers}: {away}", "tailorbird stack status")
    read = {table for name in asked.tables for table in tables_of(topology, topology.tables[name])}
    with _Bars(terminal) as bars:
        for verdict in verify_log(topology, None if asked.everything else {*asked.captured, *read}, bars.told):
            bars.close()
            yield Said(verdict=verdict, repair=_mends(topology.file, verdict.table, asked, verdict.differing))


class _Bars(ExitStack):
    """A bar for one table after the other."""

    def __init__(self, terminal: Terminal) -> None:
        super().__init__()
        self._terminal, self._table, self._shown = terminal, "", 0
        self._bar: Callable[[int], None] | None = None

    def told(self, table: TableId, rows: int) -> None:
        """So many rows of a table are done."""
        if str(table) != self._table or self._bar is None:
            self.close()
            self._bar = self.enter_context(self._terminal.progress(f"log {table}", None))
            self._table, self._shown = str(table), 0
        self._bar(rows - self._shown)
        self._shown = rows


def _mends(file: str, table: str, asked: Request, differing: int) -> str:
    """What helps, where a repair was asked for and there is something to repair."""
    if not (asked.repair and differing):
        return ""
    return f"not mended here: `tailorbird snapshot {file} {table}` has the capture read the table again"
