"""`tailorbird password`: print a line for the file of dashboard users."""

from __future__ import annotations

import getpass
import secrets
import sys
from typing import Annotated

import typer


def password(name: Annotated[str, typer.Argument(help="The user's name: letters, digits and . _ @ -")]) -> None:
    """Print a line `name:hash` for `tailorbird dashboard --auth FILE`.

    Reads the password from the terminal, or from standard input. The hash is argon2id.

    Example: tailorbird password ada
    """
    from cdc.model.errors import UsageError
    from tailorbird.web.dashboard.guard.passwords import LONGEST_PASSWORD, hashed_password, read_passwords

    said = getpass.getpass() if sys.stdin.isatty() else sys.stdin.readline().rstrip("\n")
    if not 12 <= len(said) <= LONGEST_PASSWORD:
        raise UsageError(f"the password has {len(said)} characters", f"use 12 to {LONGEST_PASSWORD}")
    line = f"{name}:{hashed_password(said, secrets.token_bytes(16))}"
    read_passwords(line, file=name)  # rejects an invalid name
    typer.echo(line)
