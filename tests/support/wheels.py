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
    """The commands' folder of a new environment that has these, at the versions that we test with."""
    subprocess.run([interpreter, "-m", "venv", str(folder)], check=True, env=OWN)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--no-compile"]
    subprocess.run([*pip, "--upgrade", "pip>=25.1"], check=True, env=OWN)
    subprocess.run([*pip, "--constraint", str(ROOT / "constraints.txt"), *requirements], check=True, env=OWN, cwd=ROOT)
    return folder / "bin"


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
