"""Read the state of a join, running or not, from its checkpoint through Spark's state data source."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from joins.inspection.held import Entry

_SOURCE = "statestore"


def entries(spark: SparkSession, checkpoint: Path, keys: Collection[bytes] | None) -> Iterator[Entry]:
    """Yield the entries of the given keys (None: of all), from every operator, as of the last committed batch."""
    session: Any = spark
    session._jsparkSession.streams()  # loads what the state data source needs and otherwise only a query would load
    metadata = spark.read.format("state-metadata").load(str(checkpoint))
    for operator in metadata.select("operatorId", "operatorProperties").distinct().collect():
        for variable in json.loads(operator.operatorProperties or "{}").get("stateVariables", []):
            name = variable["stateName"]
            if name.startswith("$"):  # Spark's own, such as timers
                continue
            found = _read(spark, checkpoint, operator.operatorId, name)
            picked = _columns(found)
            if keys is not None:
                picked = picked.where(F.col("k").isin([bytearray(key) for key in keys]))
            for row in picked.collect():
                yield name, bytes(row.k), None if row.r is None else bytes(row.r), bytes(row.p)


def _read(spark: SparkSession, checkpoint: Path, operator: int, variable: str) -> DataFrame:
    reader = spark.read.format(_SOURCE).option("operatorId", operator).option("stateVarName", variable)
    return reader.load(str(checkpoint))


def _columns(state: DataFrame) -> DataFrame:
    """Return a DataFrame of key, key within a map (or NULL) and value as binaries, for any kind of state variable."""
    is_map = "user_map_key" in state.columns
    value = "user_map_value" if is_map else "value"
    inner = F.col("user_map_key.value") if is_map else F.lit(None).cast("binary")
    return state.select(F.col("key.value").alias("k"), inner.alias("r"), F.col(f"{value}.value").alias("p"))
