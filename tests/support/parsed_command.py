"""Parse command lines as `tailorbird` does, without running them."""

from __future__ import annotations

import shlex
from typing import Any

import typer

from tailorbird.cli.app import app

COMMAND: Any = typer.main.get_command(app)


def parse(line: str) -> None:
    """Parse a command as the command line does, without running it; raise ValueError if it would be refused.

    Words in capitals are placeholders; a command without arguments is only named. The shell reads what follows `>`.
    """
    name, *words = shlex.split(line.split(" > ")[0])
    command, context = COMMAND, None
    try:
        while True:
            context = command.make_context(name, words, parent=context)
            if not hasattr(command, "resolve_command"):
                return
            name, command, words = command.resolve_command(context, [*context._protected_args, *context.args])
            if not words:
                return
    except Exception as error:  # click's own errors, of which typer has a copy
        raise ValueError(f"{line}: {getattr(error, 'message', error)!s}") from error
