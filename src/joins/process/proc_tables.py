"""Run the joins of several tables in one process: each has a thread and a query, all share one Spark application.

A failure affects one table only."""

from __future__ import annotations

import importlib
import threading
import time
from collections.abc import Mapping
from concurrent.futures import Executor, Future, ThreadPoolExecutor

import structlog

from cdc.model.errors import Fatal, TailorbirdError, UsageError
from cdc.openlineage.http_runs import lineage_run, sender_of_process
from cdc.otel.http_metrics import send_metrics
from cdc.process.file_private import full_disk_named
from cdc.process.file_running import announced
from cdc.process.file_topology import home
from cdc.process.restarts import Restarts
from cdc.topology.topology import Table, Topology
from joins.engine.http_metrics import JoinMetrics
from joins.process.lineage import declared_datasets
from joins.process.spark_application import Application
from joins.process.spark_join import TableJoin
from joins.select.parser import parse_query

_LOOK_EVERY = 0.2

log = structlog.get_logger()


def join_table(topology: Topology, table: Table, stop: threading.Event, *, spark: Application, port: int) -> None:
    """Run the join of a single table until `stop` is set. Raises TailorbirdError if it cannot start or must not
    continue."""
    metrics = JoinMetrics(table.name, port)
    send_metrics(topology.name, f"join {table.name}", metrics.registry)
    with announced(topology.name, f"join {table.name}", port):
        _run(topology, table, stop, spark=spark, metrics=metrics)


class TableJoins:
    """Runs the joins of many tables until `stop` is set. Each reports its own health, and why it ended.

    A join that fails is restarted (`cdc.process.restarts`). One that ends with a usage error stays down. The process
    ends when the JVM ends, or when no table can run any more."""

    def __init__(
        self, topology: Topology, ports: Mapping[str, int], stop: threading.Event, *, spark: Application
    ) -> None:
        self._topology, self._ports, self._stop, self._spark = topology, ports, stop, spark
        self._metrics = {name: JoinMetrics(name, port) for name, port in ports.items()}
        for name, one in self._metrics.items():
            send_metrics(topology.name, f"join {name}", one.registry)
        sender_of_process()  # wrong settings end the process, not only its tables
        self._runs: dict[str, Future[None]] = {}
        self._restarts = Restarts()

    def run(self) -> None:
        """Run until `stop` is set. Raises Fatal if the JVM ended, or the last table's error if no table can run."""
        # before any thread starts: threads that import pyspark concurrently may find it half initialized
        importlib.import_module("joins.engine.spark_query")
        importlib.import_module("joins.cluster.spark_executors")
        with ThreadPoolExecutor(len(self._ports), "join") as pool:
            try:
                for name in self._ports:
                    self._begin(name, pool)
                while not self._stop.wait(_LOOK_EVERY):
                    self._look(pool)
            finally:
                self._stop.set()  # ends the threads; the pool would wait for them forever

    def _begin(self, name: str, pool: Executor) -> None:
        self._restarts.began(name, time.monotonic())
        self._runs[name] = pool.submit(self._joined, name)

    def _joined(self, name: str) -> None:
        table = self._topology.tables[name]
        with announced(self._topology.name, f"join {name}", self._ports[name]):
            _run(self._topology, table, self._stop, spark=self._spark, metrics=self._metrics[name])

    def _look(self, pool: Executor) -> None:
        """Handle joins that ended, and restart those whose pause is over."""
        for name, run in self._runs.items():
            if run.done() and name not in self._restarts.down and not self._restarts.waits(name):
                self._judge(name, run.exception())
        for name in self._restarts.due(time.monotonic()):
            self._begin(name, pool)

    def _judge(self, name: str, error: BaseException | None) -> None:
        if self._stop.is_set():
            return
        if self._spark.exit_code() is not None or not isinstance(error, TailorbirdError):
            # no join in this process can continue, or the cause is unknown
            raise error or Fatal(f"the join of {name} ended without an error", "see its log, and report this")
        if error.exit_code == UsageError.exit_code:
            self._restarts.stays_down(name, str(error))
        elif self._restarts.ended(name, time.monotonic(), fatal=str(error) if isinstance(error, Fatal) else None):
            log.warning("join ended, will restart", table=name, said=str(error))
            return
        self._metrics[name].health.down(str(error))
        log.error("join stays down", table=name, said=str(error))
        if len(self._restarts.down) == len(self._ports):
            raise error


def _run(topology: Topology, table: Table, stop: threading.Event, *, spark: Application, metrics: JoinMetrics) -> None:
    parse_query(topology, table)
    with (
        lineage_run(
            topology.name, "JOIN", table.name, lambda: declared_datasets(topology, table), metrics.registry
        ) as lineage,
        full_disk_named(home()),
    ):
        join = TableJoin(topology, table, stop, spark=spark, metrics=metrics, lineage=lineage)
        try:
            join.run()
        finally:
            join.close()
