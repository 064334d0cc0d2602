"""`tailorbird apply`: create what a topology needs in HBase and Solr, and replace changed tables."""

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
from tailorbird.operate.status.selection import ListChoice

if TYPE_CHECKING:
    from tailorbird.cli.change.cli_versions import VersionRollout
    from tailorbird.deploy.plan.change import Change
    from tailorbird.provision.apply import Outcome
    from tailorbird.provision.journal import Journal

TIMEOUT = 600.0  # seconds until a new version must be as fresh as the one that serves


def apply(
    file: Annotated[str, typer.Argument(metavar="TOPOLOGY", help="The topology's YAML file.")],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per step, for programs.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Change nothing, like `tailorbird plan`.")] = False,
    rollback: Annotated[bool, typer.Option("--rollback", help="Serve the previous versions again.")] = False,
    retire: Annotated[bool, typer.Option("--retire", help="Remove versions that do not serve queries.")] = False,
    timeout: Annotated[
        float, typer.Option("--timeout", metavar="SECONDS", min=0, help="Maximum wait for a new version to be fresh.")
    ] = TIMEOUT,
    no_wait: Annotated[
        bool, typer.Option("--no-wait", help="Start new versions and return; a later apply verifies and swaps.")
    ] = False,
) -> None:
    """Apply a topology: create what is missing, and swap changed tables when they are verified.

    Creates missing tables, collections and replication peers. A table whose query changed is built alongside the old
    one, which serves until the new one is as fresh and verified.

    Publishes sources with `agent:` to the fleet's gateways (docs/fleet.md).

    Run it before the topology's processes, and again after every change of the file. `tailorbird plan` shows the steps
    and their cost in advance. If an apply is interrupted, the next one continues it. Two applies cannot run at once.
    Exit code 1: a table cannot be built alongside the old one, because its sink is Kafka, or because it is older than
    stored queries; the output has the command that rebuilds it.

    Example: tailorbird apply topologies/shop.yml --dry-run

    Example: tailorbird apply topologies/shop.yml --rollback
    """
    topology = read_file(file, "operator")
    if sum((dry_run, rollback, retire)) > 1:
        raise UsageError("--dry-run, --rollback and --retire exclude one another", "choose one")
    if dry_run:
        from tailorbird.cli.change.cli_plan import show_plan

        show_plan(topology, ListChoice(), as_json=as_json)
        return
    from cdc.process.kafka_grants import granted

    granted(topology, "operator")

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
    """Run an apply, a rollback or the removal of old versions (`way`). Return the changes left to the user."""

    def echo(outcome: Outcome) -> None:
        if as_json:
            typer.echo(json.dumps(dataclasses.asdict(outcome)))
        else:
            typer.echo(f"{outcome.done:<8}{outcome.kind:<11}{outcome.name}  ({outcome.note})")

    with connected_to(topology) as connected, journal_of(connected.client, topology, 0.0) as journal:
        from tailorbird.deploy.plan.rollout import retire as removed
        from tailorbird.deploy.plan.rollout import roll_back

        actions = _actions(topology, connected, journal, echo, timeout)
        stuck: Sequence[Change] = ()
        if way == "rollback":
            roll_back(topology, actions)
        elif way == "retire":
            removed(actions)
        else:
            stuck = _brought(topology, connected, actions, wait=wait)
        journal.end()
    return stuck


def _brought(
    topology: Topology, connected: ConnectedServers, actions: VersionRollout, *, wait: bool
) -> Sequence[Change]:
    """Apply the file. Return the changes of tables that cannot be built alongside their current version."""
    # imported here: the servers' clients and the query compiler would slow down `--help`
    from tailorbird.deploy.plan.rollout import bring
    from tailorbird.deploy.plan.run_plan import planned
    from tailorbird.deploy.plan.side_by_side import choose

    choice = choose(topology, actions.versions, lambda one: planned(one, connected.stores))
    bring(topology, choice, actions, wait=wait)
    if choice.moving and not wait:
        typer.echo(f"{', '.join(choice.moving)}: being built; apply again to verify and swap", err=True)
    return [one for one in choice.changes if one.kind == "join" and one.action in ("rebuild", "refuse")]


def note_queries(topology: Topology) -> list[str]:
    """Store the queries of a topology's tables, so that a changed table can later be built alongside the old one.

    Returns the names of the tables whose query differs from the running one; these are not stored. Raises Retriable
    while a server is unavailable."""
    from joins.process.declared import recorded, serving
    from tailorbird.deploy.plan.run_plan import planned
    from tailorbird.deploy.plan.side_by_side import choose

    if topology.only_captures:
        return []
    with connected_to(topology) as connected, journal_of(connected.client, topology, 60.0) as journal:
        actions = _actions(topology, connected, journal, lambda _: None)
        choice = choose(topology, actions.versions, lambda one: planned(one, connected.stores))
        changed = [*choice.moving, *choice.stuck]
        noted = [name for name in topology.tables if name not in changed]
        actions.store(recorded(topology, actions.versions, serving(actions.versions), noted))
        journal.end()
    return changed


def _actions(
    topology: Topology,
    connected: ConnectedServers,
    journal: Journal,
    made: Callable[[Outcome], None],
    timeout: float = TIMEOUT,
) -> VersionRollout:
    from tailorbird.cli.change.cli_versions import VersionRollout
    from tailorbird.deploy.plan.kafka_versions import newest_versions

    versions = newest_versions(topology)
    return VersionRollout(
        topology,
        versions,
        connected,
        journal,
        made=made,
        report=lambda line: typer.echo(line, err=True),
        timeout=timeout,
    )


def provision(topology: Topology, *, settling: float = 0.0) -> Generator[Outcome]:
    """Create the tables, collections and peers that a topology lacks. Yield the outcome of each step.

    Raises the errors of `tailorbird.provision`, and UsageError if another apply of the topology still runs after
    `settling` seconds."""
    # imported here: the clients of HBase and Solr would slow down `--help` by half a second
    from tailorbird.provision.apply import apply as run
    from tailorbird.provision.plan import plan

    if topology.only_captures:
        return
    with connected_to(topology) as connected, journal_of(connected.client, topology, settling) as journal:
        yield from run(topology, plan(topology, connected.stores), connected.stores, journal.at)
        journal.end()
