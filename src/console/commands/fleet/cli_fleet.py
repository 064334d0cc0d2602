"""`tailorbird fleet`: the fleet's certificates, and what operators ask of a gateway."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from cdc.words.errors import UsageError
from console.commands.fleet import cli_fleet_look, cli_fleet_sources, cli_fleet_token

app = typer.Typer(
    no_args_is_help=True,
    help="Agents and gateways: who is who, and what they do.\n\n"
    "Example: tailorbird fleet ca issue agent db1 --tenant acme",
)
ca = typer.Typer(
    no_args_is_help=True,
    help="The fleet's certificates, which say who is who.\n\nExample: tailorbird fleet ca init --tenant acme",
)
app.add_typer(ca, name="ca")
app.add_typer(cli_fleet_sources.source, name="source")
app.add_typer(cli_fleet_sources.sync, name="sync")
app.add_typer(cli_fleet_sources.config, name="config")
app.add_typer(cli_fleet_sources.positions, name="positions")
app.add_typer(cli_fleet_token.token, name="token")
app.command("agents")(cli_fleet_look.agents)
app.command("map")(cli_fleet_look.show_map)
app.command("audit")(cli_fleet_look.audit)
app.command("drain")(cli_fleet_look.drain)
app.command("dump")(cli_fleet_sources.dump)
_AUTHORITY = Annotated[Path, typer.Option("--authority", help="Folder of the authority; its key never leaves it.")]
_TENANT = Annotated[str, typer.Option("--tenant", help="Whose fleet it is: small letters and digits.")]


@ca.command("init")
def init(authority: _AUTHORITY = Path("fleet-ca"), tenant: _TENANT = "main") -> None:
    """Make the authority that signs all certificates of a fleet.

    Example: tailorbird fleet ca init --tenant acme
    """
    from console.fleet.file_ca import init as make
    from ingest.fleet.identity import identity

    identity(tenant, "agents", "any")  # refuses what is no tenant's name
    make(authority, tenant)
    typer.echo(f"{authority}: keep ca-key.pem safe; whoever has it can make agents and gateways")


@ca.command("issue")
def issue(
    role: Annotated[Literal["agent", "gateway"], typer.Argument(help="What it is for.")],
    name: Annotated[str, typer.Argument(help="Its name: small letters, digits, dots, dashes.")],
    into: Annotated[Path | None, typer.Option("--into", help="Folder to write to; by default its name.")] = None,
    host: Annotated[
        list[str] | None, typer.Option("--host", help="Of a gateway: a host that agents dial; again for more.")
    ] = None,
    days: Annotated[int, typer.Option("--days", min=1, help="How long it is valid.")] = 365,
    authority: _AUTHORITY = Path("fleet-ca"),
    tenant: _TENANT = "main",
) -> None:
    """Write the certificate and key of an agent or a gateway.

    Example: tailorbird fleet ca issue gateway gw1 --host gw1.example.org --tenant acme
    """
    from console.fleet.file_ca import issue as make
    from ingest.fleet.identity import identity

    if role == "gateway" and not host:
        raise UsageError("a gateway's certificate names the hosts that agents dial", "--host NAME, again for more")
    folder = into or Path(name)
    make(authority, identity(tenant, f"{role}s", name), folder, hosts=host or (), days=days)
    typer.echo(f"{folder}: ca.pem, cert.pem, key.pem of {role} {name}")
