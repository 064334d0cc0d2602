"""`tailorbird fleet`: manage the fleet through a gateway, and its certificates."""

from __future__ import annotations

import typer

from tailorbird.cli.fleet import cli_fleet_ca, cli_fleet_look, cli_fleet_page, cli_fleet_sources, cli_fleet_token

app = typer.Typer(
    no_args_is_help=True,
    help="Manage agents, gateways, their sources and identities.\n\n"
    "Example: tailorbird fleet ca issue agent db1 --tenant acme",
)
app.add_typer(cli_fleet_ca.ca, name="ca")
app.add_typer(cli_fleet_sources.source, name="source")
app.add_typer(cli_fleet_sources.sync, name="sync")
app.add_typer(cli_fleet_sources.config, name="config")
app.add_typer(cli_fleet_sources.positions, name="positions")
app.add_typer(cli_fleet_token.token, name="token")
app.command("agents")(cli_fleet_look.agents)
app.command("gateways")(cli_fleet_look.gateways)
app.command("map")(cli_fleet_look.show_map)
app.command("audit")(cli_fleet_look.audit)
app.command("drain")(cli_fleet_look.drain)
app.command("dump")(cli_fleet_sources.dump)
app.command("page")(cli_fleet_page.page)
