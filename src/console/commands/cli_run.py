"""`tailorbird run`: apply a topology, then run all its processes until Ctrl-C."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from console.status.part_status import PartStatus
    from console.status.snapshot_progress import SnapshotProgress

    Shower = Callable[[Sequence[PartStatus], Sequence[SnapshotProgress], Sequence[str]], None]


def run(
    file: Annotated[str, typer.Argument(help="The topology, e.g. topologies/shop.yml.")],
    page_port: Annotated[
        int, typer.Option("--page-port", min=0, max=65535, help="Serve the dashboards there, too.")
    ] = 0,
    rebuild: Annotated[
        list[str] | None,
        typer.Option("--rebuild", metavar="TABLE", help="Begin this table's join anew; again for more."),
    ] = None,
) -> None:
    """Run every process of a topology until Ctrl-C; one that dies is restarted, unless it is used wrongly or fails
    three times for the same reason; the others run on. On a terminal the processes are shown as they stand; else what
    changes is a line: who moves, how far snapshots are, when the first rows are there.

    Example: tailorbird run topologies/shop.yml

    Example: tailorbird run topologies/shop.yml --rebuild orders_wide
    """
    from cdc.process.file_topology import home, load_topology
    from console.commands.cli_apply import provision
    from console.commands.cli_dead_letters import joined_from
    from console.commands.cli_status import asked_parts
    from console.doctor.validate import validate
    from console.pipeline.proc_pipeline import Pipeline
    from console.status.dead_letters import incomplete_lines
    from console.status.kafka_letters import letters_watched
    from console.status.kafka_positions import positions_watched
    from console.status.quarantine import quarantined
    from console.status.snapshot_progress import progress_of

    topology = load_topology(file)
    validate(topology)
    if rebuild:
        from joins.process.file_state import forget_state
        from joins.run import choose_table, settle_rebuilt

        tables = [choose_table(topology, name) for name in rebuild]
        forget_state(topology, tables)
        settle_rebuilt(topology, tables)
    list(provision(topology, patience=60))  # on another machine the same topology may be started now
    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.set())
    with Pipeline(topology, home=home(), page_port=page_port) as pipeline, ExitStack() as closing:
        pipeline.start(lambda part: typer.echo(f"{part.name}: started, log {part.log}"))
        if page_port and topology.dashboards:
            typer.echo(f"page: http://127.0.0.1:{page_port}/")
        typer.echo("running; Ctrl-C stops")
        positions = positions_watched(topology)
        show = _shown_live(closing) if sys.stdout.isatty() else _shown_in_lines()
        letters, reads = letters_watched(topology), joined_from(topology)
        while not stopped.wait(1.0):
            pipeline.check()
            if len(pipeline.down) == len(pipeline.parts):
                pipeline.must_run()
            captured = positions.last() or {}
            lacking = incomplete_lines([*quarantined(captured), *(letters.last() or ())], reads, file)
            show(asked_parts(topology), progress_of(captured, time.time() * 1000), lacking)
        typer.echo("stopping")


def _shown_live(closing: ExitStack) -> Shower:
    """A table that stays in its place."""
    from rich.console import Group
    from rich.live import Live
    from rich.text import Text

    from console.status.part_status import lines_of
    from console.status.snapshot_progress import shown

    live = closing.enter_context(Live(refresh_per_second=4))

    def show(parts: Sequence[PartStatus], snapshots: Sequence[SnapshotProgress], lacking: Sequence[str]) -> None:
        lines = [Text("\n".join(lines_of(one)), style="" if one.moves else "bold red") for one in parts]
        lines += [Text(line, style="bold red") for line in lacking]
        live.update(Group(*lines, *(Text(f"snapshot {shown(one)}", style="cyan") for one in snapshots)))

    return show


def _shown_in_lines() -> Shower:
    """A line where there is something new."""
    from console.status.milestones import Milestones

    milestones = Milestones(time.monotonic())
    incomplete: set[str] = set()

    def show(parts: Sequence[PartStatus], snapshots: Sequence[SnapshotProgress], lacking: Sequence[str]) -> None:
        for line in milestones.news(parts, snapshots, time.monotonic()):
            typer.echo(line)
        # once for each table: how many there are changes all the time
        if new := {line.partition(":")[0] for line in lacking[:-1]} - incomplete:
            typer.echo("\n".join([*(line for line in lacking if line.partition(":")[0] in new), lacking[-1]]))
        incomplete.clear()
        incomplete.update(line.partition(":")[0] for line in lacking[:-1])

    return show
