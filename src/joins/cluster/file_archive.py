"""Pack Tailorbird's sources into the zip that `--py-files` ships to executors, and unpack a Python environment."""

from __future__ import annotations

import hashlib
import tarfile
import tempfile
import zipfile
from pathlib import Path

from cdc.model.errors import UsageError

_PACKAGES = ("cdc", "joins")


def write_archive(root: Path, target: Path) -> Path:
    """Write a zip of the packages that executors import from the folder `root`. The file is replaced atomically."""
    target.parent.mkdir(parents=True, exist_ok=True)
    new = target.with_suffix(".new")
    with zipfile.ZipFile(new, "w", zipfile.ZIP_DEFLATED) as packed:
        for package in _PACKAGES:
            for file in sorted((root / package).rglob("*.py")):
                packed.write(file, file.relative_to(root))
    new.replace(target)
    return target


def unpacked(environment: Path, folder: Path) -> Path:
    """Unpack a packed Python environment (tar.gz) into a folder named by its content, once; return that folder.

    The folder appears when it is complete. Raises UsageError if the file is no such archive."""
    with environment.open("rb") as file:
        target = folder / f"environment-{hashlib.file_digest(file, 'sha256').hexdigest()[:16]}"
    if target.is_dir():
        return target
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        try:
            with tarfile.open(environment) as packed:
                packed.extractall(scratch, filter="tar")
        except tarfile.TarError as error:
            raise UsageError(f"{environment}: {error}", "pack one: venv-pack -o environment.tar.gz") from error
        if not (Path(scratch) / "bin" / "python").exists():
            raise UsageError(f"{environment} has no bin/python", "pack one: venv-pack -o environment.tar.gz")
        moved = Path(scratch).rename(target)
        Path(scratch).mkdir()  # which the block removes
    return moved
