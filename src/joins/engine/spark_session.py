"""The Spark session of a join: settings, the Kafka connector's jars, Java.

Works both ways: `python -m joins`, which starts the JVM itself, and `spark-submit`, whose JVM already runs.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

import pyspark
from pyspark import SparkContext
from pyspark.conf import SparkConf
from pyspark.sql import SparkSession

from cdc.model.artefacts import spark_connector_folder
from cdc.model.errors import UsageError
from cdc.topology.topology import Engine
from joins.engine.file_classes import archive_of
from joins.engine.proc_jvm import apart, ctrl_c_kept, empty_folder, exit_code, prepare_environment
from joins.engine.workers.file_python import worker_python
from joins.kernel.proc_kernel import build

# Spark's search for an interrupt in an error's text recurses at every character, and a query whose thread overflows
# there never ends: 4 MB hold 5,000 characters while nothing is compiled yet, 16 MB 21,000; what is not used of a stack
# costs no memory. For the Python engine one compiler tier starts in two thirds of the time and half of the memory: what
# is hot runs in Python or in RocksDB. The kernel needs the second one, but only for what is really hot: else it takes
# the start's time from a small machine.
_SECOND_TIER_LATER = (
    "-XX:Tier4InvocationThreshold=20000 -XX:Tier4MinInvocationThreshold=2400 -XX:Tier4CompileThreshold=60000 "
    "-XX:Tier4BackEdgeThreshold=160000"
)
# A thread of Spark's driver that ends for want of memory leaves its query waiting for ever: better the whole JVM ends,
# as Spark has it for executors on YARN. The join says so and starts anew where the last batch was committed.
_END_WITHOUT_MEMORY = "-XX:+ExitOnOutOfMemoryError"
_JVM = {
    "jvm": f"-XX:+UseSerialGC -Xss16m {_END_WITHOUT_MEMORY} {_SECOND_TIER_LATER}",
    "python": f"-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xss16m {_END_WITHOUT_MEMORY}",
}
SPARK = Path(pyspark.__file__).parent
_MASTER = "local[2,4]"  # plain local[N] never retries a task
STREAMING = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    # what each batch wrote, most of a checkpoint's bytes: a third less than lz4 for the same time (ADR 58)
    "spark.sql.streaming.stateStore.compression.codec": "zstd",
    # a get before every put, for a figure in the progress report
    "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows": "false",
    "spark.sql.streaming.stateStore.rocksdb.blockCacheSizeMB": "256",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    # each look for new data asks Kafka for its offsets; the default of 10 ms burns a core while nothing happens
    "spark.sql.streaming.pollingDelay": "50ms",
    "spark.sql.streaming.minBatchesToRetain": "20",
    "spark.sql.adaptive.enabled": "false",
    # a second file of checksums beside every file of the checkpoint
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
}


# Without Hadoop's native library, Spark's default way to write a small file on a local disk forks some 30 processes a
# batch (readlink for each rename, chmod for each file and its checksums), a quarter of a small batch's time. This way
# forks chmod once per file, and with the kernel's `LocalFiles` not even that.
_LOCAL_CHECKPOINT = {
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
}


def spark_log(scratch: Path) -> Path:
    """Where Spark's own log goes, unless spark-submit started the JVM."""
    return scratch / "spark.log"


def open_session(
    name: str,
    *,
    partitions: int,
    scratch: Path,
    engine: Engine,
    jvm: str = "",
    settings: Mapping[str, str] | None = None,
) -> SparkSession:
    """A session that can read Kafka and run an engine; `partitions` of every shuffle, `scratch` for Spark's files that
    need not last, `jvm` more options for a JVM that it starts, `settings` more of Spark's.

    UsageError when the connector's jars or Java are missing.
    """
    jars = jars_of(engine)
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    if not submitted:
        prepare_environment(SPARK)
    empty_folder(scratch)
    given = _submitted_settings() if submitted else {}
    builder = SparkSession.builder.appName(name)
    memory = {} if submitted else {"spark.driver.memory": "1g"}
    for key, value in {**STREAMING, **memory, **(settings or {})}.items():
        builder = builder.config(key, given.get(key, value))
    if not submitted:
        builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
    builder = builder.config("spark.sql.shuffle.partitions", partitions)
    builder = builder.config("spark.local.dir", str(scratch))
    master = given.get("spark.master", _MASTER)
    if master == "local" or (master.startswith("local[") and "," not in master):
        master = _MASTER
    builder = builder.master(master)
    local = is_local(master)
    for key, value in _LOCAL_CHECKPOINT.items() if local else ():
        builder = builder.config(key, value)
    if submitted:
        with ctrl_c_kept():
            session = builder.getOrCreate()
        for jar in jars:
            session.sql(f"ADD JAR '{jar}'")
    else:
        if local:
            # Hadoop makes its file systems before Spark has added any jar, and only this path's classes are archived
            builder = builder.config("spark.driver.extraClassPath", os.pathsep.join(map(str, jars_of("jvm"))))
            builder = builder.config("spark.hadoop.fs.file.impl", "tailorbird.kernel.LocalFiles")
        else:
            builder = builder.config("spark.jars", ",".join(map(str, jars)))
        if local and engine == "python":
            builder = builder.config("spark.python.daemon.module", "joins.engine.workers.proc_worker")
        archive = class_archive()
        shared = f"-XX:SharedArchiveFile={archive}" if local and archive.exists() else ""
        options = f"{_JVM[engine]} {shared} {jvm}"
        builder = builder.config("spark.driver.extraJavaOptions", f'{options} "-Djava.io.tmpdir={scratch}"')
        with apart(spark_log(scratch)), ctrl_c_kept():
            session = builder.getOrCreate()
        if local:
            session.sparkContext.pythonExec = str(worker_python(scratch))
    if local:
        _write_no_checksums(session)
    return session


def _submitted_settings() -> dict[str, str]:
    """What spark-submit was told. It stands in its JVM alone: before the gateway is open, SparkConf is empty."""
    SparkContext._ensure_initialized()
    return dict(SparkConf().getAll())


def is_local(master: str) -> bool:
    """Whether executors are threads of the driver, which share its files and classes."""
    return master == "local" or master.startswith("local[")


def jvm_options(engine: Engine) -> str:
    """How the driver's JVM is started."""
    return _JVM[engine]


def close_session(session: SparkSession, settling: float = 30.0) -> None:
    """Stop a session, and first the state stores of a local one; nothing where its JVM has ended.

    A JVM that ends while RocksDB compacts may wait for ever: it takes down RocksDB's threads only once it no longer
    lets any thread in, and one of them that wants to log something stands at the door. One that we started and that is
    not done after `settling` seconds is killed: behind a query whose workers did not start, Spark stops for minutes,
    and a join begins anew behind a kill as behind any other end.
    """
    if jvm_exit_code(session) is not None:
        return
    with ThreadPoolExecutor(1, "spark's end") as thread:
        stopping = thread.submit(_stop, session)
        process = getattr(session.sparkContext._gateway, "proc", None)
        if process is None or wait([stopping], settling).done:
            stopping.result()
            return
        process.kill()  # whatever it is asked now fails
        process.wait()
        if process.stdin is not None:
            process.stdin.close()
    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = SparkSession._activeSession = None


def _stop(session: SparkSession) -> None:
    context = session.sparkContext
    if is_local(str(context.master)):
        assert context._jvm is not None, "an open session has its JVM"
        stores = getattr(context._jvm, "org.apache.spark.sql.execution.streaming.state.StateStore$")
        getattr(stores, "MODULE$").stop()
    session.stop()


def jvm_exit_code(session: SparkSession, settling: float = 0.0) -> int | None:
    """How a session's JVM ended, negative for a signal; None while it runs, and where spark-submit has started it.

    `settling`: so many seconds may pass until it has, since its connections close first.
    """
    process = getattr(session.sparkContext._gateway, "proc", None)
    return None if process is None else exit_code(process, settling)


def _write_no_checksums(session: SparkSession) -> None:
    # a property of Hadoop's one object for local files, which no setting reaches
    context = session.sparkContext
    assert context._jvm is not None, "an open session has its JVM"
    context._jvm.org.apache.hadoop.fs.FileSystem.getLocal(context._jsc.hadoopConfiguration()).setWriteChecksum(False)


def class_archive() -> Path:
    """The classes of a local session's JVM, archived or not: see `joins.engine.spark_archive`."""
    return archive_of(jars_of("jvm"), SPARK)


def jars_of(engine: Engine) -> list[Path]:
    """What Spark needs beside itself: Kafka's connector, and the kernel."""
    return [*_connector(), *([build()] if engine == "jvm" else [])]


def _connector() -> list[Path]:
    folder = spark_connector_folder(os.environ)
    jars = sorted(folder.glob("*.jar"))
    if not jars:
        raise UsageError(f"{folder}: Spark's Kafka connector is not there", "run `tailorbird stack fetch`")
    return jars
