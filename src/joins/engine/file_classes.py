"""Where the archive of a JVM's classes lies: in the cache, named by the Java and the jars that it was made of."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from cdc.model.artefacts import cache_folder

_KEPT = 4  # archives of other jars: 150 MB each, and the newest belong to checkouts that are at work


def archive_of(jars: Sequence[Path], spark: Path) -> Path:
    """The archive for a class path of these jars and those of `spark`, pyspark's folder; made or not."""
    java = Path(os.environ["JAVA_HOME"]) / "bin" / "java" if "JAVA_HOME" in os.environ else shutil.which("java") or ""
    release = Path(os.path.realpath(java)).parents[1] / "release"
    parts = [version("pyspark"), str(spark), *map(str, jars), release.read_text() if release.exists() else str(java)]
    # a JVM refuses the archive of jars that were installed anew, although all names are the same
    parts += [str(jar.stat().st_mtime_ns) for jar in [*jars, *sorted((spark / "jars").glob("spark-core*.jar"))]]
    digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]
    return cache_folder(os.environ) / "classes" / f"{digest}.jsa"


def forget_older(archive: Path) -> None:
    """Remove the archives that were made before the newest few."""
    found = sorted(archive.parent.glob("*.jsa"), key=lambda file: file.stat().st_mtime)
    for file in found[:-_KEPT]:
        file.unlink(missing_ok=True)
