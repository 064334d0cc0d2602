"""The checks of `make check` fail on a fault planted in a copy of the sources. Those of import-linter are in
test_rooms.py."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
BIN = Path(sys.executable).parent


def copied(folder: Path) -> Path:
    """Copy the sources and the settings, with empty stages."""
    for package in ("ingest", "joins", "indexer", "tailorbird"):
        (folder / "src" / package).mkdir(parents=True)
        (folder / "src" / package / "__init__.py").touch()
    shutil.copytree(ROOT / "src" / "cdc", folder / "src" / "cdc", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder


def run(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(BIN / command[0]), *command[1:]],
        cwd=folder,
        env={"PATH": str(BIN), "PYTHONPATH": str(folder / "src"), "HOME": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )


UNTYPED = "def f(x):\n    return x\n"


@pytest.mark.parametrize(
    ("command", "file", "source", "message"),
    [
        (["ruff", "check", "."], "joins/planted.py", "import json\n", "F401"),
        (["ruff", "format", "--check", "."], "joins/planted.py", "x = { 'a':1 }\n", "would be reformatted"),
        # one module, since each that it imports is checked, too
        (["mypy", "src/joins"], "joins/planted.py", UNTYPED, "no-untyped-def"),
    ],
    ids=["lint", "format", "types"],
)
def test_planted_fault_fails_the_check(
    tmp_path: Path, command: list[str], file: str, source: str, message: str
) -> None:
    """Each tool of `make check` finds a fault of its kind."""
    folder = copied(tmp_path)
    clean = run(folder, *command)
    assert clean.returncode == 0, clean.stdout + clean.stderr
    (folder / "src" / file).write_text(source)
    result = run(folder, *command)
    assert result.returncode != 0
    assert message in result.stdout + result.stderr


def test_generated_code_is_compared_with_its_definition(tmp_path: Path) -> None:
    """The committed protobuf code is what proto/*.proto generates. A message that it lacks is reported."""
    shutil.copy(ROOT / "Makefile", tmp_path)
    shutil.copytree(ROOT / "proto", tmp_path / "proto")
    for folder in ("indexer/peer", "ingest/fleet"):
        shutil.copytree(ROOT / "src" / folder, tmp_path / "src" / folder)
    command = ["make", "check-proto", f"BIN={BIN}"]
    clean = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert clean.returncode == 0, clean.stdout + clean.stderr
    definition = tmp_path / "proto" / "fleet.proto"
    definition.write_text(f"{definition.read_text()}\nmessage Planted {{}}\n")
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert result.returncode != 0
    assert "+class Planted" in result.stdout
