"""Read the size of a local session's RocksDB state stores, for metrics.

Spark counts rows only with a read before each write, which takes a tenth of a join's time. RocksDB has an estimate,
but Spark does not report it. So this module reads the stores through the JVM. On a cluster the stores are in the
executors, and only Spark's report is available."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

from joins.engine.progress import Operator

_STORES = "org.apache.spark.sql.execution.streaming.state.StateStore$"
_ROCKS = "org.apache.spark.sql.execution.streaming.state.RocksDB"


def stores(session: SparkSession) -> tuple[Operator, ...]:
    """Return the rows (estimated by RocksDB) and bytes of each stateful operator, by its number. Empty on a cluster.

    Call it only between batches: a store that is being loaded has no database yet."""
    jvm: Any = session.sparkContext._jvm
    found: dict[int, tuple[int, int]] = {}
    for provider in _providers(jvm):
        database = _field(jvm, _ROCKS, "db", provider.rocksDB())
        if database is None:
            continue
        operator = provider.stateStoreId().operatorId()
        rows, size = found.get(operator, (0, 0))
        rows += database.getLongProperty("rocksdb.estimate-num-keys")
        size += database.getLongProperty("rocksdb.total-sst-files-size")
        size += database.getLongProperty("rocksdb.cur-size-all-mem-tables")
        found[operator] = (rows, size)
    return tuple(
        Operator(name=f"operator {number}", rows=rows, bytes=size) for number, (rows, size) in sorted(found.items())
    )


def _providers(jvm: Any) -> list[Any]:
    module = jvm.java.lang.Class.forName(_STORES).getField("MODULE$").get(None)
    loaded = _field(jvm, _STORES, "loadedProviders", module)
    return list(jvm.scala.jdk.javaapi.CollectionConverters.asJava(loaded.values().toList()))


def _field(jvm: Any, of: str, name: str, instance: Any) -> Any:
    field = jvm.java.lang.Class.forName(of).getDeclaredField(name)
    field.setAccessible(True)
    return field.get(instance)
