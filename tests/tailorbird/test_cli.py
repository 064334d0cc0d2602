"""Every command and sub-command shows an example, and Ctrl-C ends it cleanly."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType

import pytest
import typer.main
from typer.testing import CliRunner

from tailorbird.__main__ import main
from tailorbird.cli.app import app


def commands(command: object, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield path
    for name, child in getattr(command, "commands", {}).items():
        yield from commands(child, (*path, name))


COMMAND = typer.main.get_command(app)
PATHS = sorted(commands(COMMAND))


@pytest.mark.parametrize("path", PATHS, ids=" ".join)
def test_help_shows_an_example(path: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """Every `--help` has an example that begins with `tailorbird`."""
    monkeypatch.setattr("typer.testing._get_command", lambda app: COMMAND)  # it takes longer than its help
    result = CliRunner().invoke(app, [*path, "--help"], env={"COLUMNS": "200", "TERM": "dumb"})
    assert result.exit_code == 0, result.output
    assert "Example: " + " ".join(("tailorbird", *path)) in result.output


def test_ctrl_c_before_the_commands_are_loaded_is_no_stack_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loading them takes half a second, in which people change their minds."""

    class Interrupted(ModuleType):
        def __getattr__(self, name: str) -> None:
            raise KeyboardInterrupt

    monkeypatch.setitem(sys.modules, "tailorbird.cli.app", Interrupted("tailorbird.cli.app"))
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 130
