"""`tailorbird snapshot`: have a running capture read tables again, beside its log."""

from __future__ import annotations

from typing import Annotated

import typer


def snapshot(
    file: Annotated[str, typer.Argument(metavar="TOPOLOGY", help="The topology's YAML file.")],
    tables: Annotated[list[str], typer.Argument(metavar="TABLE...", help="source.table or source.database.table.")],
    where: Annotated[str, typer.Option("--where", help="Read only rows for which this SQL condition holds.")] = "",
    stop: Annotated[bool, typer.Option("--stop", help="Give up the snapshots of these tables instead.")] = False,
) -> None:
    """Read tables again while everything else goes on: sends a signal to the captures, which obey within a second.

    Live changes win over the rows that are read. The signal is Debezium's `execute-snapshot` in the topic `…signals`.

    Example: tailorbird snapshot topologies/shop.yml shop.orders --where "status = 'open'"
    """
    from cdc.errors import UsageError
    from console.file_topology import load_topology
    from ingest.agent.kafka_signals import send
    from ingest.agent.signals import signal_value

    topology = load_topology(file)
    by_source: dict[str, list[str]] = {}
    for name in tables:
        found = topology.table_id(tuple(name.split(".")))
        if found is None:
            raise UsageError(f"{name} is no captured table of {file}", "write source.table, e.g. shop.orders")
        by_source.setdefault(found.source, []).append(f"{found.database}.{found.table}")
    kind = "stop-snapshot" if stop else "execute-snapshot"
    for source, names in by_source.items():
        send(topology, source, signal_value(kind, tuple(names), where))
        typer.echo(f"{source}: {kind} of {', '.join(names)} sent")
