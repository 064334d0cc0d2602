"""A pipeline whose processes are replaced, one at a time, by those of another version."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping

from tailorbird.operate.pipeline.proc_pipeline import Pipeline
from tailorbird.operate.status.http_metrics import read_health, read_metrics
from tests.support.waiting import wait_for


class MixedPipeline:
    """The processes of a topology; each runs the version that `replace` named last."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        self.names = [part.name for part in pipeline.parts]

    def start(self, environ: Mapping[str, str]) -> None:
        """Start all processes of one version."""
        self._choose(environ)
        self.pipeline.start()

    def replace(self, name: str, environ: Mapping[str, str]) -> None:
        """Stop a process as a supervisor does, let another version of it start, and wait until it makes progress."""
        self._choose(environ)
        before = self.pipeline.pid(name)
        os.kill(before, signal.SIGTERM)

        def replaced() -> bool:
            self.pipeline.must_run()
            return self.pipeline.alive(name) and self.pipeline.pid(name) != before and self.healthy(name)

        wait_for(replaced, f"{name} does not continue in the other version", 300)
        time.sleep(2.0)  # the versions work together for a while
        self.pipeline.must_run()

    def healthy(self, name: str) -> bool:
        """Return whether all that a process serves is healthy."""
        found = [read_health(port) for port in self.pipeline.part(name).serves.values()]
        return all(one is not None and one["status"] == "moving" for one in found)

    def rows_read_again(self) -> int:
        """Count the rows that captures have read by SELECT since each started last."""
        ports = [port for part in self.pipeline.parts if part.stage == "capture" for port in part.serves.values()]
        found = [read_metrics(port) for port in ports]
        assert all("debezium_metrics_SnapshotCompleted" in one for one in found)
        return int(sum(one.get("debezium_metrics_RowsScanned", 0.0) for one in found))  # no table: no such sample

    def _choose(self, environ: Mapping[str, str]) -> None:
        self.pipeline.environ["PYTHONPATH"] = environ.get("PYTHONPATH", "")
