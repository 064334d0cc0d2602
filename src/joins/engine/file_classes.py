"""Find the class archive of a JVM in the cache. Its name depends on the version of Java and on the jars.

From Java 25 it is a cache made ahead of time (.aot), with linked classes and profiles of methods. Before, it is a class
data archive (.jsa). Sources: JEP 350, 483, 514 and 515."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Final

from cdc.model.artefacts import cache_folder

_KEPT = 4  # number of archives kept: 150 MB each, and the newest belong to checkouts in use
_COMMAND: Final = "java"  # what started the JVM: Spark's script had another class path and one more module
_AHEAD_OF_TIME: Final = 25
_AOT: Final = ".aot"


def archive_of(jars: Sequence[Path], spark: Path) -> Path:
    """Return the path of the archive for a class path of `jars` and the jars in `spark`, pyspark's folder."""
    java = Path(os.environ["JAVA_HOME"]) / "bin" / "java" if "JAVA_HOME" in os.environ else shutil.which("java") or ""
    release = Path(os.path.realpath(java)).parents[1] / "release"
    described = release.read_text() if release.exists() else str(java)
    parts = [_COMMAND, version("pyspark"), str(spark), *map(str, jars), described]
    # a JVM refuses the archive if its jars were reinstalled, even if all names are the same
    parts += [str(jar.stat().st_mtime_ns) for jar in [*jars, *sorted((spark / "jars").glob("spark-core*.jar"))]]
    digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]
    found = re.search(r'^JAVA_VERSION="(\d+)', described, re.MULTILINE)
    suffix = _AOT if found and int(found[1]) >= _AHEAD_OF_TIME else ".jsa"
    return cache_folder(os.environ) / "classes" / f"{digest}{suffix}"


def used_archive(archive: Path) -> list[str]:
    """Return the JVM's options to use an archive.

    Java warns of an archive that does not fit, and of parts that it does not use. The warnings go to stderr instead of
    stdout, so to Spark's log."""
    option = f"-XX:AOTCache={archive}" if archive.suffix == _AOT else f"-XX:SharedArchiveFile={archive}"
    return [option, "-Xlog:disable", "-Xlog:all=warning:stderr"]


def created_archive(archive: Path) -> str:
    """Return the JVM's option to create an archive at its end."""
    return f"-XX:AOTCacheOutput={archive}" if archive.suffix == _AOT else f"-XX:ArchiveClassesAtExit={archive}"


def forget_older(archive: Path) -> None:
    """Delete all archives next to this one except the newest few."""
    files = [file for suffix in (_AOT, ".jsa") for file in archive.parent.glob(f"*{suffix}")]
    found = sorted(files, key=lambda file: file.stat().st_mtime)
    for file in found[:-_KEPT]:
        file.unlink(missing_ok=True)
