"""Start the JVM of a local session, before pyspark is imported.

Spark's own script starts another JVM first, which computes the command. That takes as much time as the JVM's own start.
The script also adds the module of vectors, which only Spark's machine learning uses. With a module that is not part of
Java's own archive, a JVM neither maps archived modules nor links archived classes ahead of time. Sources:
`org.apache.spark.launcher.SparkSubmitCommandBuilder`, JEP 483."""

from __future__ import annotations

import os
import shlex
import shutil
import struct
import subprocess
import tempfile
import time
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import IO

from cdc.model.artefacts import spark_connector_folder
from cdc.model.errors import UsageError
from joins.engine.file_classes import archive_of, used_archive
from joins.engine.proc_jvm import apart, empty_folder, prepare_environment
from joins.kernel.proc_kernel import build

_CONNECT_TIMEOUT = 300.0
_LOOK_EVERY = 0.02
# Like `org.apache.spark.launcher.JavaModuleOptions`, without the module of vectors.
MODULE_OPTIONS = (
    "-XX:+IgnoreUnrecognizedVMOptions",
    "--add-opens=java.base/java.lang=ALL-UNNAMED",
    "--add-opens=java.base/java.lang.invoke=ALL-UNNAMED",
    "--add-opens=java.base/java.lang.reflect=ALL-UNNAMED",
    "--add-opens=java.base/java.io=ALL-UNNAMED",
    "--add-opens=java.base/java.net=ALL-UNNAMED",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/java.util=ALL-UNNAMED",
    "--add-opens=java.base/java.util.concurrent=ALL-UNNAMED",
    "--add-opens=java.base/java.util.concurrent.atomic=ALL-UNNAMED",
    "--add-opens=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.cs=ALL-UNNAMED",
    "--add-opens=java.base/sun.security.action=ALL-UNNAMED",
    "--add-opens=java.base/sun.util.calendar=ALL-UNNAMED",
    "--add-opens=java.security.jgss/sun.security.krb5=ALL-UNNAMED",
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Dio.netty.allocator.type=pooled",
    "-Dio.netty.handler.ssl.defaultEndpointVerificationAlgorithm=NONE",
    "--sun-misc-unsafe-memory-access=allow",
    "--enable-native-access=ALL-UNNAMED",
)


# Spark's search for an interrupt in an error's text recurses at every character, and a query whose thread overflows its
# stack there never ends. Before compilation 4 MB hold 5,000 characters and 16 MB 21,000; unused stack costs no memory.
# The kernel needs the second compiler tier, but only for really hot code: otherwise a third of the CPU time of a start
# is spent in this compiler (ADR 119). These are 16 times Java's defaults.
_SECOND_TIER_LATER = (
    "-XX:Tier4InvocationThreshold=80000 -XX:Tier4MinInvocationThreshold=9600 -XX:Tier4CompileThreshold=240000 "
    "-XX:Tier4BackEdgeThreshold=640000"
)
# If a thread of Spark's driver dies from lack of memory, its query waits forever. So the whole JVM exits, as Spark
# configures for executors on YARN. The join reports it and restarts after the last committed batch.
_END_WITHOUT_MEMORY = "-XX:+ExitOnOutOfMemoryError"
JVM_OPTIONS = f"-XX:+UseSerialGC -Xss16m {_END_WITHOUT_MEMORY} {_SECOND_TIER_LATER}"
MEMORY = "1g"
MEMORY_TOGETHER = "2g"  # of a JVM for many tables


@dataclass(frozen=True, slots=True)
class StartedJvm:
    """A JVM that starts, and the folder in which it will write the port and the secret of its gateway.

    It ends when this process ends, because its standard input is closed then."""

    process: subprocess.Popen[bytes]
    folder: Path

    def end(self) -> None:
        """Kill the JVM, to which nothing is connected, and remove its folder."""
        self.process.kill()
        self.process.wait()
        if self.process.stdin is not None:
            self.process.stdin.close()
        shutil.rmtree(self.folder, ignore_errors=True)


def spark_folder() -> Path:
    """Return pyspark's folder, without importing it. Raises ModuleNotFoundError if it is not installed."""
    found = find_spec("pyspark")
    if found is None or found.origin is None:
        raise ModuleNotFoundError("No module named 'pyspark'", name="pyspark")
    return Path(found.origin).parent


def spark_log(scratch: Path) -> Path:
    """Return the path of Spark's log. With spark-submit it is not used."""
    return scratch / "spark.log"


def start_jvm(scratch: Path, *, memory: str = MEMORY, more: str = "") -> StartedJvm:
    """Start a JVM with the jars of Spark and ours, and return at once. UsageError if jars or Java are missing.

    Empties `scratch` and writes the JVM's log to it. `memory` is its heap, such as "1g". `more` are further options,
    quoted as for a shell. The JVM uses its class archive if there is one."""
    spark = spark_folder()
    prepare_environment(spark)
    empty_folder(scratch)
    folder = Path(tempfile.mkdtemp(prefix="tailorbird-gateway-"))
    java = Path(os.environ["JAVA_HOME"]) / "bin" / "java" if os.environ.get("JAVA_HOME") else "java"
    needed = jars()
    path = os.pathsep.join(
        [*map(str, needed), os.environ.get("SPARK_CONF_DIR", str(spark / "conf")), str(spark / "jars" / "*")]
    )
    archive = archive_of(needed, spark)
    command = [
        # Ctrl-C in a terminal must not end the JVM before its session is closed
        "/bin/sh", "-c", 'trap "" INT; exec "$@"', "sh",
        str(java), "-cp", path, f"-Xmx{memory}", *(used_archive(archive) if archive.exists() else []),
        *shlex.split(f"{JVM_OPTIONS} {more}"), f"-Djava.io.tmpdir={scratch}", *MODULE_OPTIONS,
        "org.apache.spark.deploy.SparkSubmit", "--conf", "spark.ui.showConsoleProgress=false",
        *shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell")),
    ]  # fmt: skip
    environ = {
        **os.environ,
        "SPARK_CONNECT_MODE": "0",
        "PYTHONHASHSEED": "0",
        "_PYSPARK_DRIVER_CONN_INFO_PATH": str(folder / "gateway"),
    }
    with apart(spark_log(scratch)):
        process = subprocess.Popen(command, env=environ, stdin=subprocess.PIPE)
    return StartedJvm(process, folder)


def class_archive() -> Path:
    """Return the path of the class archive of a local session's JVM: see `joins.engine.spark_archive`."""
    return archive_of(jars(), spark_folder())


def jars() -> list[Path]:
    """Return the jars that Spark needs in addition to its own: Kafka's connector, and the kernel."""
    return [*_connector(), build()]


def _connector() -> list[Path]:
    folder = spark_connector_folder(os.environ)
    found = sorted(folder.glob("*.jar"))
    if not found:
        raise UsageError(f"{folder}: Spark's Kafka connector is missing", "run `tailorbird stack fetch`")
    return found


def answer(jvm: StartedJvm, log: Path) -> tuple[int, str]:
    """Wait until a JVM is ready; return the port and the secret of its gateway.

    Raises UsageError if the JVM has ended, naming the file `log`."""
    file, deadline = jvm.folder / "gateway", time.monotonic() + _CONNECT_TIMEOUT
    while not file.exists():
        if (code := jvm.process.poll()) is not None or time.monotonic() > deadline:
            jvm.end()
            what = f"Java does not answer after {_CONNECT_TIMEOUT:.0f} s" if code is None else f"Java ended with {code}"
            raise UsageError(f"{what} before Spark started", f"see {log}; Spark needs Java 17 or newer")
        time.sleep(_LOOK_EVERY)
    with file.open("rb") as info:
        port, secret = _number(info), info.read(_number(info)).decode()
    shutil.rmtree(jvm.folder, ignore_errors=True)
    return port, secret


def _number(info: IO[bytes]) -> int:
    return int(struct.unpack("!i", info.read(4))[0])
