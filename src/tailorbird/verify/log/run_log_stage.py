"""Wires the comparison of sources with the log: whose ledger, which tables and rows, what can not be told."""

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
from tailorbird.verify.findings import Verdict
from tailorbird.verify.log import mysql_leaves, pg_leaves
from tailorbird.verify.log.file_kept import KeptFile, Progress
from tailorbird.verify.log.kafka_changed import KafkaChanged
from tailorbird.verify.log.kafka_records import KafkaRecords
from tailorbird.verify.log.stage import LogStage, NearSource, place_reported
from tailorbird.verify.settling import SettlingPolicy

_PAUSE = 0.3  # seconds between two looks at what did not agree
_STANDSTILL, _MOST = 60.0, 600.0  # seconds that a capture has: while it does not move, and in all
LAST = "last"
# Sources that compute no digests of their rows.
_NOT_COMPARED = {"kafka": "topics of others", "syslog": "syslog", "maxscale": "a MaxScale"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ways:
    """How tables are compared. `since`: only rows that the log names behind this cut (`LAST`: the one at which a table
    was last found equal); `resume`: go on with what was interrupted; `max_load`: the most of status variables of a
    source, beyond which one waits; `threads`: connections that digest a source's rows at a time; `reported` hears how
    many rows of a table are done, `waits` why one waits for a source.
    """

    since: str = ""
    resume: bool = False
    max_load: Mapping[str, int] = field(default_factory=dict)
    threads: int = 2
    reported: Callable[[TableId, int], object] = lambda table, rows: None
    waits: Callable[[str], object] = lambda why: None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicCompared:
    """A table's verdict, and, until the next one is asked for: `keys` of all rows that differ, `look` at some again;
    `obeyed` waits, while the capture moves, until it has done what the signal at an offset asks; whether it has.
    """

    table: TableId
    verdict: Verdict
    keys: Collection[bytes] = ()
    look: Callable[[Collection[bytes]], Verdict] | None = None
    obeyed: Callable[[int], bool] = lambda offset: False


def verify_log(
    topology: Topology, tables: Collection[TableId] | None = None, ways: Ways | None = None
) -> Iterator[Verdict]:
    """A verdict for each captured table, or for those asked for, one after the other: see `compared`."""
    return (found.verdict for found in compared(topology, tables, ways or Ways()))


def compared(topology: Topology, tables: Collection[TableId] | None, ways: Ways) -> Iterator[TopicCompared]:
    """Each captured table, or those asked for, one after the other.

    Nothing is written but what `verify` itself remembers, and the ledger where no other process keeps it. A source that
    is away is a verdict that could not tell; Retriable where Kafka is away.
    """
    with ledger_of(topology, prompt=True) as ledger:
        while not ledger.reader.caught_up:  # beside another process's ledger: until the positions are read
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
                yield from (_unknown(table, "its source is polled: no log says where a row stood") for table in wanted)
            elif wanted:
                yield from _source(topology, source, wanted, ledger, ways)


def _source(
    topology: Topology, source: Source, wanted: list[TableId], ledger: Ledger, ways: Ways
) -> Iterator[TopicCompared]:
    done = 0
    try:
        with ExitStack() as open_:
            leaves = open_.enter_context(_leaves_of(source, ways))
            kept = open_.enter_context(closing(KeptFile(home(), topology.name)))
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
    """One table's comparison."""

    def __init__(self, topology: Topology, table: TableId, ledger: Ledger, kept: KeptFile, ways: Ways) -> None:
        self._topology, self._table, self._ledger, self._kept, self._ways = topology, table, ledger, kept, ways
        self._opened = ExitStack()

    def close(self) -> None:
        """Let go of Kafka."""
        self._opened.close()

    def compared(self, leaves: NearSource) -> TopicCompared:
        """The verdict, with what a repair needs."""
        ledger, table = self._ledger, self._table
        partition_ledger = ledger.topology_ledger.tables.get(table)
        if partition_ledger is None:
            return _unknown(
                table, ledger.topology_ledger.without.get(table, "the log has no schema of it: was it captured?")
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
        return TopicCompared(
            table=table,
            verdict=self._verdict(partition_ledger, stage),
            keys=stage.keys,
            look=lambda keys: LogStage(
                partition_ledger=partition_ledger, source=at_source, log=records, pause=stage.pause, clock=stage.clock
            ).look(keys),
            obeyed=self._obeyed,
        )

    def _verdict(self, partition_ledger: PartitionLedger, stage: LogStage) -> Verdict:
        """Of all rows, or of those that the log has named since a cut."""
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
            verdict = replace(verdict, cut=f"from {progress.cut} on, as it went, to {verdict.cut}")
        return replace(verdict, cut=f"{verdict.cut}; of all rows: {why}") if why else verdict

    def _named(self, partition_ledger: PartitionLedger) -> tuple[set[bytes] | None, str]:
        """The keys that the log has named since the cut; or why all rows must be compared."""
        since, source = self._ways.since, self._table.source
        if not walkable(partition_ledger.schema):
            return None, "a type of its key's columns can not be asked for"
        changed = self._opened.enter_context(closing(KafkaChanged(self._topology)))
        if since == LAST:
            known = self._kept.equal(str(self._table), partition_ledger.covered.shape, time.time_ns() // 1_000_000)
            ends, why = (known.ends if known else None), "it was not found equal in the last days"
        else:
            found = changed.ends(source, since)
            ends, why = (
                None if found is None else _of(partition_ledger, found),
                "the log has no position that this cut covers",
            )
        if ends is None:
            return None, why
        keys = changed.keys(ends)
        return keys, "" if keys is not None else "it was emptied or read again as a whole since"

    def _obeyed(self, offset: int) -> bool:
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
    """Of all its partitions: where one is not named, all of it stands behind."""
    return {
        (partition_ledger.topic, number): ends.get((partition_ledger.topic, number), 0)
        for number in partition_ledger.stores
    }


def _not_whole(ledger: Ledger, partition_ledger: PartitionLedger) -> str:
    """Why the log can not be what the table is; empty where it can."""
    table = partition_ledger.schema.table_id
    reached = ledger.topology_ledger.reached.get(table.source)
    if reached is None:
        return "the ledger has not come to a position of its source yet: `tailorbird ledger --until-end`"
    return reached.unknown.get(table.name, "")


def _leaves_of(source: Source, ways: Ways) -> AbstractContextManager[NearSource]:
    leaves_of: Callable[..., AbstractContextManager[NearSource]] = mysql_leaves.leaves_of
    if source.type == "postgresql":
        leaves_of = pg_leaves.leaves_of
    return leaves_of(source, ways.max_load, ways.waits, ways.threads)


def _unknown(table: TableId, why: str) -> TopicCompared:
    return TopicCompared(table=table, verdict=Verdict(stage="log", table=str(table), cut="", unknown=(why,)))
