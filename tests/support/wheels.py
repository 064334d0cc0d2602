"""The built wheel, in environments of their own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
OWN = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def built_wheel(folder: Path) -> Path:
    """The checkout's wheel, built into a folder with the tools that are here."""
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*build, "--wheel-dir", str(folder), str(ROOT)], check=True)
    [wheel] = folder.glob("tailorbird-*.whl")
    return wheel


def installed(folder: Path, requirements: Sequence[str], interpreter: str = sys.executable) -> Path:
    """The commands' folder of a new environment that has these, at the versions that we test with.

    Our pip fills it: one of its own would have to be installed, and brought up to date, first.
    """
    subprocess.run([interpreter, "-m", "venv", "--without-pip", str(folder)], check=True, env=OWN)
    constrained = ["install", "--quiet", "--no-compile", "--constraint", str(ROOT / "constraints.txt")]
    subprocess.run([*pip_of(folder), *constrained, *requirements], check=True, env=OWN, cwd=ROOT)
    return folder / "bin"


def pip_of(folder: Path) -> list[str]:
    """Our pip, at work on another environment."""
    return [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python")]


def interpreter_of(version: str) -> str:
    """Where this machine has a Python, for example 3.13: on the path or among pyenv's."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    for found in (shutil.which(f"python{version}"), *map(str, sorted(pyenv.glob(f"{version}.*/bin/python")))):
        if found and _says(found) == version:
            return found
    raise AssertionError(f"no Python {version} here: install it, or let `python{version}` be on the path")


def _says(interpreter: str) -> str:
    """Its version; a shim of pyenv's may lead to none."""
    ask = "import sys; print('%d.%d' % sys.version_info[:2])"
    return subprocess.run([interpreter, "-c", ask], capture_output=True, text=True, env=OWN, check=False).stdout.strip()
