"""Install the built wheel in separate environments."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
OWN = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def built_wheel(folder: Path) -> Path:
    """Build the checkout's wheel into a folder with the installed tools."""
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*build, "--wheel-dir", str(folder), str(ROOT)], check=True)
    [wheel] = folder.glob("tailorbird-*.whl")
    return wheel


def installed(folder: Path, requirements: Sequence[str], interpreter: str = sys.executable) -> Path:
    """Install requirements into a new environment, at the tested versions; return the folder of its commands.

    Our pip fills it: its own would have to be installed and upgraded first.
    """
    subprocess.run([interpreter, "-m", "venv", "--without-pip", str(folder)], check=True, env=OWN)
    versions = folder / "versions.txt"  # without hashes: a wheel that was just built has none in the lock
    versions.write_text("\n".join(locked("dev")))
    constrained = ["install", "--quiet", "--no-compile", "--constraint", str(versions)]
    subprocess.run([*pip_of(folder), *constrained, *requirements], check=True, env=OWN, cwd=ROOT)
    return folder / "bin"


def locked(name: str) -> list[str]:
    """Return the packages in a lock file, `name==version ; marker`, without hashes."""
    lines = (ROOT / "locks" / f"{name}.txt").read_text().splitlines()
    return [re.sub(r"\[.*\]", "", line.removesuffix(" \\")) for line in lines if re.match(r"\w", line)]


def pip_of(folder: Path) -> list[str]:
    """Return our pip's command for another environment."""
    return [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python")]


def interpreter_of(version: str) -> str:
    """Find a Python of this machine, for example 3.13: on the path or among pyenv's."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    for found in (shutil.which(f"python{version}"), *map(str, sorted(pyenv.glob(f"{version}.*/bin/python")))):
        if found and _says(found) == version:
            return found
    raise AssertionError(f"no Python {version} here: install it, or let `python{version}` be on the path")


def _says(interpreter: str) -> str:
    """Return its version, empty for a pyenv shim without a target."""
    ask = "import sys; print('%d.%d' % sys.version_info[:2])"
    return subprocess.run([interpreter, "-c", ask], capture_output=True, text=True, env=OWN, check=False).stdout.strip()
