"""A group of sub-commands, of which `run` is the default."""

from __future__ import annotations

import typer
from typer.core import TyperGroup


class RunByDefault(TyperGroup):
    """Makes `tailorbird index FILE` run the index, like `tailorbird index run FILE`."""

    # typer bundles its own click, whose Context has no public name
    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        """Put `run` before arguments that begin with no sub-command.

        If `run` has only options, a word at the beginning is a sub-command with a typing error."""
        takes_words = any(one.param_type_name == "argument" for one in self.commands["run"].params)
        if args and args[0] not in (*self.commands, "-h", "--help") and (takes_words or args[0].startswith("-")):
            args = ["run", *args]
        return super().parse_args(ctx, args)
