"""Run Debezium's engine for the demo's second MySQL (topologies/two-engines.yml).

It uses the Java program of the benchmarks that compare Tailorbird with Debezium. So it needs a checkout, Maven and a
JDK. It stores no offsets: after a restart it publishes its table again, which the mirror recognizes
(docs/topics.md)."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

from cdc.model.errors import Fatal, TailorbirdError, UsageError
from tailorbird.operate.probes.login import Login

_JAVA = Path(__file__).parents[4] / "benchmarks" / "capture" / "debezium"
_MOST_ENDS = 3
_SERVER_ID = 9507  # its id as a replica of MySQL


def build_with_maven(pom: Path, folder: Path) -> None:
    """Compile Java and collect its libraries below `folder`. Raises TailorbirdError with Maven's reason.

    Raises Fatal if the libraries are not those of `jars.sha256` in the POM's folder."""
    command = ["mvn", "-B", "-q", "-f", str(pom), f"-Dbench.build={folder}", "process-classes"]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise UsageError("Debezium's engine is built with Maven, and mvn is not installed", "install maven") from error
    if done.returncode:
        lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        reason = next((line for line in lines if "ERROR" in line), lines[-1] if lines else "no reason given")
        raise TailorbirdError(f"Debezium could not be built: {reason}", "check the network and repeat")
    if wrong := wrong_jars((pom.parent / "jars.sha256").read_text(), folder / "lib"):
        what = f"Debezium's libraries are not the expected ones: {', '.join(wrong[:3])}"
        raise Fatal(what, f"remove {folder} and the files from ~/.m2, and check where Maven fetches them from")


def wrong_jars(expected: str, folder: Path) -> list[str]:
    """Return the jars that differ, lack or are too many in a folder. `expected` is the output of `sha256sum`."""
    wanted = {name: digest for digest, _, name in (line.partition("  ") for line in expected.splitlines())}
    found = {jar.name: hashlib.sha256(jar.read_bytes()).hexdigest() for jar in folder.glob("*.jar")}
    return sorted(name for name in wanted.keys() | found.keys() if wanted.get(name) != found.get(name))


def debezium_command(cache: Path, java: Path) -> list[str]:
    """Build the engine's program and return its command without arguments. Raises UsageError outside a checkout."""
    if not _JAVA.exists():
        raise UsageError("Debezium's engine is part of a checkout", "clone the repository and start the demo there")
    folder = cache / "bench-capture" / "debezium"
    folder.mkdir(parents=True, exist_ok=True)
    build_with_maven(_JAVA / "pom.xml", folder)
    return [str(java), "-cp", f"{folder / 'classes'}:{folder / 'lib'}/*", "CaptureBench"]


class Debezium:
    """Debezium's engine for one table: it takes a snapshot, then follows the log. `prefix` begins its topics' names."""

    def __init__(
        self, command: list[str], *, prefix: str, brokers: str, port: int, login: Login, table: str, log: Path
    ) -> None:
        database, name = table.split(".")
        # with a lock: without one it reads its log position after its snapshot, and loses changes in between
        settings = {
            "topic.prefix": prefix, "table.include.list": f"{database}.{name}", "snapshot.mode": "initial",
            "snapshot.locking.mode": "minimal", "database.server.id": str(_SERVER_ID),
        }  # fmt: skip
        given = {"brokers": brokers, "port": str(port), "user": login.user, "password": login.password, "table": name}
        words = [word for key, value in given.items() for word in (f"--{key}", value)]
        words += [word for key, value in settings.items() for word in (f"--set.{key}", value)]
        self._command, self._log = [*command, *words], log
        self._process: subprocess.Popen[bytes] | None = None
        self._ends = 0

    def start(self) -> None:
        """Start the engine. Its output is appended to its log file."""
        self._log.parent.mkdir(parents=True, exist_ok=True)
        with self._log.open("ab") as output:
            self._process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)

    def revive(self) -> None:
        """Start the engine again if it has ended, e.g. with Kafka. Raises Fatal, naming the log file, at the fourth
        end."""
        try:
            self.check()
        except Fatal:
            self._ends += 1
            if self._ends > _MOST_ENDS:
                raise
            self.start()

    def check(self) -> None:
        """Raise Fatal, naming the log file, if the engine has ended."""
        if self._process is not None and self._process.poll() is not None:
            raise Fatal(f"Debezium ended with {self._process.returncode}", f"see {self._log}")

    def kill(self) -> None:
        """Kill the engine and its children, if it runs."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
