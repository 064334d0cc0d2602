"""`tailorbird run`: apply a topology, then run all its processes until Ctrl-C."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from console.status.part_status import PartStatus


def run(
    file: str = typer.Argument(help="The topology, e.g. topologies/shop.yml."),
    page_port: int = typer.Option(0, "--page-port", min=0, max=65535, help="Serve the first dashboard there, too."),
) -> None:
    """Run every process of a topology until Ctrl-C; one that dies is restarted, unless it is used wrongly or fails
    three times for the same reason; the others run on. On a terminal the processes are shown as they stand; else what
    changes is a line.

    Example: tailorbird run topologies/shop.yml
    """
    from cdc.process.file_topology import home, load_topology
    from console.commands.cli_apply import provision
    from console.commands.cli_status import asked_parts
    from console.doctor.validate import validate
    from console.pipeline.proc_pipeline import Pipeline

    topology = load_topology(file)
    validate(topology)
    list(provision(topology))
    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.set())
    with Pipeline(topology, home=home(), page_port=page_port) as pipeline, ExitStack() as closing:
        pipeline.start(lambda part: typer.echo(f"{part.name}: started, log {part.log}"))
        if page_port and topology.dashboards:
            typer.echo(f"page: http://127.0.0.1:{page_port}/")
        typer.echo("running; Ctrl-C stops")
        show = _shown_live(closing) if sys.stdout.isatty() else _shown_in_lines()
        while not stopped.wait(1.0):
            pipeline.check()
            if len(pipeline.down) == len(pipeline.parts):
                pipeline.must_run()
            show(asked_parts(topology))


def _shown_live(closing: ExitStack) -> Callable[[Sequence[PartStatus]], None]:
    """A table that stays in its place."""
    from rich.console import Group
    from rich.live import Live
    from rich.text import Text

    from console.status.part_status import lines_of

    live = closing.enter_context(Live(refresh_per_second=4))

    def show(parts: Sequence[PartStatus]) -> None:
        live.update(Group(*(Text("\n".join(lines_of(one)), style="" if one.moves else "bold red") for one in parts)))

    return show


def _shown_in_lines() -> Callable[[Sequence[PartStatus]], None]:
    """A line where a part's state or error is another than before."""
    from console.status.part_status import lines_of

    before: dict[str, tuple[str, str]] = {}

    def show(parts: Sequence[PartStatus]) -> None:
        for one in parts:
            if before.get(one.part) != (one.state, one.error):
                before[one.part] = (one.state, one.error)
                typer.echo("\n".join(lines_of(one)))

    return show
