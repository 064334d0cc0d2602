"""Run the comparison of one source table with its topic: choose the rows, open readers, compare, keep the progress."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import partial

from cdc.model.naming import positions_topic
from cdc.model.schema import TableId
from cdc.topology.topology import Topology
from ingest.ledger.ledger import PartitionLedger
from ingest.ledger.places import Reach
from ingest.ledger.run_ledger import Ledger
from ingest.records.chunks import walkable
from tailorbird.verify.log.file_progress import Progress, ProgressFile
from tailorbird.verify.log.kafka_changed_keys import KafkaChangedKeys
from tailorbird.verify.log.kafka_records import KafkaRecords
from tailorbird.verify.log.log_stage import LogStage, NearSource
from tailorbird.verify.log.topic_comparison import LogStageOptions, TopicComparison, incomparable
from tailorbird.verify.positions import parse_cut, place_reported
from tailorbird.verify.request import LAST

_PAUSE = 0.3  # seconds between two rounds


class TopicComparer:
    """Compares the tables of one source of a topology with their topics, one after the other."""

    def __init__(self, topology: Topology, ledger: Ledger, kept: ProgressFile, options: LogStageOptions) -> None:
        self._brokers, self._routing, self._ledger, self._kept = topology.log.brokers, topology.routing, ledger, kept
        self._positions = positions_topic(topology.name)
        self._options = options
        self._opened = ExitStack()

    def close(self) -> None:
        """Close the Kafka consumers of the last table."""
        self._opened.close()

    def compared(self, table: TableId, leaves: NearSource) -> TopicComparison:
        """Compare all rows of a table, or those that changed since a cut. Closes the consumers of the table before.
        Raises UsageError if the option `since` is no position."""
        self.close()
        partition_ledger = self._ledger.topology_ledger.tables.get(table)
        ledger = self._ledger.topology_ledger
        why = self._unready(table, partition_ledger)
        if table in ledger.without:
            return incomparable(table, ledger.without[table], until="change")
        if why or partition_ledger is None:
            return incomparable(table, why)
        at_source = leaves.table(partition_ledger)
        if isinstance(at_source, str):
            return incomparable(table, at_source)
        options, name, shape = self._options, str(table), partition_ledger.shape
        cut = parse_cut(options.since) if options.since not in {"", LAST} else None
        # the ledger does not move before the comparison, so `reached` is not later than the changed keys
        reached = ledger.reached[table.source]
        began = Progress(
            place_reported(reached.position),
            _of(partition_ledger, reached.ends),
            time.time_ns() // 1_000_000,
            shape,
        )
        keys, why = self._changed(partition_ledger, cut) if options.since else (None, "")
        if why and options.since != LAST:
            return incomparable(table, why)
        interrupted = self._kept.interrupted(name, shape) if options.resume and not options.since else None
        progress = interrupted or began
        self._kept.begin(name, progress)
        stage = LogStage(
            partition_ledger=partition_ledger,
            source=at_source,
            settled=list(progress.settled),
            settle=lambda settled: self._kept.settle(name, settled),
            log=self._opened.enter_context(closing(KafkaRecords(self._brokers, self._ledger, partition_ledger))),
            pause=lambda: time.sleep(_PAUSE),
            clock=time.monotonic,
            reported=lambda rows: options.reported(table, rows),
        )
        verdict = stage.verdict() if keys is None else stage.look(keys)
        self._kept.end(name, equal=verdict.outcome == "equal" and not verdict.moving)
        if interrupted:
            verdict = replace(verdict, cut=f"resumed: from {progress.cut} to {verdict.cut}")
        return TopicComparison(
            table=table,
            verdict=replace(verdict, cut=f"{verdict.cut}; compared all rows: {why}") if why else verdict,
            keys=stage.keys,
            look=lambda keys: LogStage(
                partition_ledger=partition_ledger, source=at_source, log=stage.log, pause=stage.pause, clock=stage.clock
            ).look(keys),
            ledger=self._ledger,
        )

    def _unready(self, table: TableId, partition_ledger: PartitionLedger | None) -> str:
        """Return the reason why a table cannot be compared yet, or an empty text."""
        ledger = self._ledger.topology_ledger
        if partition_ledger is None:
            return "the log has no schema of it: is it captured?"
        reached = ledger.reached.get(table.source)
        if reached is None:
            return "the ledger has not reached a position of its source yet: run `tailorbird ledger --until-end`"
        return reached.unknown.get(table.name, "")

    def _changed(self, partition_ledger: PartitionLedger, cut: Reach | None) -> tuple[set[bytes] | None, str]:
        """Return the keys of rows that changed since a cut, or None and the reason why all must be.

        None: since the cut at which the table was last equal.
        """
        table = partition_ledger.schema.table_id
        if not walkable(partition_ledger.schema):
            return None, "rows cannot be queried by key, because of a key column's type"
        known = self._kept.equal(str(table), partition_ledger.shape, time.time_ns() // 1_000_000)
        if cut is None and known is None:
            return None, "it was not equal in the last days"
        changed = self._opened.enter_context(closing(KafkaChangedKeys(self._brokers)))
        ends = changed.ends(self._positions, table.source, cut) if cut else known.ends if known else None
        if ends is None:
            return None, "the log has no position that this cut covers"
        keys = changed.keys(_of(partition_ledger, ends), partial(self._routing.own_key, partition_ledger.name))
        return keys, "" if keys is not None else "it was truncated or completely read again since"


def _of(partition_ledger: PartitionLedger, ends: Mapping[tuple[str, int], int]) -> Mapping[tuple[str, int], int]:
    """Return the offsets of all partitions of a table. A partition that `ends` lacks starts at 0."""
    return {
        (partition_ledger.topic, number): ends.get((partition_ledger.topic, number), 0)
        for number in partition_ledger.stores
    }
