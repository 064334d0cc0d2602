"""Run one Spark application for one or many tables: one JVM with bounded memory, and a session per table.

pyspark is imported when the first query starts, because the import takes a second."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from joins.engine.proc_gateway import MEMORY, MEMORY_TOGETHER, StartedJvm, spark_log, start_jvm

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Application:
    """A Spark application that starts with its first session. Threads may share it.

    `together`: there are several tables. `session` raises UsageError if
    Java or the connector's jars are missing."""

    def __init__(self, name: str, *, scratch: Path, together: bool) -> None:
        self._name, self._scratch, self._together = name, scratch, together
        self._lock = threading.Lock()
        self._root: SparkSession | None = None
        self._started: StartedJvm | None = None

    def start(self) -> None:
        """Start the JVM, while this process still imports and reads what its first session needs.

        Does nothing if it was started already, here or by spark-submit. Raises UsageError if Java or the connector's
        jars are missing."""
        with self._lock:
            if self._started is None and "PYSPARK_GATEWAY_PORT" not in os.environ:
                self._started = start_jvm(self._scratch, memory=MEMORY_TOGETHER if self._together else MEMORY)

    def session(self, table: str, partitions: int) -> SparkSession:
        """Return a session for the query of the calling thread. Each shuffle has `partitions` partitions."""
        with self._lock:
            if self._root is None:
                from joins.engine.spark_session import TOGETHER, open_session

                more = TOGETHER if self._together else {}
                self._root = open_session(
                    self._name, partitions=partitions, scratch=self._scratch, settings=more, started=self._started
                )
            root = self._root
        if not self._together:
            return root
        session = root.newSession()
        session.conf.set("spark.sql.shuffle.partitions", partitions)
        # a property of this thread's counterpart in the JVM, and so of the query that it starts
        session.sparkContext.setLocalProperty("spark.scheduler.pool", table)
        return session

    def exit_code(self, settling: float = 0.0) -> int | None:
        """Return the exit code of the JVM, waiting up to `settling` seconds. None if it runs or was never started."""
        if self._root is None:
            return None
        from joins.engine.spark_session import jvm_exit_code

        return jvm_exit_code(self._root, settling)

    @property
    def log(self) -> Path:
        """Return the path of Spark's own log."""
        return spark_log(self._scratch)

    def close(self) -> None:
        """Stop the application, and with it every query."""
        if self._root is not None:
            from joins.engine.spark_session import close_session

            close_session(self._root)

    def end_unused(self) -> None:
        """End a JVM that was started and for which no session was opened."""
        if self._root is None and self._started is not None:
            self._started.end()
