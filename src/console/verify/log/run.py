"""Wires the comparison of sources with the log: whose ledger, which tables, what can not be told."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator

from cdc.topology.topology import Source, Topology
from cdc.words.errors import Retriable, TailorbirdError
from cdc.words.schema import TableId
from console.verify.findings import Verdict
from console.verify.log.kafka_records import KafkaRecords
from console.verify.log.mysql_leaves import MySqlLeaves, leaves_of
from console.verify.log.stage import LogStage
from ingest.ledger.books import Book
from ingest.ledger.run import Ledger, ledger_of

_PAUSE = 0.3  # seconds between two looks at what did not agree


def verify_log(
    topology: Topology,
    tables: Collection[TableId] | None = None,
    told: Callable[[TableId, int], object] = lambda table, rows: None,
) -> Iterator[Verdict]:
    """A verdict for each captured table, or for those asked for, one after the other.

    Nothing is written but the ledger, and that only where no other process keeps it. A source that is away is a verdict
    that could not tell; Retriable where Kafka is away.
    """
    with ledger_of(topology) as ledger:
        while not ledger.reader.caught_up and ledger.own:
            ledger.poll(0.05)
        for source in topology.sources.values():
            wanted = sorted(
                table
                for table in {*source.tables, *ledger.books.tables, *ledger.books.without}
                if table.source == source.name and (tables is None or table in tables)
            )
            if source.poll is not None:
                yield from (_untold(table, "its source is polled: no log says where a row stood") for table in wanted)
            elif wanted:
                yield from _source(topology, source, wanted, ledger, told)


def _source(
    topology: Topology,
    source: Source,
    wanted: list[TableId],
    ledger: Ledger,
    told: Callable[[TableId, int], object],
) -> Iterator[Verdict]:
    done = 0
    try:
        with leaves_of(source) as leaves:
            for table in wanted:
                yield _table(topology, table, ledger, leaves, told)
                done += 1
    except TailorbirdError as error:
        if isinstance(error, Retriable) or error.exit_code == 2:
            yield from (_untold(table, str(error)) for table in wanted[done:])
            return
        raise


def _table(
    topology: Topology, table: TableId, ledger: Ledger, leaves: MySqlLeaves, told: Callable[[TableId, int], object]
) -> Verdict:
    book = ledger.books.tables.get(table)
    if book is None:
        return _untold(table, ledger.books.without.get(table, "the log has no schema of it: was it captured?"))
    if why := _not_whole(ledger, book):
        return _untold(table, why)
    at_source = leaves.table(book)
    if isinstance(at_source, str):
        return _untold(table, at_source)
    records = KafkaRecords(topology, ledger, book)
    try:
        stage = LogStage(
            book=book,
            source=at_source,
            log=records,
            pause=lambda: time.sleep(_PAUSE),
            clock=time.monotonic,
            told=lambda rows: told(table, rows),
        )
        return stage.verdict()
    finally:
        records.close()


def _not_whole(ledger: Ledger, book: Book) -> str:
    """Why the log can not be what the table is; empty where it can."""
    table = book.schema.table_id
    reached = ledger.books.reached.get(table.source)
    if reached is None:
        return "the ledger has not come to a position of its source yet: `tailorbird ledger --until-end`"
    return reached.untold.get(f"{table.database}.{table.table}", "")


def _untold(table: TableId, why: str) -> Verdict:
    return Verdict(stage="log", table=str(table), cut="", untold=(why,))
