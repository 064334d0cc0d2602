"""`tailorbird export`: write the changes of a topology's tables to files or topics, once or continuously."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import structlog

from cdc.lifetime.proc_signals import stop_event
from cdc.model.brokers import Brokers
from cdc.model.errors import Fatal, UsageError
from cdc.model.naming import exported_topic
from cdc.model.schema import TableId
from cdc.process.file_topology import load_topology
from cdc.process.proc_log_lines import log_lines
from cdc.topology.topology import Log, Topology
from ingest.changes.feed_interfaces import ChangeTables, ahead
from ingest.changes.kafka_changes import KafkaChanges
from ingest.changes.merging import Offsets
from ingest.export.cuts import ExportCut, ExportCutter
from ingest.export.encoding import FILES, IN_REGISTRY, RECORDS, ExportFormat, RecordEncoder
from ingest.export.file_export import FolderExport

_KAFKA = "kafka://"


class ExportSink(Protocol):
    """The target for one table. It stores a cut together with the offsets at which the next one begins."""

    def begin(self) -> Offsets | None:
        """Return the offsets after the last cut; None before the first one. Call it once, before anything else."""

    def write(self, cut: ExportCut) -> None:
        """Write one more cut."""

    def close(self) -> None:
        """Close the sink: no more cuts follow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportOptions:
    """Settings of an export. A cut is written after `rows` rows, or `every` so many seconds.

    `form` is the format, `to` the target. `tables` empty means all tables. `follow`: continue with new changes.
    `registry` is the URL of a schema registry, and `registry_ca` a file with the CA that signs its certificate.
    """

    form: ExportFormat
    to: str
    tables: Sequence[str] = ()
    follow: bool = False
    rows: int = 20_000
    every: float = 60.0
    registry: str = ""
    registry_ca: str = ""


def run(file: str, options: ExportOptions) -> dict[str, int]:
    """Export the tables, each change exactly once even if an earlier run was killed. Returns the number of changes by
    table.

    Raises Retriable while Kafka is unavailable, and Fatal if Kafka no longer has the changes after the last export.
    """
    topology = load_topology(file)
    wanted = _tables(topology, options.tables)
    make = sinks(topology, options)
    log_lines("logfmt")
    stop = stop_event()
    log = KafkaChanges(topology)
    try:
        log.begin()
        tables = [table for table in log.tables() if not wanted or table in wanted]
        if lacking := [table for table in wanted if table not in tables]:
            raise UsageError(f"no change of {lacking[0]} was captured", f"tailorbird capture {file}")
        return export(log, tables, make, options, stopped=stop.is_set, follow=log.follow)
    finally:
        log.close()


def export(
    log: ChangeTables, tables: Sequence[TableId], make: Callable[[TableId], ExportSink], options: ExportOptions, *,
    stopped: Callable[[], bool], follow: Callable[[float], bool], clock: Callable[[], float] = time.monotonic,
) -> dict[str, int]:  # fmt: skip
    """Export table by table up to the committed offsets; with `follow`, repeat that until stopped.

    `make` creates the sink of a table; `follow(seconds)` waits for new commits. Returns the number of changes by table.
    """
    logger = structlog.get_logger()
    made, writing = list[ExportSink](), dict[TableId, _TableExport]()
    try:
        for table in tables:
            made.append(make(table))
            writing[table] = _TableExport(log, table, made[-1], options, clock)
        while not stopped():
            for one in writing.values():
                one.advance(stopped)
            if not options.follow:
                break
            follow(0.2)
        for table, one in writing.items():
            one.rest()
            logger.info("exported", table=str(table), changes=one.count)
        return {str(table): one.count for table, one in writing.items()}
    finally:
        for sink in made:
            sink.close()


class _TableExport:
    """Export of one table."""

    def __init__(
        self, log: ChangeTables, table: TableId, sink: ExportSink, options: ExportOptions, clock: Callable[[], float]
    ) -> None:
        self.sink, self.count = sink, 0
        self._log, self._table, self._options, self._clock = log, table, options, clock
        self._cutter = ExportCutter(rows=options.rows, hourly=options.form == "parquet")
        begun = sink.begin()
        begins, ends = log.begins(table), log.released(table)
        self._at: Offsets = begins if begun is None else begun
        self._wrote = clock()
        if beyond := [p for p, at in self._at.items() if at > ends.get(p, 0)]:
            what = (
                f"{table}: partition {beyond[0]} resumes at {self._at[beyond[0]]} but ends at {ends.get(beyond[0], 0)}"
            )
            raise Fatal(f"{what}: the topic was recreated", "export into another folder, or under another prefix")
        if gone := [p for p, at in self._at.items() if at < begins.get(p, 0)]:
            what = f"{table}: partition {gone[0]} resumes at {self._at[gone[0]]} but begins at {begins[gone[0]]}"
            raise Fatal(f"{what}: records were deleted", "export into another folder, or under another prefix")

    def advance(self, stopped: Callable[[], bool]) -> None:
        """Export everything that is committed now."""
        ends = self._log.released(self._table)
        while ahead(self._at, ends) and not stopped():
            batch = self._log.read(self._table, self._at, ends)
            for cut in self._cutter.take(batch, self._log.schemas(self._table), self._at):
                self._write(cut)
            self._at = batch.next
        if self._clock() - self._wrote >= self._options.every:
            self.rest()

    def rest(self) -> None:
        """Write the changes that were read but are not written."""
        for cut in self._cutter.rest():
            self._write(cut)
        self._wrote = self._clock()

    def _write(self, cut: ExportCut) -> None:
        self.sink.write(cut)
        self.count += len(cut.events)
        self._wrote = self._clock()


def sinks(topology: Topology, options: ExportOptions) -> Callable[[TableId], ExportSink]:
    """Return the function that creates the sink of a table. Raises UsageError if the target does not support the
    format."""
    if options.registry and options.form != IN_REGISTRY:
        raise UsageError(f"--schema-registry with --format {options.form}", f"--format {IN_REGISTRY}")
    if not options.to.startswith(_KAFKA):
        if options.form not in FILES:
            raise UsageError(f"--format {options.form} to a folder", "--format " + " | ".join(FILES))
        return lambda table: FolderExport(Path(options.to), table, options.form, topology.name)
    servers, slash, prefix = options.to.removeprefix(_KAFKA).partition("/")
    if not servers or not slash or not prefix:
        raise UsageError(f"--to {options.to}", "kafka://HOST:PORT/PREFIX: topics are PREFIX.database.table")
    from ingest.export.kafka_export import TopicExport

    log, encoder = _log_at(topology.log, servers), _encoders(options)
    return lambda table: TopicExport(
        log, prefix, table, options.form, encoder(exported_topic(prefix, table)), topology.name
    )


def _encoders(options: ExportOptions) -> Callable[[str], RecordEncoder]:
    """Return the function that creates the encoder of a topic's records. Raises UsageError for a format of files."""
    form = options.form
    if form != IN_REGISTRY:
        if form not in RECORDS:
            raise UsageError(f"--format {form} to a topic", "--format " + " | ".join([*RECORDS, IN_REGISTRY]))
        return lambda topic: RECORDS[form]
    if not options.registry:
        raise UsageError(f"--format {form} without a schema registry", "--schema-registry http://127.0.0.1:8081")
    from ingest.export.kafka_registry import RegistryRecords, registry_at

    registry = registry_at(options.registry, options.registry_ca)
    return lambda topic: RegistryRecords(registry, topic)


def _log_at(log: Log, servers: str) -> Log:
    """Return the Kafka cluster at these addresses: with the topology's login if it is the same cluster, else without
    one."""
    return log if servers == log.brokers.servers else replace(log, brokers=Brokers(servers))


def _tables(topology: Topology, names: Sequence[str]) -> list[TableId]:
    found = []
    for name in names:
        meant = topology.tables_meant(name)
        if len(meant) != 1:
            what = "several sources have it" if meant else "no source has it"
            raise UsageError(f"--table {name}: {what}", "SOURCE.TABLE or SOURCE.DATABASE.TABLE")
        found += meant
    return found
