"""`tailorbird fleet agents | gateways | map | audit | drain`: inspect and drain the fleet."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import typer

from tailorbird.cli.fleet.cli_api import (
    API,
    CA,
    Api,
    Ca,
    Json,
    Limit,
    Search,
    TokenFile,
    ask,
    entries,
    one_line,
    report,
    when,
)


def agents(
    search: Search = "",
    limit: Limit = None,
    api: Api = API,
    ca: Ca = CA,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """List agents with their sources and positions.

    Example: tailorbird fleet agents --api gw1.example.org:7444
    """
    for one in entries(ask(api, ca, token_file), "agents", search, limit):
        state = "drained" if one["drained"] else "connected" if one["connected"] else "away"
        report(one, as_json, f"{one['agent']}: {state}, at {one['gateway']} since {when(one['since_ms'])}")
        for source in () if as_json else one["sources"]:
            more = f": {source['reason']}" if source["reason"] else ""
            version = f"version {source['version']} " if "version" in source else ""
            typer.echo(one_line(f"  {source['source']}: {version}{source['status']}{more}"))


def gateways(api: Api = API, ca: Ca = CA, token_file: TokenFile = None, as_json: Json = False) -> None:
    """List gateways with their agents and when they were last seen.

    Example: tailorbird fleet gateways
    """
    for one in ask(api, ca, token_file).every("gateways"):
        state = ", drained" if one["drained"] else ""
        report(one, as_json, f"{one['gateway']}: {one['agents']} agents, last seen {when(one['heard_ms'])}{state}")


def show_map(
    agent: Annotated[str | None, typer.Option("--agent", help="Only tables that this agent sees.")] = None,
    columns: Annotated[bool, typer.Option("--columns", help="Also list the columns.")] = False,
    search: Search = "",
    limit: Limit = None,
    api: Api = API,
    ca: Ca = CA,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """List the tables that agents see, with row counts and capturing sources.

    Example: tailorbird fleet map --agent paris --columns

    Example: tailorbird fleet map --search "shop orders" --limit 20
    """
    for one in entries(ask(api, ca, token_file), "map", search, limit, agent=agent):
        rows = "?" if one["rows"] is None else f"{one['rows']:,}"
        captured = f"captured by {one['captured']}" if one["captured"] else "not captured"
        place = f"{one['agent']} {one['connection']} {one['database']}.{one['table']}"
        omitted = f" ({one['omitted']})" if one.get("omitted") else ""
        report(one, as_json, f"{place}: about {rows} rows, {len(one['columns'])} columns{omitted}, {captured}")
        for name, kind in one["columns"] if columns and not as_json else ():
            typer.echo(one_line(f"  {name} {kind}"))


def audit(
    last: Annotated[int, typer.Option("--last", help="Number of lines.")] = 20,
    check: Annotated[bool, typer.Option("--check", help="Print only removed or changed lines; exit with 1.")] = False,
    api: Api = API,
    ca: Ca = CA,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """Show the audit log: commands, refusals and reasons.

    Example: tailorbird fleet audit --last 100 --json

    Example: tailorbird fleet audit --last 10000 --check
    """
    lines = ask(api, ca, token_file).ask("GET", "audit", last=last)
    if not check:
        for one in lines:
            report(one, as_json, _line(one))
        return
    from ingest.fleet.audit_chain import faults

    found = list(faults(lines))
    for fault in found:
        report({"fault": fault}, as_json, fault)
    if found:
        raise typer.Exit(1)


def _line(one: dict[str, Any]) -> str:
    on = f" {one['on']}" if one.get("on") else ""
    why = f": {one['why']}" if one.get("why") else ""
    who = f"{one.get('who') or '?'} ({one.get('from', '-')})"
    return f"{when(one['at_ms'])} {who} {one['what']}{on}: {one.get('outcome', '?')}{why}"


def drain(
    name: Annotated[str, typer.Argument(metavar="NAME", help="An agent, or a gateway with --gateway.")],
    gateway: Annotated[bool, typer.Option("--gateway", help="Drain a gateway: its agents use another one.")] = False,
    off: Annotated[bool, typer.Option("--off", help="End the drain.")] = False,
    api: Api = API,
    ca: Ca = CA,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """Move an agent's sources to other agents, or a gateway's agents to other gateways.

    Example: tailorbird fleet drain paris
    """
    role: Literal["agents", "gateways"] = "gateways" if gateway else "agents"
    found = ask(api, ca, token_file).ask("POST", "drain", {"role": role, "name": name, "drained": not off})
    report(found, as_json, f"{name}: {'back' if off else 'drained'}")
