"""`tailorbird agent install` and `uninstall`: the unit of an agent, for hosts without containers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from tailorbird.cli.fleet.cli_api import Json

Name = Annotated[str, typer.Argument(metavar="NAME", help="The agent, as in its certificate.")]
Prefix = Annotated[Path, typer.Option("--prefix", help="Write below this folder instead of /.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show the files, and change nothing.")]


def install(
    name: Name,
    gateway: Annotated[list[str], typer.Option("--gateway", help="Host and port of a gateway. May be repeated.")],
    identity: Annotated[
        Path | None, typer.Option("--identity", help="Folder of the agent's certificates. Default: NAME.")
    ] = None,
    policy: Annotated[Path, typer.Option("--policy", help="File that limits what may leave this host.")] = Path(
        "policy.yml"
    ),
    command: Annotated[
        str, typer.Option("--command", help="Absolute path of `tailorbird` on this host.")
    ] = "/usr/local/bin/tailorbird",
    metrics_port: Annotated[
        int, typer.Option("--metrics-port", help="Serve /metrics and /health on this port; 0: off.")
    ] = 9464,
    prefix: Prefix = Path("/"),
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Install a systemd unit for an agent on this host. Needs root.

    Copies certificates and policy to /etc/tailorbird/agents/NAME, and writes a unit and its environment. An existing
    policy there is kept. Prints the commands that start the agent.

    Example: tailorbird agent install paris --gateway gw1.example.org:7443 --policy policy.yml

    Example: tailorbird agent install paris --gateway gw1.example.org:7443 --dry-run
    """
    from tailorbird.deploy.units.file_install import agent_files, below, next_steps, write_files

    files = agent_files(
        name,
        gateways=gateway,
        identity=identity or Path(name),
        policy=policy,
        command=command,
        metrics_port=metrics_port,
    )
    if not dry_run:
        write_files(files, prefix)
    paths = [str(below(prefix, file.path)) for file in files]
    if as_json:
        typer.echo(json.dumps({"files": paths, "written": not dry_run, "next": next_steps(name)}))
        return
    for path in paths:
        typer.echo(f"{'would write' if dry_run else 'wrote'} {path}")
    typer.echo("then run:")
    for step in next_steps(name):
        typer.echo(f"  {step}")


def uninstall(name: Name, prefix: Prefix = Path("/"), dry_run: DryRun = False, as_json: Json = False) -> None:
    """Remove the files that `install` wrote. Stop the agent first.

    `systemctl disable --now tailorbird-agent@paris` stops it. Its state in Kafka stays, so another host can take over.

    Example: tailorbird agent uninstall paris
    """
    from tailorbird.deploy.units.file_install import remove_files, removed_files

    paths = removed_files(name, prefix)
    if not dry_run:
        remove_files(paths)
    if as_json:
        typer.echo(json.dumps({"files": [str(path) for path in paths], "removed": not dry_run}))
        return
    for path in paths:
        typer.echo(f"{'would remove' if dry_run else 'removed'} {path}")
