"""Create the class data archive (CDS) with which a join's JVM starts in half the time.

`make setup` runs it (`python -m joins.engine.spark_archive`). A session with a small join loads the classes that
joins need, and its JVM writes them to the archive at its end. Later sessions use the archive if it fits their JVM.
Source: JEP 350, Dynamic CDS Archives."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from cdc.model.naming import change_topic
from cdc.model.schema import Column, TableId, TableSchema
from cdc.topology.reader import read_topology
from joins.engine.file_classes import created_archive, forget_older
from joins.engine.proc_gateway import class_archive
from joins.engine.proc_jvm import empty_folder, prepare_environment
from joins.engine.spark_kernel import finished, kernel_flow
from joins.engine.spark_session import SPARK, close_session, open_session
from joins.kernel.program import program_of
from joins.select.compiler import compile_plan

_TOPOLOGY = """
name: archive
sources:
  shop: {type: mysql, hostname: h, username: u, password: p, database: shop, tables: [orders, products], server_id: 1}
tables:
  wide:
    query: >-
      SELECT o.id, upper(p.name) AS name FROM shop.orders o LEFT JOIN shop.products p ON p.id = o.product
      WHERE o.amount > 0
    row_key: [id]
"""
_COLUMNS = {
    "orders": {"id": "int", "product": "int", "amount": "decimal(9,2)"},
    "products": {"id": "int", "name": "varchar(20)"},
}
_RECORD = "topic STRING, partition INT, offset BIGINT, key BINARY, value BINARY"


def make_archive() -> Path:
    """Create the archive unless it exists, and return its path."""
    prepare_environment(SPARK)
    archive = class_archive()
    if archive.exists():
        return archive
    folder = archive.with_suffix(f".{os.getpid()}")
    empty_folder(folder)
    try:
        _archived(folder, folder / archive.name)
        (folder / archive.name).replace(archive)
    finally:
        empty_folder(folder)
        folder.rmdir()
    forget_older(archive)
    return archive


def _archived(folder: Path, file: Path) -> None:
    """Run a small join in a JVM that writes its loaded classes to `file`."""
    options = f"{created_archive(file)} -Xlog:disable"
    session = open_session("archive", partitions=2, scratch=folder / "spark", jvm=options)
    _join(session, folder)
    gateway: Any = session.sparkContext._gateway
    close_session(session)
    gateway.shutdown()
    gateway.proc.stdin.close()  # makes the JVM end normally, which writes the archive
    gateway.proc.wait(300)


def _join(session: SparkSession, folder: Path) -> None:
    """Run a join of two batches with state, from files."""
    topology = read_topology(_TOPOLOGY, file="archive.yml", environ={})
    schemas = {}
    for table, columns in _COLUMNS.items():
        table_id = TableId(source="shop", database="shop", table=table)
        reported = tuple(Column(name=name, column_type=type_) for name, type_ in columns.items())
        schemas[table_id] = TableSchema(table_id=table_id, version=1, columns=reported, primary_key=("id",))
    plan = compile_plan(topology, topology.tables["wide"], schemas)
    topics = {table_id.table: change_topic(topology.name, table_id) for table_id in schemas}
    for number in range(2):
        rows = [(topics["products"], 0, number, b'{"id":1}', _event("products", number, {"id": 1, "name": "a"}))]
        row = {"id": number, "product": 1, "amount": "1.50"}
        rows.append((topics["orders"], 0, number, b'{"id":%d}' % number, _event("orders", number, row)))
        session.createDataFrame(rows, _RECORD).coalesce(1).write.parquet(str(folder / "log" / str(number)))

    def read(wanted: tuple[str, ...]) -> DataFrame:
        stream = session.readStream.schema(_RECORD).option("recursiveFileLookup", True).option("maxFilesPerTrigger", 1)
        found = stream.parquet(str(folder / "log"))
        return found.where(found.topic.isin(*wanted))

    flow = finished(kernel_flow(read, program_of(plan, {}), plan), plan, plan.last)

    def collect(rows: DataFrame, batch: int) -> None:
        rows.collect()

    writer = flow.writeStream.option("checkpointLocation", str(folder / "checkpoint")).foreachBatch(collect)
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()


def _event(table: str, number: int, row: dict[str, object]) -> bytes:
    source = {"name": "shop", "db": "shop", "table": table, "sequence": str(number), "ts_ms": 0, "row": 0, "pos": 0}
    return json.dumps({"before": None, "after": row, "source": source, "op": "c", "ts_ms": 0}).encode()


if __name__ == "__main__":
    print(f"classes of a join's JVM: {make_archive()}", file=sys.stderr)
