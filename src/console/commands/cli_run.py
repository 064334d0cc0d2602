"""`tailorbird run`: apply a topology, then run all its processes until Ctrl-C."""

from __future__ import annotations

import signal
import threading

import typer


def run(
    file: str = typer.Argument(help="The topology, e.g. topologies/shop.yml."),
) -> None:
    """Run every process of a topology until Ctrl-C; one that dies is restarted.

    Example: tailorbird run topologies/shop.yml
    """
    from cdc.process.file_topology import home, load_topology
    from console.commands.cli_apply import provision
    from console.doctor.validate import validate
    from console.pipeline.proc_pipeline import Pipeline

    topology = load_topology(file)
    validate(topology)
    list(provision(topology))
    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.set())
    with Pipeline(topology, home=home()) as pipeline:
        pipeline.start(lambda part: typer.echo(f"{part.name}: started, log {part.log}"))
        typer.echo("running; Ctrl-C stops")
        while not stopped.wait(1.0):
            pipeline.check()
