"""Every supported Python runs the built wheel and passes the tests that need no server."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support.wheels import OWN, ROOT, built_wheel, installed, interpreter_of

IMPORT_ALL = """
import importlib, pkgutil
for package in ("cdc", "ingest", "joins", "indexer", "tailorbird"):
    for module in pkgutil.walk_packages(importlib.import_module(package).__path__, package + "."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
print(importlib.import_module("tailorbird").__file__)
"""


@pytest.mark.matrix
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13"])
def test_a_python_runs_the_wheel_and_passes(version: str, tmp_path: Path) -> None:
    """All modules are imported from the wheel, a topology is validated, and `make unit`'s tests pass."""
    wheel = built_wheel(tmp_path)
    commands = installed(tmp_path / "own", [f"{wheel}[all]", "--group", "dev"], interpreter_of(version))

    def run(*command: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(command, cwd=ROOT, env=OWN, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
        return done

    python = str(commands / "python")
    assert f"own/lib/python{version}/site-packages" in run(python, "-P", "-c", IMPORT_ALL).stdout
    run(str(commands / "tailorbird"), "validate", "topologies/shop.yml")
    chosen = "not integration and not matrix and not chaos and not long"
    run(python, "-P", "-m", "pytest", "-q", "-n", "2", "--dist", "loadgroup", "--no-loadscope-reorder", "-m", chosen)
