"""One Spark application, of one table's query or of many: a session each, one JVM, one bounded memory.

pyspark is imported when the first query begins: it costs a second, which a mistake found before it should not.
"""

from __future__ import annotations

import threading
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

from cdc.topology.topology import Engine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# What many queries share: cores by turns, so that a table that rebuilds does not hold up the others, and one memory for
# all the RocksDBs, which else take what each would take alone.
_TOGETHER = {
    "spark.scheduler.mode": "FAIR",
    "spark.sql.streaming.stateStore.rocksdb.boundedMemoryUsage": "true",
    "spark.sql.streaming.stateStore.rocksdb.maxMemoryUsageMB": "512",
    "spark.driver.memory": "2g",
}


class Application:
    """Starts with the first session that is asked for; threads may share it.

    `engines` are those of all its tables, `together`: there are many. UsageError from `session` where Java or the
    connector's jars are missing.
    """

    def __init__(self, name: str, *, engines: Collection[Engine], scratch: Path, together: bool) -> None:
        self._name, self._scratch, self._together = name, scratch, together
        self._engine: Engine = "jvm" if "jvm" in engines else "python"
        self._lock = threading.Lock()
        self._root: SparkSession | None = None

    def session(self, table: str, partitions: int) -> SparkSession:
        """A session for the calling thread's query, with so many partitions of every shuffle."""
        with self._lock:
            if self._root is None:
                from joins.engine.spark_session import open_session

                more = _TOGETHER if self._together else {}
                self._root = open_session(
                    self._name, partitions=partitions, scratch=self._scratch, engine=self._engine, settings=more
                )
            root = self._root
        if not self._together:
            return root
        session = root.newSession()
        session.conf.set("spark.sql.shuffle.partitions", partitions)
        # a property of this thread's thread in the JVM, and so of the query that it starts
        session.sparkContext.setLocalProperty("spark.scheduler.pool", table)
        return session

    def exit_code(self, settling: float = 0.0) -> int | None:
        """How its JVM ended, as `jvm_exit_code` tells; None where none was started."""
        if self._root is None:
            return None
        from joins.engine.spark_session import jvm_exit_code

        return jvm_exit_code(self._root, settling)

    @property
    def log(self) -> Path:
        """Where Spark's own log goes."""
        from joins.engine.spark_session import spark_log

        return spark_log(self._scratch)

    def close(self) -> None:
        """End it, and with it every query."""
        from joins.engine.spark_session import close_session

        if self._root is not None:
            close_session(self._root)
