"""`tailorbird snapshot`: make a running capture read tables again."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from cdc.model.schema import TableId
    from cdc.topology.topology import Topology
    from tailorbird.operate.status.snapshot_progress import SnapshotProgress


def snapshot(
    file: Annotated[str, typer.Argument(metavar="TOPOLOGY", help="The topology's YAML file.")],
    tables: Annotated[
        list[str] | None,
        typer.Argument(metavar="[TABLE...]", help="table or database.table, optionally prefixed with source."),
    ] = None,
    more: Annotated[list[str] | None, typer.Option("--table", help="A table, as an option. May be repeated.")] = None,
    among: Annotated[str | None, typer.Option("--source", help="The source of the tables, if it is ambiguous.")] = None,
    where: Annotated[
        str, typer.Option("--where", help="Read only rows that match: comparisons of columns with constants.")
    ] = "",
    stop: Annotated[bool, typer.Option("--stop", help="Cancel the snapshots of these tables.")] = False,
    follow: Annotated[bool, typer.Option("--follow", help="Show the progress until all snapshots end.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per running snapshot and line.")] = False,
) -> None:
    """Read tables again while everything else runs.

    Sends a signal to the captures, which process it within a second. The source is optional if only one has the table.

    Without a table, the command shows the progress of running snapshots, including initial ones. Live changes win over
    the rows that are read. Polled tables work the same way. The signal is Debezium's `execute-snapshot` in the topic
    `…signals`.

    Example: tailorbird snapshot topologies/shop.yml shop.orders --where "status = 'open'" --follow
    """
    from cdc.model.errors import UsageError
    from cdc.process.file_topology import load_topology
    from cdc.process.kafka_grants import granted
    from ingest.capture.checked_signals import checked_conditions
    from ingest.capture.signals import signal_value
    from ingest.log.kafka_signals import send

    topology = granted(load_topology(file, "operator"), "operator")
    if among is not None and among not in topology.sources:
        raise UsageError(f"{file} has no source {among}", "--source " + " | ".join(topology.sources))
    tables = [*(tables or ()), *(more or ())]
    if not tables:
        _report(topology, follow, as_json)
        return
    by_source: dict[str, list[str]] = {}
    for name in tables:
        found = _meant(topology, name, among)
        if topology.sources[found.source].is_only_reported and not stop:
            what = f"{found} cannot be read again: its source cannot be queried"
            raise UsageError(
                what, "send the rows again from their producer, or rebuild the join from the log: --rebuild"
            )
        by_source.setdefault(found.source, []).append(found.name)
    kind = "stop-snapshot" if stop else "execute-snapshot"
    for source, names in by_source.items():
        checked_conditions(topology.sources[source], dict.fromkeys(names, where))
    for source, names in by_source.items():
        send(topology, source, signal_value(kind, tuple(names), where))
        typer.echo(f"{source}: {kind} of {', '.join(names)} sent")
    if follow:
        _report(topology, follow, as_json)


def _meant(topology: Topology, name: str, among: str | None) -> TableId:
    from cdc.model.errors import UsageError

    found = topology.tables_meant(name, among)
    if not found:
        known = ", ".join(str(table) for source in topology.sources.values() for table in source.tables)
        raise UsageError(
            f"{name} is not a captured table of {topology.file}", f"choose one of {known}" if known else ""
        )
    if len(found) > 1:
        several = ", ".join(str(table) for table in found)
        raise UsageError(f"{name} is ambiguous: {several}", f"write {found[0]}, or add --source {found[0].source}")
    return found[0]


def _report(topology: Topology, follow: bool, as_json: bool) -> None:
    import json
    import time

    from tailorbird.operate.status.kafka_captured import captured_positions
    from tailorbird.operate.status.snapshot_progress import TIMEOUT, progress_of, shown
    from tailorbird.operate.status.snapshot_progress import bars as bars_of

    def read() -> list[SnapshotProgress]:
        return progress_of(captured_positions(topology), time.time() * 1000)

    if not follow:
        found = read()
        for one in found:
            typer.echo(json.dumps(dataclasses.asdict(one)) if as_json else shown(one))
        if not found and not as_json:
            typer.echo("no snapshot is running")
        return
    deadline = time.monotonic() + TIMEOUT  # captures process a signal within two seconds
    with bars_of() as bars:
        while True:
            bars(found := read())
            if found:
                deadline = time.monotonic()
            elif time.monotonic() > deadline:
                return
            time.sleep(0.5)
