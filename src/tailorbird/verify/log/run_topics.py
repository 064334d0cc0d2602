"""Run the comparison of source tables with their topics: open the ledger and each source, compare table by table."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, closing

from cdc.model.errors import Retriable, TableChanged, TailorbirdError
from cdc.model.schema import TableId
from cdc.process.file_topology import home
from cdc.topology.topology import Source, Topology
from ingest.ledger.run_ledger import Ledger, ledger_of
from tailorbird.verify.findings import Verdict
from tailorbird.verify.log import mysql_leaves, pg_leaves
from tailorbird.verify.log.file_progress import ProgressFile
from tailorbird.verify.log.log_stage import NearSource
from tailorbird.verify.log.run_topic import TopicComparer
from tailorbird.verify.log.topic_comparison import LogStageOptions, TopicComparison, incomparable

# Readers of digests, by the type of their source.
_LEAVES: Mapping[str, Callable[..., AbstractContextManager[NearSource]]] = {
    "mysql": mysql_leaves.leaves_of,
    "mariadb": mysql_leaves.leaves_of,
    "postgresql": pg_leaves.leaves_of,
}
# Sources that cannot compute digests of their rows.
_NOT_COMPARED = {"kafka": "external topics", "syslog": "syslog", "maxscale": "a MaxScale"}


def verify_log(
    topology: Topology, tables: Collection[TableId] | None = None, options: LogStageOptions | None = None
) -> Iterator[Verdict]:
    """Yield a verdict for each captured table, or for the given ones. See `compare_topics`."""
    return (found.verdict for found in compare_topics(topology, tables, options or LogStageOptions()))


def compare_topics(
    topology: Topology, tables: Collection[TableId] | None, options: LogStageOptions
) -> Iterator[TopicComparison]:
    """Compare each captured table, or the given ones, one after the other.

    Writes only the progress of `verify`, and the ledger if no other process maintains it. The tables of an
    unavailable source get a verdict with that reason. Raises Retriable while Kafka is unavailable."""
    with ledger_of(topology, prompt=True) as ledger:
        while not ledger.reader.caught_up:  # while another process maintains the ledger: read its positions first
            ledger.poll(0.01)
        for source in topology.sources.values():
            wanted = sorted(
                table
                for table in {*source.tables, *ledger.topology_ledger.tables, *ledger.topology_ledger.without}
                if table.source == source.name and (tables is None or table in tables)
            )
            if not wanted:
                continue
            if not (why := _obstacle(source)):
                yield from _source(topology, source, wanted, ledger, options)
            else:
                yield from (incomparable(table, why, until="topology") for table in wanted)


def _obstacle(source: Source) -> str:
    """Return the reason why the tables of a source cannot be compared, or an empty text."""
    if source.type in _NOT_COMPARED:
        return f"its source is {_NOT_COMPARED[source.type]}"
    return "its source is polled and has no log positions" if source.poll is not None else ""


def _source(
    topology: Topology, source: Source, wanted: list[TableId], ledger: Ledger, options: LogStageOptions
) -> Iterator[TopicComparison]:
    done = 0
    try:
        with ExitStack() as opened:
            leaves = opened.enter_context(
                _LEAVES[source.type](source, options.max_load, options.waits, options.threads)
            )
            kept = opened.enter_context(closing(ProgressFile(home(), topology.name)))
            comparer = opened.enter_context(closing(TopicComparer(topology, ledger, kept, options)))
            for table in wanted:
                try:
                    found = comparer.compared(table, leaves)
                except TableChanged as error:  # the other tables are as they were
                    found = incomparable(table, str(error))
                yield found
                done += 1
    except TailorbirdError as error:
        if isinstance(error, Retriable) or error.exit_code == 2:
            yield from (incomparable(table, str(error)) for table in wanted[done:])
            return
        raise
