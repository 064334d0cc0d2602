"""Pack Tailorbird's sources into the zip that `--py-files` ships to executors, and unpack a Python environment."""

from __future__ import annotations

import hashlib
import tarfile
import tempfile
import zipfile
import zlib
from pathlib import Path

from cdc.model.errors import UsageError

_PACKAGES = ("cdc", "joins")
_BLOCK = 1 << 20
_READABLE = 0o755  # workers run as other accounts; an environment contains no secrets


def write_archive(root: Path, target: Path) -> Path:
    """Write a zip of the packages that executors import from the folder `root`. The file is replaced atomically."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:  # its own: another submit may write, too
        new = Path(scratch) / target.name
        with zipfile.ZipFile(new, "w", zipfile.ZIP_DEFLATED) as packed:
            for package in _PACKAGES:
                for file in sorted((root / package).rglob("*.py")):
                    packed.write(file, file.relative_to(root))
        new.replace(target)
    return target


def unpacked(environment: Path, folder: Path) -> Path:
    """Unpack a packed Python environment (tar.gz) into a folder named by its content, once; return that folder.

    The folder appears when it is complete, and all accounts can read it. Raises UsageError if the file is no such
    archive, or a damaged one."""
    with environment.open("rb") as file:
        target = folder / f"environment-{hashlib.file_digest(file, 'sha256').hexdigest()[:16]}"
    if target.is_dir():
        return target
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        made = Path(scratch) / "environment"
        made.mkdir()
        try:
            with tarfile.open(environment) as packed:
                packed.extractall(made, filter="tar")
                while packed.fileobj is not None and packed.fileobj.read(_BLOCK):
                    pass  # up to the checksum at the end
        except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
            raise UsageError(f"{environment}: {error}", "pack one: venv-pack -o environment.tar.gz") from error
        if not (made / "bin" / "python").exists():
            raise UsageError(f"{environment} has no bin/python", "pack one: venv-pack -o environment.tar.gz")
        made.chmod(_READABLE)  # the archive may contain a mode of its root
        try:
            made.rename(target)
        except OSError:
            if not target.is_dir():  # else another submit was faster, with the same content
                raise
    return target
