"""What all commands share that ask a gateway's API: where it is, whom to trust, which token, how to tell."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
import yaml

from cdc.model.errors import UsageError

if TYPE_CHECKING:
    from tailorbird.web.fleet.http_fleet import FleetApi

Api = Annotated[
    str, typer.Option("--api", envvar="TAILORBIRD_FLEET_API", help="Host and port of a gateway's API.")
]  # fmt: skip
Ca = Annotated[
    Path, typer.Option("--ca", envvar="TAILORBIRD_FLEET_CA", help="The fleet's ca.pem, which the gateway is known by.")
]
TokenFile = Annotated[
    Path | None,
    typer.Option("--token-file", help="A file with the token in it; by default $TAILORBIRD_FLEET_TOKEN is."),
]
Json = Annotated[bool, typer.Option("--json", help="JSON, for programs.")]
Wait = Annotated[float, typer.Option("--wait", help="Seconds to wait until the agent runs it; 0: not.")]
API, CA = "127.0.0.1:7444", Path("fleet-ca/ca.pem")


def ask(api: str, ca: Path, token_file: Path | None) -> FleetApi:
    """The API."""
    from tailorbird.web.fleet.http_fleet import api_of

    return api_of(api, ca, token_file)


def report(found: Any, as_json: bool, line: str) -> None:
    """An answer as JSON, or as a line."""
    typer.echo(json.dumps(found) if as_json else one_line(line))


def one_line(text: str) -> str:
    """A text that others have written, so that it can neither look like a line of its own nor command a terminal.

    Agents, and whoever asks the API without a token, say what is in the audit.
    """
    return "".join(sign if sign.isprintable() else ascii(sign)[1:-1] for sign in text)


def report_version(one: FleetApi, found: dict[str, Any], as_json: bool, wait: float) -> None:
    """A version that was written; with `wait`, what became of it."""
    source, version = found["source"], found["version"]
    report(found, as_json, f"{source}: version {version} is written")
    if wait > 0:
        reported = one.settled(source, version, wait)
        more = f", {reported['reason']}" if reported["reason"] else ""
        report(reported, as_json, f"{source}: agent {reported['agent']} runs it (hash {reported['hash']}{more})")


def read_keys(file: Path) -> dict[str, Any]:
    """A configuration in a file of YAML or JSON; UsageError where it is none."""
    try:
        found = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise UsageError(f"{file}: {error}", "a file of YAML or JSON") from error
    if not isinstance(found, dict):
        raise UsageError(f"{file} holds no configuration", "agents, connection, database, tables as in docs/fleet.md")
    return found


def pairs_of(texts: list[str] | None, option: str) -> dict[str, Any]:
    """`key=value` by key, each value read as YAML; UsageError for what is none."""
    found = {}
    for text in texts or ():
        key, equals, value = text.partition("=")
        try:
            if not key or not equals:
                raise UsageError(f"{option} {text}", f"{option} KEY=VALUE")
            found[key] = yaml.safe_load(value)
        except yaml.YAMLError as error:
            raise UsageError(f"{option} {text}: {error}", f"{option} KEY=VALUE") from error
    return found


def when(ms: float | None) -> str:
    """A time, as people read it."""
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="seconds") if ms else "never"
