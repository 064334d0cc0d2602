"""The single-file agent unpacks each Python's packages once, completely, and into a private folder."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.agent_file import write_archive

VERSION = f"{sys.version_info[0]}.{sys.version_info[1]}"
MAIN = (
    b"from pathlib import Path\nimport sys, other\ndef main(): print(other.NAME, sys.argv, Path(__file__).parents[1])\n"
)


def run(file: Path, cache: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environ = {"PATH": os.environ["PATH"], "XDG_CACHE_HOME": str(cache)}
    return subprocess.run([sys.executable, str(file), *words], capture_output=True, text=True, env=environ, check=False)


def archive(target: Path, *pythons: str) -> Path:
    own = {"tailorbird/__init__.py": b"", "tailorbird/__main__.py": MAIN}
    write_archive(target, {python: {**own, "other.py": f"NAME = {python!r}\n".encode()} for python in pythons})
    return target


def test_it_runs_with_the_packages_of_its_python(tmp_path: Path) -> None:
    """The first start unpacks, later ones find the folder; the file is the same whenever it is made."""
    file = archive(tmp_path / "one", "2.0", VERSION)
    assert file.read_bytes() == archive(tmp_path / "two", "2.0", VERSION).read_bytes()
    first, again = (run(file, tmp_path / "cache", "agent", "--help") for _ in range(2))
    assert (first.stdout, first.returncode) == (again.stdout, 0), first.stderr
    assert first.stdout.startswith(f"{VERSION} ['tailorbird', 'agent', '--help'] {tmp_path / 'cache'}")
    [folder] = (tmp_path / "cache" / "tailorbird").iterdir()
    assert folder.name.endswith(f"-{VERSION}")


def test_another_python_and_an_open_folder_are_refused(tmp_path: Path) -> None:
    """One line says what to do. Code in a folder that others can write to is not executed."""
    refused = run(archive(tmp_path / "other", "2.0", "2.1"), tmp_path / "cache")
    assert (refused.returncode, "2.0, 2.1" in refused.stderr, "Traceback" in refused.stderr) == (1, True, False)
    (tmp_path / "open" / "tailorbird").mkdir(parents=True)
    (tmp_path / "open" / "tailorbird").chmod(0o777)
    refused = run(archive(tmp_path / "own", VERSION), tmp_path / "open")
    assert (refused.returncode, "XDG_CACHE_HOME" in refused.stderr) == (1, True)
