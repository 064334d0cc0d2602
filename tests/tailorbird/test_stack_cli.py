"""`tailorbird stack …` as people meet it: help with examples, exit codes, one line for a mistake."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from tailorbird.cli.app import app
from tailorbird.devtools.stack.bars import reporting
from tailorbird.devtools.stack.progress import StackProgress, line_of
from tailorbird.devtools.stack.settings import SERVICES
from tests.support.commands import tailorbird
from tests.support.ports import free_ports

Stacks = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def stacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stacks:
    """Run `tailorbird stack` in an empty folder with no settings."""
    for name in [name for name in os.environ if name.startswith("TAILORBIRD_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("TAILORBIRD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(tmp_path)
    return partial(tailorbird, "stack")


@pytest.mark.parametrize("command", ["fetch", "up", "mysql", "down", "status", "logs", "run"])
def test_every_command_shows_an_example(command: str) -> None:
    """An example in the help replaces a manual."""
    shown = CliRunner().invoke(app, ["stack", command, "--help"], env={"COLUMNS": "200"})
    assert shown.exit_code == 0
    assert f"Example: tailorbird stack {command}" in shown.stdout


def test_status_of_nothing_is_json_and_exit_code_1(stacks: Stacks, tmp_path: Path) -> None:
    """A script learns from the exit code whether all is ready, and from the JSON what is not; nothing is created."""
    shown = stacks("status", "--json", "--port-offset", "30000")
    assert shown.returncode == 1
    found = json.loads(shown.stdout)
    assert [(service["name"], service["state"]) for service in found["services"]] == [
        (name, "stopped") for name in SERVICES
    ]
    assert found["rss_mib"] == 0
    assert found["addresses"]["kafka"] == "127.0.0.1:39092"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["logs", "hbse"], "no service 'hbse'"),
        (["up", "--port", "kafak=1"], "no listener 'kafak'"),
        (["fetch", "hbse"], "no bundle 'hbse'"),
        (["up", "--port-offset", "60000"], "outside 1–65535"),
        (["mysql", "shpo"], "no MySQL 'shpo' in the stack"),
        (["mysql", "shop", "--user", "root"], "choose among app, cdc"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(stacks: Stacks, words: list[str], said: str) -> None:
    """What, and the remedy; never a stack trace."""
    shown = stacks(*words)
    assert shown.returncode == 2
    assert said in shown.stderr
    assert len(shown.stderr.splitlines()) == 1


def test_up_on_a_port_in_use_is_one_line_and_exit_code_2(stacks: Stacks, tmp_path: Path) -> None:
    """The error is reported before any download or server start."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        ports = [f"--port={name}={number}" for name, number in {**free_ports(), "thrift": port}.items()]
        shown = stacks("up", *ports)
    assert shown.returncode == 2
    assert f"port {port} (thrift) is in use" in shown.stderr
    assert len(shown.stderr.splitlines()) == 1
    assert not (tmp_path / "cache").exists()


def test_a_folder_of_somebody_else_is_refused(stacks: Stacks, tmp_path: Path) -> None:
    """A data folder that we did not make is neither filled nor purged."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years")
    for command in ("up", "down"):
        shown = stacks(command, "--home", "mine")
        assert shown.returncode == 2
        assert "not of this stack" in shown.stderr
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["thesis.txt"]


def test_progress_is_plain_lines_where_no_terminal_is(capsys: pytest.CaptureFixture[str]) -> None:
    """A log file gets a few lines per download, not a bar redrawn a thousand times."""
    with reporting(Console(stderr=True, force_terminal=False)) as progress:
        for done in range(201):
            progress(StackProgress(what="hbase", step="download", done=done, total=200))
        progress(StackProgress(what="solr", step="ready", detail="on port 8983"))
    assert capsys.readouterr().err.splitlines() == [
        "hbase: downloading 0/200",
        "hbase: downloading 50/200",
        "hbase: downloading 100/200",
        "hbase: downloading 150/200",
        "hbase: downloading 200/200",
        "solr: ready on port 8983",
    ]


def test_progress_is_a_bar_on_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """A person sees one bar per bundle, with counts."""
    with reporting(Console(stderr=True, force_terminal=True, width=100)) as progress:
        progress(StackProgress(what="kafka", step="download", done=12, total=46))
        progress(StackProgress(what="solr", step="start"))
    shown = capsys.readouterr().err
    assert "download kafka" in shown
    assert "12/46" in shown
    assert line_of(StackProgress(what="solr", step="start")) in shown
