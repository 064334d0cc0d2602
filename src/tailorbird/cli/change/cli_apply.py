"""`tailorbird apply`: make in HBase and Solr what a topology needs."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from cdc.model.errors import UsageError
from cdc.process.file_topology import read_file
from cdc.topology.topology import Topology
from tailorbird.cli.change.cli_apply_sources import write_sources
from tailorbird.cli.change.cli_connected import NOTHING_TO_MAKE, ConnectedServers, connected_to, journal_of

if TYPE_CHECKING:
    from tailorbird.cli.change.cli_versions import VersionsAtWork
    from tailorbird.deploy.plan.change import Change
    from tailorbird.provision.apply import Outcome
    from tailorbird.provision.journal import Journal

TIMEOUT = 600.0  # seconds that a new version may need to become as fresh as the one that serves


def apply(
    file: Annotated[str, typer.Argument(metavar="TOPOLOGY", help="The topology's YAML file.")],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per thing, for programs.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="As `tailorbird plan`: do nothing.")] = False,
    rollback: Annotated[bool, typer.Option("--rollback", help="Queries see the versions of before again.")] = False,
    retire: Annotated[bool, typer.Option("--retire", help="Remove the versions that queries do not see.")] = False,
    timeout: Annotated[
        float, typer.Option("--timeout", metavar="SECONDS", min=0, help="Wait so long for a new version to be fresh.")
    ] = TIMEOUT,
    no_wait: Annotated[
        bool, typer.Option("--no-wait", help="Begin new versions and return; a later apply verifies and swaps.")
    ] = False,
) -> None:
    """Apply a topology: create what is missing, and swap changed tables when they are verified.

    Missing tables, collections and replication peers are created. A table whose query changed is built alongside the
    old one, which serves until the new one is as fresh and verified.

    Sources with `agent:` are written into the fleet's topic, where their gateways find them (docs/fleet.md).

    Run it before the processes of the topology, and again after every change of the file; `tailorbird plan` says
    beforehand what there is to do, and what it costs. Cut off at any step, the next apply does what is left; a second
    one beside it is refused. Exit code 1 where a table can not be built beside the old one: its sink is Kafka, or it
    was made before its query was kept; the line says by which command its join begins anew.

    Example: tailorbird apply topologies/shop.yml --dry-run

    Example: tailorbird apply topologies/shop.yml --rollback
    """
    topology = read_file(file)
    if sum((dry_run, rollback, retire)) > 1:
        raise UsageError("--dry-run, --rollback and --retire exclude one another", "choose one")
    if dry_run:
        from tailorbird.cli.change.cli_plan import show_plan

        show_plan(topology, as_json=as_json)
        return

    if not (rollback or retire):
        write_sources(topology, as_json=as_json)
    if topology.only_captures:
        typer.echo(NOTHING_TO_MAKE, err=True)
        return
    stuck = _applied(topology, as_json, "rollback" if rollback else "retire" if retire else "", timeout, not no_wait)
    for one in stuck:
        if as_json:
            note = f"{one.why}: {one.by}"
            typer.echo(json.dumps({"kind": "query", "name": one.name, "done": "changed", "note": note}))
        else:
            typer.echo(f"stale   query      {one.name}  ({one.why}: {one.by})")
    if stuck:
        raise typer.Exit(1)


def _applied(topology: Topology, as_json: bool, way: str, timeout: float, wait: bool) -> Sequence[Change]:
    """Do it, or go back, or remove old versions; the changes that only a person can make."""

    def echo(outcome: Outcome) -> None:
        if as_json:
            typer.echo(json.dumps(dataclasses.asdict(outcome)))
        else:
            typer.echo(f"{outcome.done:<8}{outcome.kind:<11}{outcome.name}  ({outcome.note})")

    with connected_to(topology) as connected, journal_of(connected.client, topology, 0.0) as journal:
        from tailorbird.deploy.plan.rollout import retire as removed
        from tailorbird.deploy.plan.rollout import roll_back

        hands = _hands(topology, connected, journal, echo, timeout)
        stuck: Sequence[Change] = ()
        if way == "rollback":
            roll_back(topology, hands)
        elif way == "retire":
            removed(hands)
        else:
            stuck = _brought(topology, connected, hands, wait=wait)
        journal.end()
    return stuck


def _brought(topology: Topology, connected: ConnectedServers, hands: VersionsAtWork, *, wait: bool) -> Sequence[Change]:
    """Do what the file means; what is left to people of the tables that can not be built beside what serves."""
    # imported here: `--help` should not wait for the servers' clients and the compiler of queries
    from tailorbird.deploy.plan.rollout import bring
    from tailorbird.deploy.plan.run_plan import planned
    from tailorbird.deploy.plan.side_by_side import choose

    choice = choose(topology, hands.versions, lambda one: planned(one, connected.stores))
    bring(topology, choice, hands, wait=wait)
    if choice.moving and not wait:
        typer.echo(f"{', '.join(choice.moving)}: being built; apply again to verify and swap", err=True)
    return [one for one in choice.changes if one.kind == "join" and one.action in ("rebuild", "refuse")]


def note_queries(topology: Topology) -> list[str]:
    """Keep how the tables of a topology's file are declared, so that a changed one can be built beside; the tables
    whose query is another one than what runs are left as they are, and returned. Retriable while a server is away.
    """
    from joins.process.declared import recorded, serving
    from tailorbird.deploy.plan.run_plan import planned
    from tailorbird.deploy.plan.side_by_side import choose

    if topology.only_captures:
        return []
    with connected_to(topology) as connected, journal_of(connected.client, topology, 60.0) as journal:
        hands = _hands(topology, connected, journal, lambda _: None)
        choice = choose(topology, hands.versions, lambda one: planned(one, connected.stores))
        changed = [*choice.moving, *choice.stuck]
        noted = [name for name in topology.tables if name not in changed]
        hands.store(recorded(topology, hands.versions, serving(hands.versions), noted))
        journal.end()
    return changed


def _hands(
    topology: Topology,
    connected: ConnectedServers,
    journal: Journal,
    made: Callable[[Outcome], None],
    timeout: float = TIMEOUT,
) -> VersionsAtWork:
    from tailorbird.cli.change.cli_versions import VersionsAtWork
    from tailorbird.deploy.plan.kafka_versions import newest_versions

    versions = newest_versions(topology)
    return VersionsAtWork(
        topology,
        versions,
        connected,
        journal,
        made=made,
        report=lambda line: typer.echo(line, err=True),
        timeout=timeout,
    )


def provision(topology: Topology, *, settling: float = 0.0) -> Generator[Outcome]:
    """Make what a topology lacks, yielding each outcome as it is reached; errors as in `tailorbird.provision`.

    UsageError where another apply of the topology is at work for longer than `settling` (seconds).
    """
    # imported here: HBase's and Solr's clients cost half a second, which `--help` should not
    from tailorbird.provision.apply import apply as run
    from tailorbird.provision.plan import plan

    if topology.only_captures:
        return
    with connected_to(topology) as connected, journal_of(connected.client, topology, settling) as journal:
        yield from run(topology, plan(topology, connected.stores), connected.stores, journal.at)
        journal.end()
