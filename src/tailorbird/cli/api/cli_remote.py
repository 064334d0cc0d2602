"""`tailorbird --api URL COMMAND`: run a command on the machine of an API, with its output and exit code here."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from cdc.model.errors import UsageError

if TYPE_CHECKING:
    from tailorbird.client.http_client import Client
    from tailorbird.client.results import StreamLine

TOKEN = "TAILORBIRD_API_TOKEN"
_WATCH_EVERY = 2.0
_CLEAR = "\x1b[H\x1b[2J"


class RemoteGroup(TyperGroup):
    """The root of the command line. With `--api`, its commands run over an API."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command here, or with `--api` over the API."""
        words = [*ctx._protected_args, *ctx.args]
        if ctx.params.get("api") and not {"-h", "--help"} & set(words):
            return _run_remotely(self, ctx, words)
        return super().invoke(ctx)


def remote_options(
    api: Annotated[
        str, typer.Option("--api", envvar="TAILORBIRD_API", help="Run the command over the API at this URL.")
    ] = "",
    api_token_file: Annotated[
        Path | None,
        typer.Option("--api-token-file", envvar="TAILORBIRD_API_TOKEN_FILE", help=f"Token file; else ${TOKEN}."),
    ] = None,
    api_ca: Annotated[
        Path | None,
        typer.Option("--api-ca", envvar="TAILORBIRD_API_CA", help="Authorities of the API's certificate (PEM)."),
    ] = None,
) -> None:
    """Declare the options of the root."""


def _run_remotely(root: Any, context: Any, words: list[str]) -> None:
    # imported here: only `--api` needs it
    from tailorbird.cli.api.remote_commands import AS_JSON, FILE, remote_commands

    name, command = "", root
    while hasattr(command, "resolve_command") and words:
        word, command, words = command.resolve_command(context, words)
        name = f"{name} {word}".strip()
    chosen = next((one for one in remote_commands(root) if one.name == name), None)
    if chosen is None:
        what = f"`tailorbird {name}` does not work over an API: it needs files or processes of this machine"
        raise UsageError(what, "leave out --api, or unset TAILORBIRD_API")
    params = command.make_context(name, words, parent=context).params
    as_json, watch = bool(params.get(AS_JSON)), bool(params.get("watch"))
    given = {
        option.name: params[option.parameter]
        for option in chosen.options
        if params[option.parameter] not in (None, [], (), option.default)
    }
    client = _client(context.params)
    while True:
        if watch and not as_json:
            typer.echo(_CLEAR, nl=False)
        outcome = client.run(_topology(params[FILE]), name, text=not as_json, printed=_print, **given)
        if not watch:
            break
        time.sleep(_WATCH_EVERY)
    if outcome.operation.truncated:
        typer.echo("tailorbird: the output was too long for the API, and is incomplete", err=True)
    if outcome.exit_code:
        raise typer.Exit(outcome.exit_code)


def _client(options: Any) -> Client:
    from tailorbird.client.http_client import Client

    file = options["api_token_file"]
    try:
        token = Path(file).read_text().strip() if file else os.environ.get(TOKEN, "")
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}", "--api-token-file FILE with a token in it") from error
    if not token:
        what = f"export {TOKEN}=… with the output of `tailorbird fleet token issue`, or --api-token-file FILE"
        raise UsageError("no token for the API", what)
    return Client(options["api"], token=token, ca=str(options["api_ca"]) if options["api_ca"] else None)


def _topology(text: str) -> str:
    """Return the name of a topology at the API. The file `topologies/shop.yml` stands for `shop`."""
    path = Path(text)
    return path.stem if path.suffix in (".yml", ".yaml") else text


def _print(line: StreamLine) -> None:
    typer.echo(line.text, err=line.stream == "err")
