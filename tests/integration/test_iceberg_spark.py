"""Spark reads a joined table in Iceberg from its data files."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cdc.stored.lakehouse import IcebergCatalog
from tests.joins.test_iceberg_table import OTHER, Driver, shown

pytestmark = [pytest.mark.matrix, pytest.mark.timeout(300)]


def test_spark_reads_the_files_of_the_current_snapshot(tmp_path: Path) -> None:
    """The data files contain the table's rows and nothing else: no deleted row, and each changed row once."""
    where = IcebergCatalog(
        uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"{tmp_path}/warehouse", namespace="shop", interval=0, retain=3600
    )
    driver = Driver(where, "wide", OTHER, "first")
    driver.write(0, (1, ["1.50", "2.00"], 7), (2, [], None), (3, None, 9), complete=True)
    driver.write(1, (3,), (1, ["9.99"], 8))
    orders = shown(where)
    files = [task.file.file_path for task in orders.scan().plan_files()]
    spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
    try:
        frame = spark.read.parquet(*files).select([field.name for field in orders.schema().fields])
        rows = [(row.id, [str(one) for one in row.amount], row.note) for row in frame.orderBy("id").collect()]
    finally:
        spark.stop()
    assert rows == [(1, ["9.99"], 8), (2, [], None)]
