"""The command line helps: every command and sub-command shows an example."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import typer.main
from typer.testing import CliRunner

from console.cli import app


def commands(command: object, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield path
    for name, child in getattr(command, "commands", {}).items():
        yield from commands(child, (*path, name))


PATHS = sorted(commands(typer.main.get_command(app)))


@pytest.mark.parametrize("path", PATHS, ids=" ".join)
def test_help_shows_an_example(path: tuple[str, ...]) -> None:
    """`--help` of everything says how it is used, by an example that begins with our name."""
    result = CliRunner().invoke(app, [*path, "--help"], env={"COLUMNS": "200", "TERM": "dumb"})
    assert result.exit_code == 0, result.output
    assert "Example: " + " ".join(("tailorbird", *path)) in result.output
