"""Run one shape through Flink SQL: regular joins, RocksDB, mini-batch; print a JSON object.

It runs in a separate Python environment (apache-flink's pins conflict with pyspark's), so it imports nothing of
Tailorbird except the workloads.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path

from pyflink.common import Configuration
from pyflink.table import EnvironmentSettings, TableEnvironment

from benchmarks.joins.aggregates import aggregate_shapes
from benchmarks.joins.workload import Shape, shapes

SETTINGS = {
    "parallelism.default": "2",
    "taskmanager.numberOfTaskSlots": "2",
    "taskmanager.memory.process.size": "5g",
    "taskmanager.memory.managed.size": "1500m",
    "state.backend.type": "rocksdb",
    "execution.checkpointing.interval": "5s",
    "execution.checkpointing.incremental": "true",
    "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
    "table.exec.mini-batch.enabled": "true",
    "table.exec.mini-batch.allow-latency": "1 s",
    "table.exec.mini-batch.size": "5000",
    "table.optimizer.agg-phase-strategy": "TWO_PHASE",
    "rest.bind-address": "127.0.0.1",
    "rest.address": "127.0.0.1",
    "jobmanager.bind-host": "127.0.0.1",
    "taskmanager.bind-host": "127.0.0.1",
}
# With this setting Flink counts a repeated change once, as Tailorbird does, and keeps each row for that. By default it
# trusts its source and counts a repeated change twice.
GUARDED = {"table.exec.source.cdc-events-duplicate": "true"}
_SQL_TYPES = {"BIGINT": "bigint", "VARCHAR": "string", "STRING": "string", "CHAR": "string", "DOUBLE": "double"}


def run(shape: Shape, data: Path, scratch: Path, guarded: bool) -> dict[str, object]:
    """Run a shape; return the reading's fields."""
    configuration = Configuration()
    for key, value in {**SETTINGS, **(GUARDED if guarded else {})}.items():
        configuration.set_string(key, value)
    configuration.set_string("execution.checkpointing.dir", f"file://{scratch}/checkpoints")
    settings = EnvironmentSettings.new_instance().in_streaming_mode().with_configuration(configuration).build()
    tables = TableEnvironment.create(settings)
    for table in shape.logged:
        columns = [
            "id bigint",
            *(f"{n} bigint" for n in table.references),
            *(f"`{n}` {t}" for n, t in table.columns.items()),
        ]
        tables.execute_sql(
            f"create table {table.name} ({', '.join(columns)}, primary key (id) not enforced) with "
            f"('connector' = 'filesystem', 'path' = 'file://{data}/{table.name}', 'format' = 'debezium-json', "
            "'debezium-json.timestamp-format.standard' = 'ISO-8601')"
        )
    query = (shape.flink or shape.query).replace("bench.", "")
    schema = tables.sql_query(query).get_schema()
    types = [str(t).replace(" NOT NULL", "") for t in schema.get_field_data_types()]
    columns = [f"{n} {_SQL_TYPES[t]}" for n, t in zip(schema.get_field_names(), types, strict=True)]
    tables.execute_sql(f"create table nowhere ({', '.join(columns)}) with ('connector' = 'blackhole')")
    state = _Largest(scratch / "checkpoints")
    state.start()
    started = time.monotonic()
    tables.execute_sql(f"insert into nowhere {query}").wait()
    seconds = time.monotonic() - started
    return {"engine": "flink", "seconds": seconds, "state_bytes": state.stop()}


class _Largest(threading.Thread):
    """The maximum size of a folder, measured every second, because Flink deletes its checkpoints when a job ends."""

    def __init__(self, folder: Path) -> None:
        super().__init__(daemon=True)
        self._folder, self._ended, self._most = folder, threading.Event(), 0

    def run(self) -> None:
        while not self._ended.wait(1):
            self._most = max(
                self._most, sum(_size(Path(at, name)) for at, _, names in os.walk(self._folder) for name in names)
            )

    def stop(self) -> int:
        self._ended.set()
        self.join()
        return self._most


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except FileNotFoundError:  # a newer checkpoint has replaced this one
        return 0


if __name__ == "__main__":
    name, scale, data_folder, scratch_folder, *words = sys.argv[1:]
    found = shapes(float(scale)) | aggregate_shapes(float(scale))
    reading = run(
        next(s for n, s in found.items() if n == name), Path(data_folder), Path(scratch_folder), words == ["guarded"]
    )
    print("READING " + json.dumps(reading))
