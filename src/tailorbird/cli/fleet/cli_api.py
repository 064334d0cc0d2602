"""Shared options and output of the commands that call a gateway's API."""

from __future__ import annotations

import json
from collections.abc import Iterator
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
    Path,
    typer.Option("--ca", envvar="TAILORBIRD_FLEET_CA", help="The fleet's ca.pem, which authenticates the gateway."),
]
TokenFile = Annotated[
    Path | None,
    typer.Option("--token-file", help="File with the token. Default: $TAILORBIRD_FLEET_TOKEN."),
]
Json = Annotated[bool, typer.Option("--json", help="JSON, for programs.")]
Wait = Annotated[float, typer.Option("--wait", help="Seconds to wait until the agent runs it; 0: do not wait.")]
Search = Annotated[str, typer.Option("--search", help="Only entries that contain all of these words.")]
Limit = Annotated[int | None, typer.Option("--limit", min=1, help="Print at most this many, and the total.")]
API, CA = "127.0.0.1:7444", Path("fleet-ca/ca.pem")


def ask(api: str, ca: Path, token_file: Path | None) -> FleetApi:
    """Return a client of a gateway's API. `ca` is the file of its certificate authority."""
    from tailorbird.web.fleet.http_fleet import api_of

    return api_of(api, ca, token_file)


def entries(api: FleetApi, path: str, search: str, limit: int | None, **query: Any) -> Iterator[Any]:
    """Yield the entries of a list that contain all words of `search`: all, or the first ones and on standard error how
    many more there are."""
    asked = {"search": search or None, **query}
    if limit is None:
        yield from api.every(path, **asked)
        return
    found, total = api.page(path, **asked, limit=min(limit, 10_000))
    yield from found
    if total > len(found):
        typer.echo(f"{total - len(found):,} more: a higher --limit, or --search", err=True)


def report(found: Any, as_json: bool, line: str) -> None:
    """Print an answer of the API: as JSON, or as the text `line`."""
    typer.echo(json.dumps(found) if as_json else one_line(line))


def one_line(text: str) -> str:
    """Escape untrusted text, so that it can neither imitate a line of output nor control the terminal.

    The audit log contains text from agents and from unauthenticated requests.
    """
    return "".join(sign if sign.isprintable() else ascii(sign)[1:-1] for sign in text)


def report_version(one: FleetApi, found: dict[str, Any], as_json: bool, wait: float) -> None:
    """Print the version of a source's configuration that was written.

    With `wait` seconds, wait until the agent runs that version, and print the result."""
    source, version = found["source"], found["version"]
    report(found, as_json, f"{source}: version {version} is stored")
    if wait > 0:
        reported = one.settled(source, version, wait)
        more = f", {reported['reason']}" if reported["reason"] else ""
        report(reported, as_json, f"{source}: agent {reported['agent']} runs it (hash {reported['hash']}{more})")


def read_keys(file: Path) -> dict[str, Any]:
    """Read a source's configuration from a YAML or JSON file. Raises UsageError if it is invalid."""
    try:
        found = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError, RecursionError) as error:
        raise UsageError(f"{file}: {error}", "give a YAML or JSON file") from error
    if not isinstance(found, dict):
        raise UsageError(
            f"{file} contains no configuration", "write agents, connection, database, tables as in docs/fleet.md"
        )
    return found


def pairs_of(texts: list[str] | None, option: str) -> dict[str, Any]:
    """Parse `KEY=VALUE` texts of a command-line option. Values are YAML. Raises UsageError for invalid texts."""
    found = {}
    for text in texts or ():
        key, equals, value = text.partition("=")
        try:
            if not key or not equals:
                raise UsageError(f"{option} {text}", f"{option} KEY=VALUE")
            found[key] = yaml.safe_load(value)
        except (yaml.YAMLError, RecursionError) as error:
            raise UsageError(f"{option} {text}: {error}", f"{option} KEY=VALUE") from error
    return found


def when(ms: float | None) -> str:
    """Format a time in milliseconds since 1970, or a missing one."""
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="seconds") if ms else "never"
