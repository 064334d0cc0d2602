"""Build the single-file agent: `python -m tests.agent_file UV WHEEL TARGET [PYTHON …]`.

`uv` installs the locked packages of the capture side for each Python, with hashes and without building anything. The
file contains each distinct file once (deploy/agent_file/__main__.py)."""

from __future__ import annotations

import hashlib
import io
import json
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
PLATFORM = "x86_64-manylinux_2_28"
_DATE = (2020, 1, 1, 0, 0, 0)  # the same packages make the same file
_SKIPPED = (".pyi", ".jar", ".java", ".pyc", "RECORD", ".lock")


def packages(uv: str, python: str, folder: Path) -> dict[str, bytes]:
    """Return the files of the locked packages for a version of Python, by their path in `site-packages`."""
    command = [uv, "--quiet", "pip", "install", "--target", str(folder), "--only-binary", ":all:", "--require-hashes"]
    command += ["--python-version", python, "--python-platform", PLATFORM, "--link-mode", "copy"]
    subprocess.run([*command, "--requirement", str(ROOT / "locks" / "capture.txt")], check=True)
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.endswith(_SKIPPED) and path.relative_to(folder).parts[0] != "bin"
    }


def own_files(wheel: Path) -> dict[str, bytes]:
    """Return the files of Tailorbird's wheel, without the join's kernel."""
    with zipfile.ZipFile(wheel) as opened:
        return {name: opened.read(name) for name in sorted(opened.namelist()) if not name.endswith(_SKIPPED)}


def write_archive(target: Path, by_python: dict[str, dict[str, bytes]]) -> None:
    """Write an executable zip archive with the files of each Python."""
    written = set[str]()
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        _add(archive, "__main__.py", (ROOT / "deploy" / "agent_file" / "__main__.py").read_bytes())
        for python, files in by_python.items():
            named = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
            for name, digest in named.items():
                if digest not in written:
                    written.add(digest)
                    _add(archive, f"blobs/{digest}", files[name])
            digest = hashlib.sha256(json.dumps(named).encode()).hexdigest()[:16]
            _add(archive, f"python-{python}.json", json.dumps({"digest": digest, "files": named}).encode())
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(b"#!/usr/bin/env python3\n" + buffer.getvalue())
    target.chmod(0o755)


def _add(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    archive.writestr(zipfile.ZipInfo(name, _DATE), content, zipfile.ZIP_DEFLATED)


def main(arguments: Sequence[str]) -> None:
    """Build the file and print its size."""
    uv, wheel, target, *pythons = arguments
    own = own_files(Path(wheel))
    with tempfile.TemporaryDirectory() as scratch:
        found = {python: {**packages(uv, python, Path(scratch, python)), **own} for python in pythons or PYTHONS}
    write_archive(Path(target), found)
    print(f"{target}: {Path(target).stat().st_size / 1e6:.0f} MB, for Python {', '.join(found)}")


if __name__ == "__main__":
    main(sys.argv[1:])
