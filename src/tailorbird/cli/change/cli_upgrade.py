"""`tailorbird upgrade`: what an upgrade or a downgrade would lose."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cdc.model.errors import Retriable, UsageError

if TYPE_CHECKING:
    from tailorbird.deploy.upgrade.formats import FormatFinding, StoredFormat

_UNAVAILABLE = 3


def upgrade(
    file: Annotated[str | None, typer.Argument(metavar="TOPOLOGY", help="The topology's YAML file.")] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Compare the formats of stored data. Changes nothing.")
    ] = False,
    to: Annotated[
        Path | None, typer.Option("--to", help="Check another version: a file with the output of its --formats.")
    ] = None,
    formats: Annotated[bool, typer.Option("--formats", help="Print the formats that this version reads.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line, for programs.")] = False,
) -> None:
    """Show what an upgrade or a downgrade would lose, before it happens. Reads only.

    Run the installed version's `--check` before its processes start, on the machine of the joins. It compares the data
    that an earlier version stored with the formats that this version reads and writes. With --to it checks another
    version, for example an older one. Exit code 0: nothing is lost; 1: something cannot go back, or a table is rebuilt;
    2: the version cannot read something; 3: a server is unavailable.

    Example: tailorbird upgrade topologies/shop.yml --check

    Example: tailorbird upgrade --formats > formats.json
    """
    # imported here: the servers' clients and the query compiler would slow down `--help`
    from tailorbird.deploy.upgrade.formats import EXIT, INSTALLED, findings, from_json, to_json

    if formats:
        typer.echo(json.dumps(to_json(INSTALLED)))
        return
    if file is None or not check:
        raise UsageError("nothing to do", "tailorbird upgrade TOPOLOGY --check")
    version, back = INSTALLED, None
    if to is not None:
        try:
            version, back = from_json(json.loads(to.read_text())), INSTALLED
        except (OSError, ValueError) as error:
            raise UsageError(f"{to}: {error}", "use the output of `tailorbird upgrade --formats`") from error
    try:
        with _stored(file) as (stored, rebuilt):
            found = list(findings(stored, version, back))
            if back is None and "unreadable" not in {one.state for one in found}:
                known = {one.place for one in found if one.state == "rebuilt"}
                found += [one for one in rebuilt() if one.place not in known]
    except Retriable as error:  # 1 would mean that something cannot go back
        typer.echo(f"tailorbird: {error}", err=True)
        raise typer.Exit(_UNAVAILABLE) from error
    for one in found:
        typer.echo(json.dumps(one.to_json()) if as_json else f"{one.state:<11}{one.name:<18}{one.place}: {one.why}")
    raise typer.Exit(max((EXIT[one.state] for one in found), default=0))


@contextmanager
def _stored(file: str) -> Iterator[tuple[list[StoredFormat], Callable[[], list[FormatFinding]]]]:
    """Connect to the servers. Yield the stored formats, and a function that returns the tables which are rebuilt."""
    from cdc.process.file_topology import read_file
    from cdc.process.kafka_grants import granted
    from tailorbird.cli.change.cli_connected import connected_to
    from tailorbird.deploy.plan.kafka_versions import newest_versions
    from tailorbird.deploy.plan.run_plan import planned
    from tailorbird.deploy.plan.side_by_side import choose
    from tailorbird.deploy.upgrade.formats import JOIN_STATE, FormatFinding
    from tailorbird.deploy.upgrade.run_upgrade import stored_formats

    topology = granted(read_file(file, "operator"), "operator")
    if topology.only_captures:
        yield list(stored_formats(topology, None, None)), list
        return
    with connected_to(topology) as connected:

        def rebuilt() -> list[FormatFinding]:
            changes = choose(topology, newest_versions(topology), lambda one: planned(one, connected.stores)).changes
            return [
                FormatFinding(name=JOIN_STATE, place=one.name, stored=None, state="rebuilt", why=one.why)
                for one in changes
                if one.kind == "join" and one.action in ("rebuild", "build")
            ]

        yield list(stored_formats(topology, connected.stores, connected.client)), rebuilt
