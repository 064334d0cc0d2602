"""`tailorbird fleet source | sync | config | positions | dump`: manage the sources that the fleet captures."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from cdc.model.errors import UsageError
from tailorbird.cli.fleet.cli_api import (
    API,
    CA,
    Api,
    Ca,
    Json,
    Limit,
    Search,
    TokenFile,
    Wait,
    ask,
    entries,
    pairs_of,
    read_keys,
    report,
    report_version,
    when,
)

source = typer.Typer(
    no_args_is_help=True, help="Manage the sources of the fleet.\n\nExample: tailorbird fleet source list"
)  # fmt: skip
sync = typer.Typer(
    no_args_is_help=True, help="Start and stop capturing tables.\n\nExample: tailorbird fleet sync start shop orders"
)  # fmt: skip
config = typer.Typer(
    no_args_is_help=True,
    help="Manage versions of a source's configuration.\n\nExample: tailorbird fleet config show shop",
)
positions = typer.Typer(
    no_args_is_help=True, help="List and reset positions of a source.\n\nExample: tailorbird fleet positions show shop"
)
Name = Annotated[str, typer.Argument(metavar="SOURCE", help="The source's name.")]
Tables = Annotated[list[str], typer.Argument(metavar="TABLE...", help="table, or database.table.")]
Agents = Annotated[
    list[str] | None, typer.Option("--agent", help="Agent that may capture it. May be repeated; preferred first.")
]
Keys = Annotated[
    list[str] | None, typer.Option("--set", help="KEY=VALUE, as in `sources:` of a topology. May be repeated.")
]

_TABLES = 20  # tables of a source in its line: --json lists all


@source.command("list")
def list_sources(
    search: Search = "",
    limit: Limit = None,
    api: Api = API,
    ca: Ca = CA,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """List sources with their version, agent and state.

    Example: tailorbird fleet source list
    """
    for one in entries(ask(api, ca, token_file), "sources", search, limit):
        reported = one["reported"] or {"status": "not reported", "reason": ""}
        named = list(one["spec"].get("tables") or ())
        tables = ", ".join(named[:_TABLES]) or "no table"
        tables += f" and {len(named) - _TABLES:,} more" if len(named) > _TABLES else ""
        state = reported["status"] if one["spec"]["running"] else "stopped"
        more = f": {reported['reason']}" if reported["reason"] else ""
        held = one["agent"] or "no agent"
        report(one, as_json, f"{one['source']}: version {one['version']}, {held}, {state}{more}; {tables}")


@source.command("add")
def add_source(
    name: Name,
    agent: Agents = None,
    connection: Annotated[
        str | None, typer.Option("--connection", help="Connection name in the agent's policy.")
    ] = None,
    database: Annotated[str | None, typer.Option("--database", help="Default database of table names.")] = None,
    kind: Annotated[str | None, typer.Option("--type", help="The type as in a topology. Default: mysql.")] = None,
    table: Annotated[list[str] | None, typer.Option("--table", help="A table to capture. May be repeated.")] = None,
    keys: Keys = None,
    file: Annotated[Path | None, typer.Option("--file", help="Initial configuration, YAML or JSON.")] = None,
    wait: Wait = 0.0,
    api: Api = API,
    ca: Ca = CA,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """Add a source; without a table it captures nothing yet.

    Example: tailorbird fleet source add shop --agent paris --connection shop-db --database shop

    Example: tailorbird fleet source add billing --type postgresql --agent paris --connection billing-db
    """
    spec = read_keys(file) if file else {}
    said = {"agents": agent, "connection": connection, "database": database, "type": kind}
    spec |= {key: value for key, value in said.items() if value} | pairs_of(keys, "--set")
    spec["tables"] = (spec.get("tables") or {}) | {one: {} for one in table or ()}
    one = ask(api, ca, token_file)
    report_version(one, one.ask("POST", f"sources/{_name(name)}", spec), as_json, wait)


@source.command("set")
def set_source(
    name: Name,
    agent: Agents = None,
    connection: Annotated[
        str | None, typer.Option("--connection", help="Connection name in the agent's policy.")
    ] = None,
    running: Annotated[bool | None, typer.Option("--run/--stop", help="Start or stop the capture.")] = None,
    keys: Keys = None,
    wait: Wait = 0.0,
    api: Api = API,
    ca: Ca = CA,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """Change keys of a source's configuration; `--set KEY=` removes one.

    Example: tailorbird fleet source set shop --agent lyon --set snapshot_max_threads=4
    """
    said = {"agents": agent or None, "connection": connection, "running": running}
    change = {key: value for key, value in said.items() if value is not None} | pairs_of(keys, "--set")
    if not change:
        raise UsageError("nothing to change", "give --agent, --connection, --stop or --set KEY=VALUE")
    one = ask(api, ca, token_file)
    report_version(one, one.ask("PATCH", f"sources/{_name(name)}", change), as_json, wait)


@source.command("rm")
def remove_source(name: Name, api: Api = API, ca: Ca = CA, token_file: TokenFile = None, as_json: Json = False) -> None:
    """Remove a source; its topics and position remain, and a rollback restores it.

    Example: tailorbird fleet source rm shop
    """
    one = ask(api, ca, token_file)
    report_version(one, one.ask("DELETE", f"sources/{_name(name)}"), as_json, 0.0)


@sync.command("start")
def start_sync(
    name: Name,
    tables: Tables,
    ignore: Annotated[list[str] | None, typer.Option("--ignore", help="A column that is not captured.")] = None,
    mask: Annotated[list[str] | None, typer.Option("--mask", help="COLUMN=MASK, e.g. mail=redact.")] = None,
    where: Annotated[
        str, typer.Option("--where", help="Rows of the initial snapshot; changes of all rows are published.")
    ] = "",
    wait: Wait = 0.0,
    api: Api = API,
    ca: Ca = CA,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """Add tables to a source; each gets a snapshot while changes flow.

    Example: tailorbird fleet sync start shop orders users --wait 30
    """
    said: dict[str, Any] = {"ignored_columns": ignore or [], "mask": pairs_of(mask, "--mask"), "where": where}
    reported = {key: value for key, value in said.items() if value}
    one = ask(api, ca, token_file)
    body = {"tables": dict.fromkeys(tables, reported)}
    report_version(one, one.ask("POST", f"sources/{_name(name)}/start", body), as_json, wait)


@sync.command("stop")
def stop_sync(
    name: Name,
    tables: Tables,
    wait: Wait = 0.0,
    api: Api = API,
    ca: Ca = CA,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """Stop capturing tables; their topics remain.

    Example: tailorbird fleet sync stop shop orders
    """
    one = ask(api, ca, token_file)
    report_version(one, one.ask("POST", f"sources/{_name(name)}/stop", {"tables": tables}), as_json, wait)


def dump(
    name: Name,
    tables: Tables,
    where: Annotated[str, typer.Option("--where", help="Only rows that match this condition.")] = "",
    api: Api = API,
    ca: Ca = CA,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """Read captured tables again, where the host's policy allows it.

    Example: tailorbird fleet dump shop orders --where "status = 'open'"
    """
    body = {"tables": tables, "where": where}
    found = ask(api, ca, token_file).ask("POST", f"sources/{_name(name)}/dump", body)
    report(found, as_json, f"{name}: {', '.join(found['tables'])} will be read again")


@config.command("show")
def show_config(
    name: Name,
    version: Annotated[int | None, typer.Option("--version", help="An older version.")] = None,
    api: Api = API,
    ca: Ca = CA,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """Show a source's configuration and its earlier versions.

    Example: tailorbird fleet config show shop --version 3
    """
    found = ask(api, ca, token_file).ask("GET", f"sources/{_name(name)}/config", version=version)
    if as_json:
        typer.echo(json.dumps(found))
        return
    typer.echo(json.dumps(found["spec"], indent=2))
    for one in found["versions"]:
        of = f", restores version {one['of']}" if one["of"] else ""
        mark = "*" if one["version"] == found["version"] else " "
        typer.echo(f"{mark} version {one['version']}, {when(one['at_ms'])}, {one['by']}{of}")


@config.command("set")
def set_config(
    name: Name,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The complete configuration, YAML or JSON.")],
    wait: Wait = 0.0,
    api: Api = API,
    ca: Ca = CA,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """Store a source's next configuration.

    Example: tailorbird fleet config set shop shop-source.yml --wait 30
    """
    one = ask(api, ca, token_file)
    report_version(one, one.ask("PUT", f"sources/{_name(name)}/config", read_keys(file)), as_json, wait)


@config.command("rollback")
def roll_back_config(
    name: Name,
    version: Annotated[int, typer.Argument(metavar="VERSION", help="The version to restore.")],
    wait: Wait = 0.0,
    api: Api = API,
    ca: Ca = CA,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """Restore an earlier version of a source's configuration.

    Example: tailorbird fleet config rollback shop 3
    """
    one = ask(api, ca, token_file)
    report_version(one, one.ask("POST", f"sources/{_name(name)}/rollback", {"version": version}), as_json, wait)


@positions.command("show")
def show_positions(
    name: Name, api: Api = API, ca: Ca = CA, token_file: TokenFile = None, as_json: Json = False
) -> None:
    """List positions that a source can be reset to.

    Example: tailorbird fleet positions show shop
    """
    for one in ask(api, ca, token_file).ask("GET", f"sources/{_name(name)}/positions"):
        report(one, as_json, _place(one))


@positions.command("set")
def set_position(
    name: Name,
    sequence: Annotated[
        int | None, typer.Option("--to-sequence", help="The newest position up to this sequence number.")
    ] = None,
    before: Annotated[
        datetime | None, typer.Option("--before", help="The newest position committed before this time, in UTC.")
    ] = None,
    api: Api = API,
    ca: Ca = CA,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """Reset a source to a position; its agent publishes all later changes again.

    Example: tailorbird fleet positions set shop --to-sequence 1200
    """
    if sequence is None and before is None:
        raise UsageError("no position given", "give --to-sequence N or --before TIME")
    from datetime import UTC

    body = {"sequence": sequence, "before_ms": before.replace(tzinfo=UTC).timestamp() * 1000 if before else None}
    found = ask(api, ca, token_file).ask("POST", f"sources/{_name(name)}/positions", body)
    report(found, as_json, f"{name} resumes from {_place(found)}")


def _place(one: dict[str, Any]) -> str:
    return f"sequence {one['sequence']}, {one['file']}:{one['pos']}, {when(one['ts_ms'])}"


def _name(text: str) -> str:
    from tailorbird.web.fleet.http_fleet import name_in_path

    return name_in_path(text)
