"""A standalone Spark cluster of separate processes: a master and its workers, as `sbin/start-*.sh` start them."""

from __future__ import annotations

import json
import os
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from joins.engine.proc_jvm import find_java
from joins.engine.spark_session import SPARK
from tests.support.ports import free_port
from tests.support.waiting import wait_for


class SparkCluster:
    """A cluster with one core and 1 GiB per worker. `applications` come from the master's own page."""

    def __init__(self, folder: Path) -> None:
        find_java()
        self._folder, port, self._page = folder, free_port(), free_port()
        self.url = f"spark://127.0.0.1:{port}"
        self.processes: list[subprocess.Popen[bytes]] = []
        self._start("master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", str(self._page))

    def work(self, workers: int) -> None:
        """Start more workers, and wait until the master lists them."""
        self._counted(0)
        before = self._alive()
        for _ in range(workers):
            own = self._folder / f"work-{len(self.processes)}"
            words = ("--host", "127.0.0.1", "--webui-port", str(free_port()), "--work-dir", str(own))
            self._start("worker.Worker", "--cores", "1", "--memory", "1g", *words, self.url)
        self._counted(before + workers)

    def applications(self) -> list[dict[str, Any]]:
        """Return the running applications, with `name` and the `cores` of their executors."""
        found: list[dict[str, Any]] = self._reported()["activeapps"]
        return found

    def kill_worker(self) -> None:
        """Send SIGKILL to the last worker; its executor ends by itself."""
        worker = self.processes.pop()
        worker.kill()
        worker.wait(30)

    def close(self) -> None:
        """Stop all processes."""
        for process in reversed(self.processes):
            process.kill()
            process.wait(30)

    def _start(self, role: str, *words: str) -> None:
        command = [str(SPARK / "bin" / "spark-class"), f"org.apache.spark.deploy.{role}", *words]
        environ = {**os.environ, "SPARK_HOME": str(SPARK), "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_DAEMON_MEMORY": "256m"}
        environ["SPARK_LOCAL_DIRS"] = str(self._folder / "local")
        with (self._folder / f"{role}-{len(self.processes)}.log").open("wb") as log:
            self.processes.append(subprocess.Popen(command, env=environ, stdout=log, stderr=log))

    def _reported(self) -> dict[str, Any]:
        with urllib.request.urlopen(f"http://127.0.0.1:{self._page}/json/", timeout=10) as answer:
            reported: dict[str, Any] = json.load(answer)
            return reported

    def _alive(self) -> int:
        return int(self._reported()["aliveworkers"])

    def _counted(self, workers: int) -> None:
        def answers() -> bool:
            try:
                return self._alive() >= workers
            except (OSError, ValueError):  # before its JSON is ready, the master serves a page of HTML
                return False

        wait_for(answers, "the Spark cluster is not there", 120)


@contextmanager
def spark_cluster(folder: Path, workers: int) -> Iterator[SparkCluster]:
    """Run a cluster while the block runs."""
    folder.mkdir(parents=True, exist_ok=True)
    cluster = SparkCluster(folder)
    try:
        cluster.work(workers)
        yield cluster
    finally:
        cluster.close()
