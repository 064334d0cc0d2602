"""`tailorbird init`: write a first topology for existing databases."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated

import typer

from cdc.model.errors import UsageError
from tailorbird.cli.topology.cli_json_schema import schema_text

if TYPE_CHECKING:
    from tailorbird.deploy.draft.draft import Draft
    from tailorbird.deploy.draft.shape import FoundServer, Reference

_PAGE = 8080
_SCHEMA = "topology.schema.json"
_MODELINE = f"# yaml-language-server: $schema={_SCHEMA}\n"


def init(
    urls: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="URL…",
            help="mysql://user@host/database, mariadb://…, or postgresql://user@host/database?schema=public.",
        ),
    ] = None,
    mysql: Annotated[
        list[str] | None,
        typer.Option("--mysql", metavar="URL", hidden=True, help="Deprecated: pass URL as an argument."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="The file to write. Default: topologies/NAME.yml; `-` prints it.")
    ] = None,
    name: Annotated[str, typer.Option("--name", help="The topology's name. Default: the first database's.")] = "",
    password_env: Annotated[
        list[str] | None,
        typer.Option(
            "--password-env",
            metavar="VARIABLE",
            help="Environment variable of the password, one for all or one per database. Default: SOURCE_PASSWORD.",
        ),
    ] = None,
    most: Annotated[int, typer.Option("--tables", min=1, max=50, help="Maximum number of joined tables.")] = 2,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file.")] = False,
) -> None:
    """Write a topology for existing databases, from their tables, keys and some rows.

    Joined tables follow the foreign keys. Search, facets and time are guesses; comments in the file explain each choice
    and list what was omitted. For editors, a JSON Schema is written next to the file. Reads only. The password comes
    from an environment variable, which the file refers to.

    Example: tailorbird init mysql://cdc@db1/shop postgresql://cdc@db2/billing --out topologies/mine.yml
    """
    from tailorbird.deploy.draft.guess import guess
    from tailorbird.deploy.draft.naming import snake
    from tailorbird.deploy.draft.settle import settled

    addressed = _servers([*(urls or []), *(mysql or [])], password_env or [])
    name = name or snake(addressed[0][0].dbname or addressed[0][0].database or "mine")
    file = out or (Path("topologies") if Path("topologies").is_dir() else Path()) / f"{name}.yml"
    if str(file) != "-" and file.exists() and not force:
        raise UsageError(f"{file} already exists", "choose another --out, or add --force")
    servers = _with_likely([_shapes(server).read_shape(server, password) for server, password in addressed], addressed)
    draft, text = settled(guess(name, servers, most), str(file))
    if str(file) == "-":
        typer.echo(text, nl=False)
        return
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(_MODELINE + text, encoding="utf-8")
        (file.parent / _SCHEMA).write_text(schema_text("topology"), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{file}: {error}", "choose a writable file with --out") from error
    for line in _reported(draft, file):
        typer.echo(line)


def _servers(urls: Sequence[str], variables: Sequence[str]) -> list[tuple[FoundServer, str]]:
    """Return each database with a source name that is unique among them, and its password."""
    from tailorbird.deploy.draft.address import MYSQL, address_of
    from tailorbird.deploy.draft.naming import snake, untaken

    if not urls:
        raise UsageError("no database URL given", f"tailorbird init {MYSQL}")
    if len(variables) not in (0, 1, len(urls)):
        raise UsageError(
            f"{len(variables)} --password-env for {len(urls)} databases",
            "give one for all databases, or one for each, in order",
        )
    if odd := [each for each in variables if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", each)]:
        raise UsageError(
            f"--password-env {odd[0]}: not a variable name", "use letters, digits and _, as in SHOP_PASSWORD"
        )
    found: list[tuple[FoundServer, str]] = []
    taken: set[str] = set()
    for number, url in enumerate(urls):
        server, password = address_of(url)
        source = untaken(snake(server.dbname or server.database or "source"), taken)
        taken.add(source)
        variable = variables[number % len(variables)] if variables else f"{source.upper()}_PASSWORD"
        if password is None:
            password = os.environ.get(variable)
        if password is None:
            raise UsageError(
                f"no password for {server.username} at {server.hostname}:{server.port}",
                f"export {variable}=…, or name another variable with --password-env",
            )
        found.append((replace(server, source=source, password_env=variable), password))
    return found


def _shapes(server: FoundServer) -> ModuleType:
    """Return the module that reads databases of this kind."""
    from tailorbird.deploy.draft import mysql_shape, pg_shape

    return pg_shape if server.kind == "postgresql" else mysql_shape


def _keys(server: FoundServer, password: str, reference: Reference, values: Sequence[str]) -> int:
    return int(_shapes(server).count_keys(server, password, reference, values))


def _with_likely(servers: list[FoundServer], addressed: Sequence[tuple[FoundServer, str]]) -> list[FoundServer]:
    """Add references between tables that column names suggest and that the values of the columns confirm."""
    from tailorbird.deploy.draft.likely_references import asked, believed, likely, with_references

    reached = {server.source: (server, password) for server, password in addressed}
    found = []
    for reference in likely(servers):
        values = asked(servers, reference)
        kept = believed(reference, len(values), _keys(*reached[reference.parent.source], reference, values))
        found += [kept] if kept is not None else []
    return with_references(servers, found)


def _reported(draft: Draft, file: Path) -> Iterable[str]:
    """Yield lines about the written file and the next commands."""
    for table in draft.tables:
        yield f"{table.name}: {table.why}; {len(table.joins) - 1} joins, {len(table.columns)} columns"
    yield from draft.notes
    yield f"wrote {file}: its comments explain each choice and list what was omitted"
    yield "next:"
    variables = dict.fromkeys(source.server.password_env for source in draft.sources)
    if missing := [variable for variable in variables if variable not in os.environ]:
        yield "  export " + " ".join(f"{variable}=…" for variable in missing)
    yield f"  tailorbird doctor {file}"
    yield f"  tailorbird apply {file}"
    yield f"  tailorbird run {file} --page-port {_PAGE}   # its page: http://127.0.0.1:{_PAGE}/"
