"""A second run of tests in one checkout would stop the first one's servers: it is refused before it touches them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.servers import Claim

ROOT = Path(__file__).parents[1]
TEST = """
import pytest

@pytest.mark.integration
def test_of_servers():
    assert False, "it ran"

def test_of_none():
    pass
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with the files that pytest needs and a test of servers."""
    shutil.copytree(ROOT / "tests" / "support", tmp_path / "tests" / "support")
    shutil.copy(ROOT / "tests" / "conftest.py", tmp_path / "tests")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / "tests" / "test_any.py").write_text(TEST)
    return tmp_path


@pytest.mark.parametrize("workers", [(), ("-n", "1", "--dist", "loadgroup")], ids=["alone", "workers"])
def test_a_second_run_is_refused_in_a_line(checkout: Path, workers: tuple[str, ...]) -> None:
    """With workers or without; tests that need no server ignore the lock."""
    assert Claim(checkout).take()
    # this test may run in a worker, which the inner run must not notice
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}

    def run(test: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "pytest", "-q", *workers, f"tests/test_any.py::{test}"]
        return subprocess.run(command, cwd=checkout, env=environ, capture_output=True, text=True)

    refused, ran = run("test_of_servers"), run("test_of_none")
    assert (refused.returncode, ran.returncode) == (pytest.ExitCode.USAGE_ERROR, 0), refused.stdout + ran.stdout
    assert "another run of tests has this checkout's servers: wait for it" in refused.stdout
    assert "it ran" not in refused.stdout
    assert not (checkout / ".tailorbird" / "tests").exists()
