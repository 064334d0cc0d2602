"""A group of sub-commands, of which `run` is the default."""

from __future__ import annotations

import typer
from typer.core import TyperGroup


class RunByDefault(TyperGroup):
    """Makes `tailorbird index FILE` run the index, like `tailorbird index run FILE`."""

    # typer bundles its own click, whose Context has no public name
    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        """Put `run` before arguments that begin with no sub-command."""
        if args and args[0] not in self.commands and args[0] not in ("-h", "--help"):
            args = ["run", *args]
        return super().parse_args(ctx, args)
