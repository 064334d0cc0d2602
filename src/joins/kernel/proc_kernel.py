"""Build the jar of the kernel from the Java files in this folder, with javac or with pyspark's Janino compiler.

`make setup` runs it (`python -m joins.kernel.proc_kernel`), and so do the build of the wheel and a session that
finds no jar. The jar is stored in this folder. Its name contains a digest of the sources, so an outdated jar is
never used."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from cdc.model.artefacts import cache_folder, runtime_folder
from cdc.model.errors import UsageError

FOLDER = Path(__file__).resolve().parent
_DATE = (2020, 1, 1, 0, 0, 0)  # the same sources make the same jar


def sources() -> list[Path]:
    """Return the kernel's Java files, sorted."""
    return sorted(FOLDER.rglob("*.java"), key=lambda file: file.name)


def jar() -> Path:
    """Return the path of the jar for the current sources, whether it exists or not."""
    digest = hashlib.sha256(b"".join(file.name.encode() + file.read_bytes() for file in sources()))
    return FOLDER / f"kernel-{digest.hexdigest()[:12]}.jar"


def build(environ: Mapping[str, str] = os.environ) -> Path:
    """Build the jar unless it exists, and return its path. Raises UsageError if there is no Java compiler."""
    target = jar()
    if target.exists():
        return target
    with tempfile.TemporaryDirectory() as scratch:
        classes = Path(scratch)
        if javac := _tool("javac", environ):
            with_javac(javac, classes)
        elif java := _tool("java", environ):
            with_janino(java, classes)
        else:
            raise UsageError(
                "no Java to build the join kernel with", "install Java 17, or run `tailorbird stack fetch`"
            )
        for former in FOLDER.glob("kernel-*.jar"):
            former.unlink()
        _pack(classes, target)
    return target


def with_javac(javac: str, classes: Path) -> None:
    """Compile the sources into the folder `classes` with a JDK's compiler."""
    options = ["-nowarn", "-proc:none", "--release", "17", "-encoding", "UTF-8"]
    command = [javac, *options, "-cp", _classpath(), "-d", str(classes), *map(str, sources())]
    _run(command, os.environ)


def with_janino(java: str, classes: Path) -> None:
    """Compile the sources into the folder `classes` with the Janino compiler, which Spark contains."""
    # in a separate process: py4j leaves its sockets and pipes to the garbage collector
    module = [sys.executable, "-W", "ignore", "-m", "joins.kernel.spark_janino"]
    path = [
        str(FOLDER.parents[1]),
        *filter(None, [os.environ.get("PYTHONPATH")]),
    ]  # pip builds in an environment of its own
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(path)}
    _run([*module, java, _classpath(), str(classes), *map(str, sources())], environ)


def _run(command: list[str], environ: Mapping[str, str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environ)
    if done.returncode:
        raise RuntimeError(f"the join kernel can not be compiled: {done.stderr.strip()[-2000:]}")


def _tool(name: str, environ: Mapping[str, str]) -> str | None:
    homes = [Path(environ["JAVA_HOME"]) / "bin"] if environ.get("JAVA_HOME") else []
    path = os.pathsep.join([*map(str, homes), environ.get("PATH", "")])
    found = shutil.which(name, path=path)
    return found or shutil.which(name, path=str(runtime_folder(cache_folder(environ)) / "bin"))


def _classpath() -> str:
    found = find_spec("pyspark")
    if found is None or found.origin is None:
        raise UsageError(
            "pyspark is not installed, and the join kernel is compiled against its jars", "run `pip install pyspark`"
        )
    return str(Path(found.origin).parent / "jars" / "*")


def _pack(classes: Path, target: Path) -> None:
    new = target.with_suffix(f".{os.getpid()}")
    with zipfile.ZipFile(new, "w", zipfile.ZIP_DEFLATED) as packed:
        for file in sorted(classes.rglob("*.class")):
            packed.writestr(zipfile.ZipInfo(str(file.relative_to(classes)), _DATE), file.read_bytes())
    new.replace(target)


if __name__ == "__main__":
    print(f"join kernel: {build()}", file=sys.stderr)
