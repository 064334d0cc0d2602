"""Run the log stage of `tailorbird verify`: open the sources, the ledger and Kafka, compare each table, repair it."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, closing
from dataclasses import dataclass, field, replace

from cdc.model.errors import Retriable, TailorbirdError
from cdc.model.schema import TableId
from cdc.process.file_topology import home
from cdc.topology.topology import Source, Topology
from ingest.ledger.ledger import PartitionLedger
from ingest.ledger.run_ledger import Ledger, ledger_of
from ingest.records.chunks import walkable
from joins.select.parser import tables_of
from tailorbird.operate.probes.kafka_probe import kafka_problem
from tailorbird.verify.findings import Verdict
from tailorbird.verify.log import mysql_leaves, pg_leaves
from tailorbird.verify.log.file_progress import Progress, ProgressFile
from tailorbird.verify.log.kafka_changed_keys import KafkaChangedKeys
from tailorbird.verify.log.kafka_records import KafkaRecords
from tailorbird.verify.log.kafka_repair import ask_for
from tailorbird.verify.log.load import limits_of
from tailorbird.verify.log.log_stage import LogStage, NearSource, place_reported
from tailorbird.verify.request import Request, StageResult, Terminal
from tailorbird.verify.settling import SettlingPolicy

_PAUSE = 0.3  # seconds between two rounds
_STANDSTILL, _MOST = 60.0, 600.0  # seconds to wait for a capture: while it makes no progress, and in total
LAST = "last"
# Sources that cannot compute digests of their rows.
_NOT_COMPARED = {"kafka": "external topics", "syslog": "syslog", "maxscale": "a MaxScale"}


@dataclass(frozen=True, slots=True, kw_only=True)
class LogStageOptions:
    """Options of the log stage.

    - `since`: compare only rows that changed after this position. `LAST` means where the table was last equal.
    - `resume`: continue an interrupted comparison.
    - `max_load`: limits of status variables of the source. While one is exceeded, the comparison waits.
    - `threads`: parallel connections per source.
    - `reported`, `waits`: receive the number of compared rows of a table, and the reason of each wait."""

    since: str = ""
    resume: bool = False
    max_load: Mapping[str, int] = field(default_factory=dict)
    threads: int = 2
    reported: Callable[[TableId, int], object] = lambda table, rows: None
    waits: Callable[[str], object] = lambda why: None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicComparison:
    """The verdict of a table, and what a repair needs. Valid until the next table is requested.

    `keys` are the keys of all differing rows. `look` compares rows again. `signal_applied` waits until the capture
    has applied the signal at an offset. It returns False if the capture makes no progress."""

    table: TableId
    verdict: Verdict
    keys: Collection[bytes] = ()
    look: Callable[[Collection[bytes]], Verdict] | None = None
    signal_applied: Callable[[int], bool] = lambda offset: False


def verify_log(
    topology: Topology, tables: Collection[TableId] | None = None, ways: LogStageOptions | None = None
) -> Iterator[Verdict]:
    """Yield a verdict for each captured table, or for the given ones. See `compare_topics`."""
    return (found.verdict for found in compare_topics(topology, tables, ways or LogStageOptions()))


def compare_topics(
    topology: Topology, tables: Collection[TableId] | None, ways: LogStageOptions
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
            if source.type in _NOT_COMPARED:
                why = _NOT_COMPARED[source.type]
                yield from (_unknown(table, f"its source is {why}") for table in wanted)
            elif source.poll is not None:
                yield from (_unknown(table, "its source is polled and has no log positions") for table in wanted)
            elif wanted:
                yield from _source(topology, source, wanted, ledger, ways)


def _source(
    topology: Topology, source: Source, wanted: list[TableId], ledger: Ledger, ways: LogStageOptions
) -> Iterator[TopicComparison]:
    done = 0
    try:
        with ExitStack() as open_:
            leaves = open_.enter_context(_leaves_of(source, ways))
            kept = open_.enter_context(closing(ProgressFile(home(), topology.name)))
            for table in wanted:
                with closing(_Table(topology, table, ledger, kept, ways)) as one:
                    yield one.compared(leaves)
                done += 1
    except TailorbirdError as error:
        if isinstance(error, Retriable) or error.exit_code == 2:
            yield from (_unknown(table, str(error)) for table in wanted[done:])
            return
        raise


class _Table:
    """The comparison of one table."""

    def __init__(
        self, topology: Topology, table: TableId, ledger: Ledger, kept: ProgressFile, ways: LogStageOptions
    ) -> None:
        self._topology, self._table, self._ledger, self._kept, self._ways = topology, table, ledger, kept, ways
        self._opened = ExitStack()

    def close(self) -> None:
        """Close the Kafka consumers."""
        self._opened.close()

    def compared(self, leaves: NearSource) -> TopicComparison:
        """Compare the table, and return its verdict with what a repair needs."""
        ledger, table = self._ledger, self._table
        partition_ledger = ledger.topology_ledger.tables.get(table)
        if partition_ledger is None:
            return _unknown(
                table, ledger.topology_ledger.without.get(table, "the log has no schema of it: is it captured?")
            )
        if why := _not_whole(ledger, partition_ledger):
            return _unknown(table, why)
        at_source = leaves.table(partition_ledger)
        if isinstance(at_source, str):
            return _unknown(table, at_source)
        records = self._opened.enter_context(closing(KafkaRecords(self._topology, ledger, partition_ledger)))
        stage = LogStage(
            partition_ledger=partition_ledger,
            source=at_source,
            log=records,
            pause=lambda: time.sleep(_PAUSE),
            clock=time.monotonic,
            reported=lambda rows: self._ways.reported(table, rows),
        )
        return TopicComparison(
            table=table,
            verdict=self._verdict(partition_ledger, stage),
            keys=stage.keys,
            look=lambda keys: LogStage(
                partition_ledger=partition_ledger, source=at_source, log=records, pause=stage.pause, clock=stage.clock
            ).look(keys),
            signal_applied=self._signal_applied,
        )

    def _verdict(self, partition_ledger: PartitionLedger, stage: LogStage) -> Verdict:
        """Compare all rows, or only the rows that changed since a position."""
        since, name, shape = self._ways.since, str(self._table), partition_ledger.covered.shape
        reached = self._ledger.topology_ledger.reached[self._table.source]
        progress = Progress(
            place_reported(reached.position), _of(partition_ledger, reached.ends), time.time_ns() // 1_000_000, shape
        )
        interrupted = self._kept.interrupted(name, shape) if self._ways.resume and not since else None
        keys, why = self._named(partition_ledger) if since else (None, "")
        if why and since != LAST:
            return _unknown(self._table, why).verdict
        progress = interrupted or progress
        self._kept.begin(name, progress)
        if keys is not None:
            verdict = stage.look(keys)
        else:
            stage.settled = list(progress.settled)
            stage.settle = lambda settled: self._kept.settle(name, settled)
            verdict = stage.verdict()
        self._kept.end(name, equal=verdict.outcome == "equal" and not verdict.moving)
        if interrupted:
            verdict = replace(verdict, cut=f"resumed: from {progress.cut} to {verdict.cut}")
        return replace(verdict, cut=f"{verdict.cut}; compared all rows: {why}") if why else verdict

    def _named(self, partition_ledger: PartitionLedger) -> tuple[set[bytes] | None, str]:
        """Return the keys of the rows that changed since the position, or None and the reason why all must be
        compared."""
        since, source = self._ways.since, self._table.source
        if not walkable(partition_ledger.schema):
            return None, "rows cannot be queried by key, because of a key column's type"
        changed = self._opened.enter_context(closing(KafkaChangedKeys(self._topology)))
        if since == LAST:
            known = self._kept.equal(str(self._table), partition_ledger.covered.shape, time.time_ns() // 1_000_000)
            ends, why = (known.ends if known else None), "it was not equal in the last days"
        else:
            found = changed.ends(source, since)
            ends, why = (
                None if found is None else _of(partition_ledger, found),
                "the log has no position that this cut covers",
            )
        if ends is None:
            return None, why
        keys = changed.keys(ends)
        return keys, "" if keys is not None else "it was truncated or completely read again since"

    def _signal_applied(self, offset: int) -> bool:
        settling, name = SettlingPolicy(standstill=_STANDSTILL, most=_MOST), self._table.name
        settling.begin(time.monotonic())
        while True:
            self._ledger.poll(0.02)
            reached = self._ledger.topology_ledger.reached[self._table.source]
            if reached.signals > offset and name not in reached.unknown:
                return True
            if settling.used_up(reached.position, time.monotonic()):
                return False


def _of(partition_ledger: PartitionLedger, ends: Mapping[tuple[str, int], int]) -> Mapping[tuple[str, int], int]:
    """Return the offsets of all partitions of a table. A partition that `ends` lacks starts at 0."""
    return {
        (partition_ledger.topic, number): ends.get((partition_ledger.topic, number), 0)
        for number in partition_ledger.stores
    }


def _not_whole(ledger: Ledger, partition_ledger: PartitionLedger) -> str:
    """Return the reason why the topic of a table is incomplete, or an empty text."""
    table = partition_ledger.schema.table_id
    reached = ledger.topology_ledger.reached.get(table.source)
    if reached is None:
        return "the ledger has not reached a position of its source yet: run `tailorbird ledger --until-end`"
    return reached.unknown.get(table.name, "")


def _leaves_of(source: Source, ways: LogStageOptions) -> AbstractContextManager[NearSource]:
    leaves_of: Callable[..., AbstractContextManager[NearSource]] = mysql_leaves.leaves_of
    if source.type == "postgresql":
        leaves_of = pg_leaves.leaves_of
    return leaves_of(source, ways.max_load, ways.waits, ways.threads)


def _unknown(table: TableId, why: str) -> TopicComparison:
    return TopicComparison(table=table, verdict=Verdict(stage="log", table=str(table), cut="", unknown=(why,)))


def verify_topics(request: Request, terminal: Terminal) -> Iterator[StageResult]:
    """Compare each requested source table, and those that a requested joined table reads. Repair them if requested.

    Raises Retriable while Kafka is unavailable."""
    topology = request.topology
    # a probe answers within two seconds; the ledger would wait much longer
    if unavailable := kafka_problem(topology.log.brokers):
        raise Retriable(f"Kafka at {topology.log.brokers}: {unavailable}", "tailorbird stack status")
    read = {table for name in request.tables for table in tables_of(topology, topology.tables[name])}
    with _Bars(terminal) as bars:
        options = LogStageOptions(
            since=request.since,
            resume=request.resume,
            max_load=limits_of(request.max_load),
            threads=request.threads,
            reported=bars.reported,
            waits=lambda why: terminal.notify(f"waiting: {why}"),
        )
        for found in compare_topics(topology, None if request.everything else {*request.captured, *read}, options):
            bars.close()
            if request.repair and found.keys and found.look is not None:
                yield _repaired(request, found, terminal)
            else:
                yield StageResult(verdict=found.verdict)


def _repaired(request: Request, found: TopicComparison, terminal: Terminal) -> StageResult:
    """Let the capture publish the differing rows again, then compare them again."""
    count = len(found.keys)
    plan = f"{count:,} rows of {found.table}: the capture reads them again and publishes what differs"
    if request.dry_run:
        return StageResult(verdict=found.verdict, repair=f"would repair {plan}")
    if not terminal.ask(f"repair {plan}?"):
        return StageResult(verdict=found.verdict, repair="nothing was repaired")
    assert found.look is not None, "it was compared"
    done = 0
    for some, offset in ask_for(request.topology, found.table, found.keys):
        if not found.signal_applied(offset):
            why = f"repaired {done:,} of {count:,}; the capture has not applied the signal: is it running?"
            return StageResult(verdict=found.verdict, repair=f"{why} It applies the signal as soon as it runs")
        done += len(some)
    return StageResult(verdict=found.verdict, repair=f"repaired {plan}", repaired=found.look(found.keys))


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
