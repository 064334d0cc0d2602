"""`tailorbird maxscale-users`: manage the users of MaxScale's CDC protocol."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from ingest.maxscale.file_users import UsersFile

app = typer.Typer(
    no_args_is_help=True,
    help="Manage the users of `serve maxscale`, in MaxScale's file format.\n\n"
    "Example: tailorbird maxscale-users add reader topologies/shop.yml",
)
Name = Annotated[str, typer.Argument(metavar="NAME", help="The user's name.")]
Topology = Annotated[str, typer.Argument(metavar="TOPOLOGY", help="The topology's YAML file.")]
Users = Annotated[
    Path | None, typer.Option("--users", help="The cdcusers file. Default: .tailorbird/maxscale/<topology>/cdcusers.")
]


@app.command("add")
def add(name: Name, file: Topology, users: Users = None) -> None:
    """Add a user or change a password; a running server uses it at once.

    Reads the password from the terminal, or from the first line of standard input.

    Example: tailorbird maxscale-users add reader topologies/shop.yml
    """
    from ingest.maxscale.users import check_of

    place = _file(file, users)
    if sys.stdin.isatty():
        password = typer.prompt("Password", hide_input=True, confirmation_prompt=True)
    else:
        password = sys.stdin.readline().rstrip("\r\n")
    place.write({**place.users(), name: check_of(name, password)})
    typer.echo(f"{name} may read: {place.path}", err=True)


@app.command("list")
def show(file: Topology, users: Users = None) -> None:
    """List the users.

    Example: tailorbird maxscale-users list topologies/shop.yml
    """
    for name in _file(file, users).users():
        typer.echo(name)


@app.command("rm")
def remove(name: Name, file: Topology, users: Users = None) -> None:
    """Remove a user; open connections remain open.

    Example: tailorbird maxscale-users rm reader topologies/shop.yml
    """
    from cdc.model.errors import UsageError

    place = _file(file, users)
    known = dict(place.users())
    if known.pop(name, None) is None:
        raise UsageError(f"{place.path} has no user {name}", f"tailorbird maxscale-users list {file}")
    place.write(known)
    typer.echo(f"{name} is removed: {place.path}", err=True)


def _file(topology: str, users: Path | None) -> UsersFile:
    from cdc.process.file_topology import load_topology
    from ingest.maxscale.file_users import UsersFile, users_file

    return UsersFile(users or users_file(load_topology(topology).name))
