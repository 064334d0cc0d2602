"""Open the Spark session of a join, with its settings, Kafka's connector and Java.

It works with `python -m joins`, which starts the JVM itself, and with spark-submit, whose JVM runs already."""

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
from joins.engine.file_classes import archive_of
from joins.engine.file_worker_python import worker_python
from joins.engine.proc_jvm import apart, ctrl_c_kept, empty_folder, exit_code, prepare_environment
from joins.kernel.proc_kernel import build

# Spark's search for an interrupt in an error's text recurses at every character, and a query whose thread overflows its
# stack there never ends. Before compilation 4 MB hold 5,000 characters and 16 MB 21,000; unused stack costs no memory.
# The kernel needs the second compiler tier, but only for really hot code: otherwise compilation delays the start on a
# small machine.
_SECOND_TIER_LATER = (
    "-XX:Tier4InvocationThreshold=20000 -XX:Tier4MinInvocationThreshold=2400 -XX:Tier4CompileThreshold=60000 "
    "-XX:Tier4BackEdgeThreshold=160000"
)
# If a thread of Spark's driver dies from lack of memory, its query waits forever. So the whole JVM exits, as Spark
# configures for executors on YARN. The join reports it and restarts after the last committed batch.
_END_WITHOUT_MEMORY = "-XX:+ExitOnOutOfMemoryError"
JVM_OPTIONS = f"-XX:+UseSerialGC -Xss16m {_END_WITHOUT_MEMORY} {_SECOND_TIER_LATER}"
SPARK = Path(pyspark.__file__).parent
_MASTER = "local[2,4]"  # plain local[N] never retries a task
STREAMING = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    # compresses each batch's files, most of a checkpoint's bytes: a third smaller than lz4 in the same time (ADR 58)
    "spark.sql.streaming.stateStore.compression.codec": "zstd",
    # avoids a get before every put, which would only serve a figure in the progress report
    "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows": "false",
    # One memory budget for all RocksDB instances of a query. Without it each has a cache of its own, which keeps blocks
    # of deleted files until it is full: a join of small tables grew by 16 MiB per minute, up to some GiB.
    "spark.sql.streaming.stateStore.rocksdb.boundedMemoryUsage": "true",
    "spark.sql.streaming.stateStore.rocksdb.maxMemoryUsageMB": "256",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    # each poll for new data asks Kafka for its offsets; the default of 10 ms keeps a core busy on an idle query
    "spark.sql.streaming.pollingDelay": "50ms",
    "spark.sql.streaming.minBatchesToRetain": "20",
    "spark.sql.adaptive.enabled": "false",
    # keeps a consumer of each partition open; with the default of 64, a batch over more partitions opens all of them
    "spark.kafka.consumer.cache.capacity": "4096",
    # avoids a second file with checksums for every file of the checkpoint
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
    # Spark keeps what its web pages would show of past batches, even without these pages. Its defaults, 1,000 of each
    # and 100,000 tasks, take more than 100 MB of the heap after some hundred batches.
    "spark.ui.retainedJobs": "20",
    "spark.ui.retainedStages": "20",
    "spark.ui.retainedTasks": "200",
    "spark.sql.ui.retainedExecutions": "5",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
}
# Settings for many queries: they share the cores fairly, so that a rebuild does not block other tables, and a larger
# memory budget.
TOGETHER = {
    "spark.scheduler.mode": "FAIR",
    "spark.sql.streaming.stateStore.rocksdb.maxMemoryUsageMB": "512",
    "spark.driver.memory": "2g",
}


# Settings for a session whose JVM is the only process of Spark.
_LOCAL = {
    # Without Hadoop's native library, Spark's default way to write a small file on a local disk forks some 30 processes
    # a batch (readlink for each rename, chmod for each file and its checksums), a quarter of a small batch's time. This
    # setting forks one chmod per file, and with the kernel's `LocalFiles` none.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    # A small batch spends a tenth of its CPU time on creating files, because ext4 searches for an inode that was not
    # deleted lately. So a shuffle has no temporary file per partition, and no file of checksums: its only reader is
    # this process.
    "spark.shuffle.sort.bypassMergeThreshold": "0",
    "spark.shuffle.checksum.enabled": "false",
    # what a stage needs does not leave this process
    "spark.broadcast.compress": "false",
    # the text of each plan, for web pages that are switched off
    "spark.sql.ui.explainMode": "simple",
}


def spark_log(scratch: Path) -> Path:
    """Return the path of Spark's log. With spark-submit it is not used."""
    return scratch / "spark.log"


def open_session(
    name: str,
    *,
    partitions: int,
    scratch: Path,
    jvm: str = "",
    settings: Mapping[str, str] | None = None,
) -> SparkSession:
    """Open a session that can read Kafka and run the kernel; UsageError if jars or Java are missing.

    `partitions` applies to every shuffle. `scratch` is for temporary files. `jvm` adds options for a JVM that it
    starts, `settings` adds Spark settings.
    """
    needed = jars()
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
    for key, value in _LOCAL.items() if local else ():
        builder = builder.config(key, given.get(key, value))
    if submitted:
        with ctrl_c_kept():
            session = builder.getOrCreate()
        for jar in needed:
            session.sql(f"ADD JAR '{jar}'")
    else:
        if local:
            # Hadoop creates its file systems before Spark adds any jar, and only this path's classes are archived
            builder = builder.config("spark.driver.extraClassPath", os.pathsep.join(map(str, needed)))
            builder = builder.config("spark.hadoop.fs.file.impl", "tailorbird.kernel.LocalFiles")
        else:
            builder = builder.config("spark.jars", ",".join(map(str, needed)))
        archive = class_archive()
        shared = f"-XX:SharedArchiveFile={archive}" if local and archive.exists() else ""
        options = f"{JVM_OPTIONS} {shared} {jvm}"
        builder = builder.config("spark.driver.extraJavaOptions", f'{options} "-Djava.io.tmpdir={scratch}"')
        with apart(spark_log(scratch)), ctrl_c_kept():
            session = builder.getOrCreate()
        if local:
            session.sparkContext.pythonExec = str(worker_python(scratch))
    if local:
        _write_no_checksums(session)
    if local and not submitted:  # a submitted session loads the kernel's classes later
        _forget_sources(session)
    return session


def _submitted_settings() -> dict[str, str]:
    """Return the settings that spark-submit was given. Until the gateway is open, only its JVM knows them."""
    SparkContext._ensure_initialized()
    return dict(SparkConf().getAll())


def is_local(master: str) -> bool:
    """Return whether executors are threads of the driver, and so share its files and classes."""
    return master == "local" or master.startswith("local[")


def close_session(session: SparkSession, settling: float = 30.0) -> None:
    """Stop a session: first the state stores of a local one, then Spark. Does nothing if its JVM has ended.

    A JVM that ends while RocksDB compacts may wait forever: RocksDB's threads may want to log, but the JVM no longer
    admits them. So a JVM that this process started is killed if it runs longer than `settling` seconds. A join
    resumes after a kill as after any other end."""
    if jvm_exit_code(session) is not None:
        return
    with ThreadPoolExecutor(1, "spark's end") as thread:
        stopping = thread.submit(_stop, session)
        process = getattr(session.sparkContext._gateway, "proc", None)
        if process is None or wait([stopping], settling).done:
            stopping.result()
            return
        process.kill()  # any further request to it fails
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
    """Return the exit code of a session's JVM, negative for a signal. None while it runs, or if spark-submit started
    it.

    Waits up to `settling` seconds, because the JVM's connections close before it ends."""
    process = getattr(session.sparkContext._gateway, "proc", None)
    return None if process is None else exit_code(process, settling)


def _write_no_checksums(session: SparkSession) -> None:
    # a property of Hadoop's single object for local files, which no setting reaches
    context = session.sparkContext
    assert context._jvm is not None, "an open session has its JVM"
    context._jvm.org.apache.hadoop.fs.FileSystem.getLocal(context._jsc.hadoopConfiguration()).setWriteChecksum(False)


def _forget_sources(session: SparkSession) -> None:
    # a third of the memory that a small batch allocates outside the heap: see the kernel's class
    context = session.sparkContext
    assert context._jvm is not None, "an open session has its JVM"
    context._jvm.tailorbird.kernel.PlainConfiguration.forgetSources(context._jsc.hadoopConfiguration())


def class_archive() -> Path:
    """Return the path of the class archive of a local session's JVM: see `joins.engine.spark_archive`."""
    return archive_of(jars(), SPARK)


def jars() -> list[Path]:
    """Return the jars that Spark needs in addition to its own: Kafka's connector, and the kernel."""
    return [*_connector(), build()]


def _connector() -> list[Path]:
    folder = spark_connector_folder(os.environ)
    found = sorted(folder.glob("*.jar"))
    if not found:
        raise UsageError(f"{folder}: Spark's Kafka connector is missing", "run `tailorbird stack fetch`")
    return found
