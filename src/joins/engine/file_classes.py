"""Find the class data archive of a JVM in the cache. Its name depends on the version of Java and on the jars."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from cdc.model.artefacts import cache_folder

_KEPT = 4  # number of archives kept: 150 MB each, and the newest belong to checkouts in use


def archive_of(jars: Sequence[Path], spark: Path) -> Path:
    """Return the path of the archive for a class path of `jars` and the jars in `spark`, pyspark's folder."""
    java = Path(os.environ["JAVA_HOME"]) / "bin" / "java" if "JAVA_HOME" in os.environ else shutil.which("java") or ""
    release = Path(os.path.realpath(java)).parents[1] / "release"
    parts = [version("pyspark"), str(spark), *map(str, jars), release.read_text() if release.exists() else str(java)]
    # a JVM refuses the archive if its jars were reinstalled, even if all names are the same
    parts += [str(jar.stat().st_mtime_ns) for jar in [*jars, *sorted((spark / "jars").glob("spark-core*.jar"))]]
    digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]
    return cache_folder(os.environ) / "classes" / f"{digest}.jsa"


def forget_older(archive: Path) -> None:
    """Delete all archives next to this one except the newest few."""
    found = sorted(archive.parent.glob("*.jsa"), key=lambda file: file.stat().st_mtime)
    for file in found[:-_KEPT]:
        file.unlink(missing_ok=True)
