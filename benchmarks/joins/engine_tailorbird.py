"""Run one shape through Tailorbird: Debezium JSON files → router, joins, assembly → discarded; print a JSON object.

It is a separate process, so that each run begins with a new JVM. The files of a table's two partitions form a batch, as
`max_changes_per_batch` would split a topic. The time is from the query's start to its end.
"""

from __future__ import annotations

import json
import os
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from benchmarks.joins.aggregates import aggregate_shapes
from benchmarks.joins.report import Reading
from benchmarks.joins.state_parts import state_parts
from benchmarks.joins.workload import Shape, shapes
from cdc.model.schema import Column, TableId, TableSchema
from cdc.topology.reader import read_topology
from joins.engine.file_checkpoint import clock_of
from joins.engine.spark_kernel import kernel_flow
from joins.engine.spark_session import close_session, open_session
from joins.kernel.program import program_of
from joins.query.plan import Plan
from joins.select.compiler import compile_plan

_TYPES = {"string": "varchar(200)", "bigint": "bigint", "timestamp_ltz(3)": "datetime(3)"}


def plan_of(shape: Shape) -> Plan:
    """Return the plan of a shape's query, compiled like a query of a topology."""
    names = ", ".join(table.name for table in shape.logged)
    text = (
        "name: bench\nsources:\n  bench: {type: mysql, hostname: h, username: u, password: p, database: bench, "
        f"tables: [{names}], server_id: 1}}\ntables:\n"
        f"  wide:\n    query: {json.dumps(shape.query)}\n    row_key: [{', '.join(shape.row_key)}]\n"
    )
    topology = read_topology(text, file="bench.yml", environ={})
    schemas = {}
    for table in shape.logged:
        table_id = TableId(source="bench", database="bench", table=table.name)
        columns = [Column(name="id", column_type="bigint", nullable=False)]
        columns += [Column(name=name, column_type="bigint", nullable=True) for name in table.references]
        columns += [Column(name=n, column_type=_TYPES[t], nullable=True) for n, t in table.columns.items()]
        schemas[table_id] = TableSchema(table_id=table_id, version=1, columns=tuple(columns), primary_key=("id",))
    return compile_plan(topology, topology.tables["wide"], schemas)


def run(shape: Shape, data: Path, scratch: Path) -> Reading:
    """Run a shape; return the reading with its batches, state and changes."""
    plan = plan_of(shape)
    # the log is young, so it is not compacted; `min_compaction_lag` guarantees this for topics
    settled = {source.topic: {0: 0} for source in plan.sources}
    spark = open_session("bench", partitions=2, scratch=scratch / "spark")
    for key, value in {"files.openCostInBytes": 1 << 30, "files.maxPartitionBytes": 1 << 30}.items():
        spark.conf.set(f"spark.sql.{key}", value)  # a file is a partition: lines keep their order
    spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", 5000)

    def read(topics: tuple[str, ...]) -> DataFrame:
        found: DataFrame | None = None
        for topic in topics:
            lines = _log(spark, topic, data / topic.rpartition(".")[2])
            found = lines if found is None else found.unionAll(lines)
        assert found is not None, "a level reads a topic"
        return found

    checkpoint = scratch / "checkpoint"
    rows = kernel_flow(read, program_of(plan, settled, checkpoint=str(checkpoint)), plan)
    writer = rows.writeStream.outputMode("append").option("checkpointLocation", str(checkpoint))
    counted: dict[int, int] = {}
    started, used = time.monotonic(), _cpu_seconds(spark)
    query = (
        writer.foreachBatch(partial(_nowhere, counted, checkpoint if plan.by_clock else None))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    seconds, used = time.monotonic() - started, _cpu_seconds(spark) - used
    progress: list[Any] = [p for p in query.recentProgress if p.numInputRows]
    state = state_parts(checkpoint / "state")
    close_session(spark)
    return Reading(
        engine="tailorbird",
        changes=sum(p.numInputRows for p in progress),
        seconds=seconds,
        state_bytes=state.restart + state.older,
        restart_bytes=state.restart,
        cpu_seconds=used,
        batches=tuple((p.numInputRows, p.durationMs["triggerExecution"] / 1000, counted[p.batchId]) for p in progress),
    )


def _cpu_seconds(spark: SparkSession) -> float:
    """Return the CPU seconds of the JVM; 0 if there is no /proc."""
    jvm: Any = spark.sparkContext._jvm
    reported = Path(f"/proc/{jvm.java.lang.ProcessHandle.current().pid()}/stat")
    if not reported.exists():
        return 0.0
    fields = reported.read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _log(spark: SparkSession, topic: str, folder: Path) -> DataFrame:
    # the envelope's `pos` is the line's place in the log, which files do not contain; in Kafka it is the offset
    place = F.expr("cast(substring_index(substring_index(value, '\"pos\":', -1), ',', 1) as bigint)")
    return (
        spark.readStream.option("maxFilesPerTrigger", 2)
        .text(str(folder))
        .select(
            F.lit(topic).alias("topic"),
            F.lit(0).alias("partition"),
            place.alias("offset"),
            F.lit(None).cast("binary").alias("key"),
            F.col("value").cast("binary").alias("value"),
        )
    )


def _nowhere(counted: dict[int, int], checkpoint: Path | None, rows: DataFrame, batch: int) -> None:
    if checkpoint is not None:
        clock_of(checkpoint, batch)
    seen = Observation()
    rows.observe(seen, F.count(F.lit(1)).alias("rows")).write.format("noop").mode("append").save()
    counted[batch] = seen.get["rows"]


if __name__ == "__main__":
    name, scale, data, scratch = sys.argv[1:5]
    found = shapes(float(scale)) | aggregate_shapes(float(scale))
    print(run(next(s for n, s in found.items() if n == name), Path(data), Path(scratch)).to_json())
