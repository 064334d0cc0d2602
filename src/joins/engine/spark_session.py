"""Open the Spark session of a join, with its settings, Kafka's connector and Java.

It works with `python -m joins`, which starts the JVM itself, and with spark-submit, whose JVM runs already."""

from __future__ import annotations

import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import pyspark
from pyspark import SparkContext
from pyspark.conf import SparkConf
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from joins.engine.file_sockets import unix_sockets
from joins.engine.file_worker_python import worker_python
from joins.engine.proc_gateway import MEMORY, MEMORY_TOGETHER, StartedJvm, answer, jars, spark_log, start_jvm
from joins.engine.proc_jvm import ctrl_c_kept, empty_folder, exit_code

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
    "spark.driver.memory": MEMORY_TOGETHER,
}


_sockets: dict[str, str] = {}  # settings of this process's JVM, which keeps the first session's
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


def open_session(
    name: str,
    *,
    partitions: int,
    scratch: Path,
    jvm: str = "",
    settings: Mapping[str, str] | None = None,
    started: StartedJvm | None = None,
) -> SparkSession:
    """Open a session that can read Kafka and run the kernel; UsageError if jars or Java are missing.

    `partitions` applies to every shuffle. `scratch` is for temporary files. `jvm` adds options for a JVM that it
    starts, `settings` adds Spark settings. `started` is the result of `start_jvm` with the same `scratch`, and is only
    used if this process has no gateway yet.
    """
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    if submitted:
        return _open_submitted(name, partitions, scratch, settings or {})
    chosen = {**STREAMING, "spark.driver.memory": MEMORY, **(settings or {})}
    if SparkContext._gateway is None:
        if started is None:
            started = start_jvm(scratch, memory=chosen["spark.driver.memory"], more=jvm)
        _connect(started, spark_log(scratch))
        _sockets.clear()
        _sockets.update(unix_sockets(scratch))
    else:
        empty_folder(scratch)
    more = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    more["spark.hadoop.fs.file.impl"] = "tailorbird.kernel.LocalFiles"
    more |= _sockets
    builder = _builder(name, partitions, scratch, {**chosen, **more, **_LOCAL}).master(_MASTER)
    with ctrl_c_kept():
        session = builder.getOrCreate()
    session.sparkContext.pythonExec = str(worker_python(scratch))
    _write_no_checksums(session)
    _forget_sources(session)  # not in a submitted session, which loads the kernel's classes later
    return session


def _connect(started: StartedJvm, log: Path) -> None:
    """Connect pyspark to a JVM when it is ready. Raises UsageError if it has ended, naming the file `log`."""
    port, secret = answer(started, log)
    # pyspark connects to a running JVM if these variables exist
    os.environ.update(PYSPARK_GATEWAY_PORT=str(port), PYSPARK_GATEWAY_SECRET=secret)
    try:
        gateway: Any = launch_gateway()  # type: ignore[no-untyped-call]  # pyspark does not annotate it
    finally:
        del os.environ["PYSPARK_GATEWAY_PORT"], os.environ["PYSPARK_GATEWAY_SECRET"]
    gateway.proc = started.process
    SparkContext._ensure_initialized(gateway=gateway)


def _open_submitted(name: str, partitions: int, scratch: Path, settings: Mapping[str, str]) -> SparkSession:
    """Open a session in the JVM that spark-submit started. Its settings take precedence."""
    needed = jars()
    empty_folder(scratch)
    given = _submitted_settings()
    master = given.get("spark.master", _MASTER)
    if master == "local" or (master.startswith("local[") and "," not in master):
        master = _MASTER
    local = is_local(master)
    wanted = {**STREAMING, **settings, **(_LOCAL if local else {})}
    chosen = {key: given.get(key, value) for key, value in wanted.items()}
    builder = _builder(name, partitions, scratch, chosen).master(master)
    with ctrl_c_kept():
        session = builder.getOrCreate()
    for jar in needed:
        session.sql(f"ADD JAR '{jar}'")
    if local:
        _write_no_checksums(session)
    return session


def _builder(name: str, partitions: int, scratch: Path, settings: Mapping[str, str]) -> SparkSession.Builder:
    builder = SparkSession.builder.appName(name)
    for key, value in settings.items():
        builder = builder.config(key, value)
    builder = builder.config("spark.sql.shuffle.partitions", partitions)
    return builder.config("spark.local.dir", str(scratch))


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
