"""Unit files restrict what a process can do, and `agent install` writes exactly what it shows."""

from __future__ import annotations

import configparser
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cdc.model.errors import UsageError
from tailorbird.cli.app import app
from tailorbird.deploy.units.file_install import agent_files
from tailorbird.deploy.units.units import SYSUSERS, UNITS, unit_text

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy" / "systemd"
RUN = CliRunner()


def test_the_folder_contains_what_the_command_writes() -> None:
    """`deploy/systemd` has the same units, for hosts where an administrator copies them."""
    texts = {unit.name: unit_text(unit) for unit in UNITS} | {"tailorbird.conf": SYSUSERS}
    assert {path.name: path.read_text() for path in FOLDER.iterdir()} == texts


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_units_are_hardened_and_stop_cleanly(unit: object) -> None:
    """No privileges, a read-only system, a restart after a failure, and time for a clean end."""
    parsed = configparser.ConfigParser(strict=False, interpolation=None, delimiters=("=",))
    parsed.optionxform = str  # type: ignore[assignment,method-assign]  # as the module's documentation does
    parsed.read_string(unit_text(unit))  # type: ignore[arg-type]  # pytest's parameters have no type
    service = dict(parsed["Service"])
    wanted = {
        "User": "tailorbird", "ProtectSystem": "strict", "NoNewPrivileges": "yes", "CapabilityBoundingSet": "",
        "StateDirectory": "tailorbird", "Restart": "on-failure", "RestartPreventExitStatus": "2",
    }  # fmt: skip
    assert {key: service[key] for key in wanted} == wanted
    assert int(service["TimeoutStopSec"]) >= 60


def agent(tmp_path: Path) -> list[str]:
    """Create an identity and a policy; return the options that name them."""
    identity = tmp_path / "paris"
    identity.mkdir()
    for name in ("ca.pem", "cert.pem", "key.pem"):
        (identity / name).write_text(name)
    (tmp_path / "policy.yml").write_text("dumps: true\n")
    return ["--identity", str(identity), "--policy", str(tmp_path / "policy.yml"), "--gateway", "gw1.example.org:7443"]


def test_install_and_uninstall(tmp_path: Path) -> None:
    """The key is root's alone, a changed policy is kept, and the last agent takes the unit with it."""
    options, root = agent(tmp_path), tmp_path / "root"
    place = ["--prefix", str(root)]
    shown = RUN.invoke(app, ["agent", "install", "paris", *options, *place, "--dry-run", "--json"])
    assert (shown.exit_code, root.exists()) == (0, False)
    done = RUN.invoke(app, ["agent", "install", "paris", *options, *place, "--json"])
    assert json.loads(done.stdout)["files"] == json.loads(shown.stdout)["files"]
    assert {str(path) for path in root.rglob("*") if path.is_file()} == set(json.loads(done.stdout)["files"])
    own = root / "etc" / "tailorbird" / "agents" / "paris"
    assert (own / "key.pem").stat().st_mode & 0o777 == 0o600
    assert "--gateway gw1.example.org:7443" in (own / "agent.env").read_text()
    (own / "policy.yml").write_text("dumps: false\n")
    RUN.invoke(app, ["agent", "install", "paris", *options, *place])
    assert (own / "policy.yml").read_text() == "dumps: false\n"
    RUN.invoke(app, ["agent", "install", "lyon", *options, *place])
    unit = root / "etc" / "systemd" / "system" / "tailorbird-agent@.service"
    for name, stays in (("lyon", True), ("paris", False)):
        assert RUN.invoke(app, ["agent", "uninstall", name, *place]).exit_code == 0
        assert unit.exists() is stays
    assert not own.exists()
    absent = RUN.invoke(app, ["agent", "uninstall", "paris", *place])
    assert isinstance(absent.exception, UsageError)


@pytest.mark.parametrize(
    ("name", "gateway", "command"),
    [
        ("a b", "gw:7443", "/usr/bin/tailorbird"),
        ("../x", "gw:7443", "/usr/bin/tailorbird"),
        ("a", "gw:7443\nUser=root", "/usr/bin/tailorbird"),
        ("a", "gw", "/usr/bin/tailorbird"),
        ("a", "gw:7443", "tailorbird"),
        ("a", "gw:7443", "/x\nUser=root"),
    ],
)
def test_an_argument_cannot_add_lines_to_a_unit(tmp_path: Path, name: str, gateway: str, command: str) -> None:
    """Names that are no file names, and values with spaces or line breaks, are refused."""
    agent(tmp_path)
    with pytest.raises(UsageError):
        agent_files(
            name, gateways=[gateway], identity=tmp_path / "paris", policy=tmp_path / "policy.yml", command=command,
            metrics_port=0,
        )  # fmt: skip


@pytest.mark.parametrize("words", [["instalx"], ["instalx", "--gateway", "gw:7443"]])
def test_a_mistyped_command_is_not_taken_for_run(words: list[str]) -> None:
    """`tailorbird agent` alone runs the agent, but only with options."""
    done = RUN.invoke(app, ["agent", *words])
    assert done.exit_code == 2
    assert "'install'" in done.output


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze (Debian: systemd)")
def test_systemd_accepts_the_units(tmp_path: Path) -> None:
    """No unknown or misspelled setting, and an exposure of at most 2.5 of 10."""
    command = tmp_path / "tailorbird"
    command.write_text("#!/bin/sh\n")
    command.chmod(0o755)
    files = []
    for unit in UNITS:
        files.append(tmp_path / unit.name.replace("@.", "@x."))
        files[-1].write_text(unit_text(unit, str(command)))
    verified = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", *map(str, files)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (verified.returncode, [line for line in verified.stderr.splitlines() if str(tmp_path) in line]) == (0, [])
    for file in files:
        rated = subprocess.run(
            ["systemd-analyze", "security", "--offline=yes", "--threshold=25", str(file)],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert rated.returncode == 0, re.findall(r"Overall.*", rated.stdout) or rated.stderr
