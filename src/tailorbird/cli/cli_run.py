"""`tailorbird run`: apply a topology, then run all its processes until Ctrl-C."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from cdc.lifetime.proc_signals import stop_event
from cdc.model.errors import Retriable
from cdc.topology.topology import Topology
from cdc.topology.versions import in_versions, version_name

if TYPE_CHECKING:
    from tailorbird.operate.pipeline.proc_pipeline import Part, Pipeline
    from tailorbird.operate.status.part_status import PartStatus
    from tailorbird.operate.status.snapshot_progress import SnapshotProgress

    Shower = Callable[[Sequence[PartStatus], Sequence[SnapshotProgress], Sequence[str]], None]

_VERSIONS_EVERY = 10.0  # seconds


def run(
    file: Annotated[str, typer.Argument(help="The topology, e.g. topologies/shop.yml.")],
    page_port: Annotated[
        int, typer.Option("--page-port", min=0, max=65535, help="Also serve the dashboards on this port.")
    ] = 0,
    rebuild: Annotated[
        list[str] | None,
        typer.Option("--rebuild", metavar="TABLE", help="Rebuild this table from the log. May be repeated."),
    ] = None,
) -> None:
    """Run every process of a topology until Ctrl-C.

    A process that dies is restarted, unless it is configured wrongly or fails three times for the same reason; the
    others keep running. A terminal shows the state of all processes; elsewhere each change of state is one line.

    Example: tailorbird run topologies/shop.yml

    Example: tailorbird run topologies/shop.yml --rebuild orders_wide
    """
    from cdc.process.file_topology import home, kept_versions, load_topology, read_file
    from tailorbird.cli.change.cli_apply import provision
    from tailorbird.deploy.plan.kafka_versions import newest_versions
    from tailorbird.operate.doctor.validate import validate
    from tailorbird.operate.pipeline.proc_pipeline import Pipeline

    declared = read_file(file, "operator")
    validate(declared)
    with suppress(Retriable):  # without Kafka, use this machine's stored versions
        newest_versions(declared)
    topology = _rebuilt(declared, rebuild) if rebuild else load_topology(file, "operator")
    list(provision(topology, settling=60))  # another machine may be starting the same topology
    _note(declared)
    topology = in_versions(declared, kept_versions(declared.name))
    stopped = stop_event()
    with Pipeline(topology, home=home(), page_port=page_port) as pipeline, ExitStack() as closing:
        pipeline.start(_reported_start)
        if page_port and topology.pages:
            typer.echo(f"page: http://127.0.0.1:{page_port}/")
        typer.echo("running; Ctrl-C stops")
        _watch(declared, pipeline, closing, stopped)
        typer.echo("stopping")


def _reported_start(part: Part) -> None:
    typer.echo(f"{part.name}: started, log {part.log}")


def _watch(declared: Topology, pipeline: Pipeline, closing: ExitStack, stopped: threading.Event) -> None:
    """Show the state of the processes, restart those that end, and follow new table versions, until `stopped` is
    set."""
    from cdc.process.file_topology import kept_versions
    from tailorbird.cli.cli_dead_letters import joined_from
    from tailorbird.deploy.plan.kafka_versions import newest_versions
    from tailorbird.operate.status.dead_letters import incomplete_lines
    from tailorbird.operate.status.file_parts import asked_parts
    from tailorbird.operate.status.kafka_captured import positions_watched
    from tailorbird.operate.status.kafka_dead_letters import dead_letters_watched
    from tailorbird.operate.status.proc_watch import Watch
    from tailorbird.operate.status.quarantine import quarantined
    from tailorbird.operate.status.snapshot_progress import progress_of

    # an apply on this machine is visible at once in its file; one on another machine at the next poll
    asked = Watch(partial(newest_versions, declared), name="versions", every=_VERSIONS_EVERY)
    versions = kept_versions(declared.name)
    topology = in_versions(declared, versions)
    positions = positions_watched(topology)
    show = _shown_live(closing) if sys.stdout.isatty() else _shown_in_lines()
    dead_letters, reads = dead_letters_watched(topology), joined_from(topology)
    while not stopped.wait(1.0):
        pipeline.check()
        asked.last()
        if (now := kept_versions(declared.name)) != versions:
            versions, topology = now, in_versions(declared, now)
            reads = joined_from(topology)
            pipeline.follow(topology, _reported_start)
        if len(pipeline.down) == len(pipeline.parts):
            pipeline.must_run()
        captured = positions.last() or {}
        lacking = incomplete_lines([*quarantined(captured), *(dead_letters.last() or ())], reads, declared.file)
        show(asked_parts(topology), progress_of(captured, time.time() * 1000), lacking)


def _rebuilt(declared: Topology, rebuild: Sequence[str]) -> Topology:
    """Reset the joins of the tables in `rebuild` to the queries of the file. Return the topology to run."""
    from joins.process.declared import recorded, serving
    from joins.process.file_state import forget_state
    from joins.run_join import choose_table, settle_rebuilt
    from tailorbird.deploy.plan.kafka_versions import newest_versions, store_versions

    versions = newest_versions(declared)
    bases = {name: name.partition(".")[0] for name in rebuild}
    for base in bases.values():
        choose_table(declared, base)
    again = recorded(declared, versions, serving(versions), list(bases.values())) if versions.tables else versions
    topology = in_versions(declared, again)
    called = dict.fromkeys(
        version_name(base, again.tables[base].serving) if again.tables else base for base in bases.values()
    )
    tables = [choose_table(topology, name) for name in called]
    forget_state(topology, tables)
    if again != versions:
        store_versions(declared, again)
    settle_rebuilt(topology, tables)
    return topology


def _note(declared: Topology) -> None:
    """Store the queries of the file, and print which tables it changes. Skipped while a server is unavailable."""
    from tailorbird.cli.change.cli_apply import note_queries

    try:
        changed = note_queries(declared)
    except Retriable as error:
        typer.echo(f"cannot store the declared queries: {error}", err=True)
        return
    if changed:
        what = f"the file changes {', '.join(changed)}, which still run unchanged: tailorbird apply {declared.file}"
        typer.echo(what, err=True)


def _shown_live(closing: ExitStack) -> Shower:
    """Return a function that shows the state as a live display."""
    from rich.console import Group
    from rich.live import Live
    from rich.text import Text

    from tailorbird.operate.status.part_status import lines_of
    from tailorbird.operate.status.snapshot_progress import shown

    live = closing.enter_context(Live(refresh_per_second=4))

    def show(parts: Sequence[PartStatus], snapshots: Sequence[SnapshotProgress], lacking: Sequence[str]) -> None:
        lines = [Text("\n".join(lines_of(one)), style="" if one.moves else "bold red") for one in parts]
        lines += [Text(line, style="bold red") for line in lacking]
        live.update(Group(*lines, *(Text(f"snapshot {shown(one)}", style="cyan") for one in snapshots)))

    return show


def _shown_in_lines() -> Shower:
    """Return a function that prints a line for each change of state."""
    from tailorbird.operate.status.milestones import Milestones

    milestones = Milestones(time.monotonic())
    incomplete: set[str] = set()

    def show(parts: Sequence[PartStatus], snapshots: Sequence[SnapshotProgress], lacking: Sequence[str]) -> None:
        for line in milestones.news(parts, snapshots, time.monotonic()):
            typer.echo(line)
        # once per table, because the number of records changes constantly
        if new := {line.partition(":")[0] for line in lacking[:-1]} - incomplete:
            typer.echo("\n".join([*(line for line in lacking if line.partition(":")[0] in new), lacking[-1]]))
        incomplete.clear()
        incomplete.update(line.partition(":")[0] for line in lacking[:-1])

    return show
