"""Pack Tailorbird's sources into the zip that `--py-files` ships to executors."""

from __future__ import annotations

import zipfile
from pathlib import Path

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
