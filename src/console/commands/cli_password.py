"""`tailorbird password`: a line for the file of who may look at dashboards."""

from __future__ import annotations

import secrets
from typing import Annotated

import typer


def password(
    name: Annotated[str, typer.Argument(help="Who: letters, digits and . _ @ -")],
    said: Annotated[str, typer.Option("--password", prompt="Password", hide_input=True, hidden=True)] = "",
) -> None:
    """Print a line `name:hash` (argon2id) for `tailorbird dashboard --auth FILE`; the password is asked for, or read
    from standard input.

    Example: tailorbird password ada >> passwords
    """
    from cdc.words.errors import UsageError
    from console.dashboard.guard.passwords import LONGEST_PASSWORD, hashed_password, read_passwords

    if not 12 <= len(said) <= LONGEST_PASSWORD:
        raise UsageError(f"a password of {len(said)} letters", f"12 to {LONGEST_PASSWORD}")
    line = f"{name}:{hashed_password(said, secrets.token_bytes(16))}"
    read_passwords(line, file=name)  # refuses a name that is none
    typer.echo(line)
