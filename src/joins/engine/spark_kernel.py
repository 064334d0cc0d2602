"""The plan's steps by the kernel in Java: DataFrames in and out, no row ever crosses to Python in between.

A level of the tree is one keyed join (all its hops) and, where the level has stars, one assembling step. Every level
reads the topics of its own tables, so that no fact travels through the steps of deeper levels.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from pyspark.sql import DataFrame

from joins.engine.spark_expressions import finish, predicate
from joins.kernel.program import Level
from joins.query.plan import Plan

Read = Callable[[tuple[str, ...]], DataFrame]


def kernel_flow(read: Read, levels: Sequence[Level]) -> DataFrame:
    """Rows (k binary, m binary) of the result: `ROW_PUT`, `ROW_GONE`, `REFUSED`, `FLOOR`.

    `read(topics)` gives the log's records of these topics: topic, partition, offset, key, value.
    """
    messages: DataFrame | None = None
    for level in levels:
        if level.topics:
            program = with_conditions(level)
            routed = _step("Router", read(level.topics), program)
            routed = _step("Latest", routed, program) if level.latest else routed
            messages = routed if messages is None else messages.unionAll(routed)
        assert messages is not None, "the lowest level reads the log"
        for step in level.steps:
            messages = _step(step, messages, level.program)
    assert messages is not None, "a plan has a level"
    return messages


def with_conditions(level: Level) -> str:
    """A level's program with its filters in Spark's SQL, over a row's values as texts: the array `image`."""
    conditions = [predicate(f, "image", node.types) for node in level.filters if (f := node.filter) is not None]
    return json.dumps({**json.loads(level.program), "conditions": conditions})


def finished(rows: DataFrame, plan: Plan) -> DataFrame:
    """Rows (k, m) of either engine with the plan's expressions and WHERE applied, rows (k, m) again."""
    if plan.last.finish.plain:
        return rows
    opened = rows.selectExpr(
        "k",
        "CAST(conv(hex(substring(m, 1, 1)), 16, 10) AS TINYINT) AS op",
        "CAST(conv(hex(substring(m, 2, 8)), 16, 10) AS BIGINT) AS v",
        "substring(m, 14) AS p",  # at the sink no message has an r
    )
    packed = "concat(unhex(lpad(hex(op), 2, '0')), unhex(lpad(hex(v), 16, '0')), X'00000000', p) AS m"
    return finish(opened, plan).selectExpr("k", packed)


def _step(name: str, rows: DataFrame, program: str) -> DataFrame:
    session: Any = rows.sparkSession
    jvm = session.sparkContext._jvm
    if not callable(getattr(jvm.tailorbird.kernel, name)):
        # a jar added to a running JVM is seen by threads that look through this loader; py4j has one thread per ours
        jvm.java.lang.Thread.currentThread().setContextClassLoader(
            session._jsparkSession.sharedState().jarClassLoader()
        )
    return DataFrame(getattr(jvm.tailorbird.kernel, name).apply(rows._jdf, program), session)
