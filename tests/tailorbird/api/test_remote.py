"""`tailorbird --api URL` prints what the command prints on the machine of the API, and ends with its exit code."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer.main
from typer.testing import CliRunner

from cdc.model.errors import UsageError
from tailorbird.cli.api.remote_commands import remote_commands
from tailorbird.cli.app import app
from tailorbird.client import ApiError
from tailorbird.web.api.commands import RIGHTS
from tests.support.served_api import TOKENS, ServedApi, script, serving

COMMAND = typer.main.get_command(app)


@pytest.fixture(scope="module")
def served() -> Iterator[ServedApi]:
    with serving() as one:
        yield one


@pytest.fixture(autouse=True)
def _one_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("typer.testing._get_command", lambda app: COMMAND)  # it takes longer than a command


def remotely(served: ServedApi, *words: str, role: str = "operate") -> tuple[int, str, str]:
    """Run a command over the API; return exit code, output and errors. Raises the errors that end it."""
    environ = {"TAILORBIRD_API": served.url, "TAILORBIRD_API_TOKEN": TOKENS[role]}
    result = CliRunner().invoke(app, [*words], env=environ)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


@pytest.mark.parametrize("words", [("plan", "shop", "--json"), ("status", "shop"), ("verify", "topologies/shop.yml")])
def test_output_and_exit_code_are_those_of_the_command(served: ServedApi, words: tuple[str, ...]) -> None:
    """Standard output, standard error and exit code are the same, line by line."""
    code, output, errors = remotely(served, *words)
    sent = served.operations.of("shop")[0].arguments
    here = subprocess.run(script(sent), capture_output=True, text=True, env=os.environ, check=False)
    assert (code, output, errors) == (here.returncode, here.stdout, here.stderr)
    assert ("--json" in sent) == ("--json" in words)
    assert "shop.yml" in sent


def test_only_given_options_are_sent(served: ServedApi) -> None:
    """Options and arguments arrive as they were typed."""
    words = ("verify", "shop", "--stage", "index", "--stage", "table", "--all", "--json")
    _, output, _ = remotely(served, *words, role="admin")
    expected = ["verify", "--json", "--stage=index", "--stage=table", "--threads=2", "--all", "--limit=50", "--",
                "shop.yml"]  # fmt: skip
    assert json.loads(output)["arguments"] == expected
    _, output, _ = remotely(served, "dead-letters", "replay", "shop", "a1", "b2")
    assert json.loads(output)["arguments"] == ["dead-letters", "replay", "--", "shop.yml", "a1", "b2"]


def test_errors_are_those_of_the_api(served: ServedApi) -> None:
    """A refusal is one line with the exit code of the command line."""
    with pytest.raises(ApiError, match="no topology hop; one of shop") as refused:
        remotely(served, "status", "hop")
    assert refused.value.exit_code == 2
    with pytest.raises(ApiError, match="role view is not sufficient, operate is required"):
        remotely(served, "apply", "shop", role="view")
    code, _, errors = remotely(served, "explain", "shop", "wide", "none", role="admin")
    assert (code, errors) == (2, "tailorbird: wide has no row none; run `tailorbird wait` first\n")
    assert remotely(served, "wait", "shop")[0] == 2  # without --source, as on this machine


@pytest.mark.parametrize("words", [("run", "a.yml"), ("stack", "up"), ("demo",), ("fleet", "agents"), ("init", "x")])
def test_commands_of_this_machine_say_so(served: ServedApi, words: tuple[str, ...]) -> None:
    """Commands that need local files or processes do not run at all."""
    with pytest.raises(UsageError, match=f"`tailorbird {' '.join(words[:1])}.*does not work over an API"):
        remotely(served, *words)
    assert "Example: tailorbird run" in remotely(served, "run", "--help")[1]


def test_a_token_is_read_from_a_file(served: ServedApi, tmp_path: Path) -> None:
    """A token is never an option, which other users of the machine could see."""
    file = tmp_path / "token"
    file.write_text(TOKENS["view"] + "\n")
    environ = {"TAILORBIRD_API_TOKEN": ""}
    words = ["--api", served.url, "--api-token-file", str(file), "plan", "shop"]
    assert CliRunner().invoke(app, words, env=environ).exit_code == 0
    without = CliRunner().invoke(app, ["--api", served.url, "plan", "shop"], env=environ)
    assert isinstance(without.exception, UsageError)
    assert "no token" in str(without.exception)


def test_every_remote_command_has_rights() -> None:
    """Each is a command of the command line, and no option of one is a file of this machine."""
    found = remote_commands(COMMAND)
    assert [one.name for one in found] == list(RIGHTS)
    for one in found:
        assert not {"file", "path", "identity", "policy"} & {option.name for option in one.options}, one.name
