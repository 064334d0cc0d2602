"""`tailorbird fleet source | sync | config | positions | dump`: what the fleet captures."""

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
    TokenFile,
    Wait,
    ask,
    pairs_of,
    read_keys,
    report,
    report_version,
    when,
)

source = typer.Typer(
    no_args_is_help=True, help="What the fleet captures.\n\nExample: tailorbird fleet source list"
)  # fmt: skip
sync = typer.Typer(
    no_args_is_help=True, help="Tables of a source.\n\nExample: tailorbird fleet sync start shop orders"
)  # fmt: skip
config = typer.Typer(
    no_args_is_help=True, help="A source's configuration, by version.\n\nExample: tailorbird fleet config show shop"
)
positions = typer.Typer(
    no_args_is_help=True, help="Where a source stands.\n\nExample: tailorbird fleet positions show shop"
)
Name = Annotated[str, typer.Argument(metavar="SOURCE", help="The source's name.")]
Tables = Annotated[list[str], typer.Argument(metavar="TABLE...", help="table, or database.table.")]
Agents = Annotated[
    list[str] | None, typer.Option("--agent", help="Which agent may have it; again for more, first choice first.")
]
Keys = Annotated[
    list[str] | None, typer.Option("--set", help="KEY=VALUE, as under `sources:` of a topology; again for more.")
]


@source.command("list")
def list_sources(api: Api = API, ca: Ca = CA, token_file: TokenFile = None, as_json: Json = False) -> None:
    """List sources with their version, agent and state.

    Example: tailorbird fleet source list
    """
    for one in ask(api, ca, token_file).ask("GET", "sources"):
        reported = one["reported"] or {"status": "not reported", "reason": ""}
        tables = ", ".join(one["spec"].get("tables") or ()) or "no table"
        state = reported["status"] if one["spec"]["running"] else "stopped"
        more = f": {reported['reason']}" if reported["reason"] else ""
        held = one["agent"] or "nobody"
        report(one, as_json, f"{one['source']}: version {one['version']}, {held} has it, {state}{more}; {tables}")


@source.command("add")
def add_source(
    name: Name,
    agent: Agents = None,
    connection: Annotated[str | None, typer.Option("--connection", help="Its alias in the agent's policy.")] = None,
    database: Annotated[str | None, typer.Option("--database", help="Where tables named by one part are.")] = None,
    table: Annotated[list[str] | None, typer.Option("--table", help="A table to capture; again for more.")] = None,
    keys: Keys = None,
    file: Annotated[Path | None, typer.Option("--file", help="A configuration of YAML or JSON to begin with.")] = None,
    wait: Wait = 0.0,
    api: Api = API,
    ca: Ca = CA,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """Add a source; without a table it captures nothing yet.

    Example: tailorbird fleet source add shop --agent paris --connection shop-db --database shop
    """
    spec = read_keys(file) if file else {}
    said = {"agents": agent, "connection": connection, "database": database}
    spec |= {key: value for key, value in said.items() if value} | pairs_of(keys, "--set")
    spec["tables"] = (spec.get("tables") or {}) | {one: {} for one in table or ()}
    one = ask(api, ca, token_file)
    report_version(one, one.ask("POST", f"sources/{_name(name)}", spec), as_json, wait)


@source.command("set")
def set_source(
    name: Name,
    agent: Agents = None,
    connection: Annotated[str | None, typer.Option("--connection", help="Its alias in the agent's policy.")] = None,
    running: Annotated[bool | None, typer.Option("--run/--stop", help="Whether it is captured at all.")] = None,
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
        raise UsageError("nothing to change", "--agent, --connection, --stop, --set KEY=VALUE")
    one = ask(api, ca, token_file)
    report_version(one, one.ask("PATCH", f"sources/{_name(name)}", change), as_json, wait)


@source.command("rm")
def remove_source(name: Name, api: Api = API, ca: Ca = CA, token_file: TokenFile = None, as_json: Json = False) -> None:
    """Remove a source; topics and position stay, and a roll-back restores it.

    Example: tailorbird fleet source rm shop
    """
    one = ask(api, ca, token_file)
    report_version(one, one.ask("DELETE", f"sources/{_name(name)}"), as_json, 0.0)


@sync.command("start")
def start_sync(
    name: Name,
    tables: Tables,
    ignore: Annotated[list[str] | None, typer.Option("--ignore", help="A column that does not leave.")] = None,
    mask: Annotated[list[str] | None, typer.Option("--mask", help="COLUMN=MASK, e.g. mail=redact.")] = None,
    where: Annotated[str, typer.Option("--where", help="Which rows are read first; changes of all are told.")] = "",
    wait: Wait = 0.0,
    api: Api = API,
    ca: Ca = CA,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """Add tables to a source; each is read whole while changes flow.

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
    """Stop capturing tables; their topics stay.

    Example: tailorbird fleet sync stop shop orders
    """
    one = ask(api, ca, token_file)
    report_version(one, one.ask("POST", f"sources/{_name(name)}/stop", {"tables": tables}), as_json, wait)


def dump(
    name: Name,
    tables: Tables,
    where: Annotated[str, typer.Option("--where", help="Only rows for which this condition holds.")] = "",
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
    version: Annotated[int | None, typer.Option("--version", help="An older one.")] = None,
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
        of = f", version {one['of']} again" if one["of"] else ""
        mark = "*" if one["version"] == found["version"] else " "
        typer.echo(f"{mark} version {one['version']}, {when(one['at_ms'])}, {one['by']}{of}")


@config.command("set")
def set_config(
    name: Name,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The whole configuration, YAML or JSON.")],
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
    version: Annotated[int, typer.Argument(metavar="VERSION", help="Whose words are written again.")],
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
    """List positions that a source can be set back to.

    Example: tailorbird fleet positions show shop
    """
    for one in ask(api, ca, token_file).ask("GET", f"sources/{_name(name)}/positions"):
        report(one, as_json, _place(one))


@positions.command("set")
def set_position(
    name: Name,
    sequence: Annotated[int | None, typer.Option("--to-sequence", help="The newest of at most this number.")] = None,
    before: Annotated[
        datetime | None, typer.Option("--before", help="The newest one committed before this time, in UTC.")
    ] = None,
    api: Api = API,
    ca: Ca = CA,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """Set a source back; its agent publishes again what came since.

    Example: tailorbird fleet positions set shop --to-sequence 1200
    """
    if sequence is None and before is None:
        raise UsageError("no place to go back to", "--to-sequence N, or --before TIME")
    from datetime import UTC

    body = {"sequence": sequence, "before_ms": before.replace(tzinfo=UTC).timestamp() * 1000 if before else None}
    found = ask(api, ca, token_file).ask("POST", f"sources/{_name(name)}/positions", body)
    report(found, as_json, f"{name} goes on from {_place(found)}")


def _place(one: dict[str, Any]) -> str:
    return f"sequence {one['sequence']}, {one['file']}:{one['pos']}, {when(one['ts_ms'])}"


def _name(text: str) -> str:
    from tailorbird.web.fleet.http_fleet import name_in_path

    return name_in_path(text)
