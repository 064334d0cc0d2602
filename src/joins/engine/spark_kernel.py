"""Run the steps of a plan in the Java kernel. Rows stay in the JVM.

Each level of a tree is one keyed join for all its lookup joins and, if it has multi-way joins, one assembling step
(see `joins.kernel.program`). Every level reads the topics of its own tables, so changes pass no steps of deeper
levels. The rows of a fragment pass its expressions, then its grouping, and go to the fragment that reads them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import Any

from pyspark.sql import DataFrame

from joins.engine.spark_by_time import met_by_time
from joins.engine.spark_expressions import finish, predicate
from joins.kernel.program import FragmentProgram, Level
from joins.query.plan import Fragment, Plan

Read = Callable[[tuple[str, ...]], DataFrame]


def kernel_flow(read: Read, parts: Sequence[FragmentProgram], plan: Plan) -> DataFrame:
    """Return the whole rows of the last fragment, before its expressions, as rows (k binary, m binary).

    They are of the kinds `ROW_PUT`, `ROW_GONE`, `REFUSED` and `TRUNCATION_POINT`. `parts` is the plan's program.
    `read(topics)` returns the records of topics: topic, partition, offset, key, value."""
    done: list[DataFrame] = []  # per fragment, the messages for the fragment that reads it
    for fragment, part in zip(plan.fragments, parts, strict=True):
        rows = met_by_time(partial(_side, read), part, fragment) if part.sides else _whole_rows(read, part.levels, done)
        if fragment is plan.last:
            return rows
        rows = finished(rows, plan, fragment)
        for step in part.steps:
            rows = _step(step, rows, part.program)
        done.append(rows)
    raise AssertionError("a plan has a last fragment")


def _side(read: Read, side: Level) -> DataFrame:
    """Return the rows that one side of a join by time reads."""
    return _step("Timed", read(side.topics), with_conditions(side))


def _whole_rows(read: Read, levels: Sequence[Level], done: Sequence[DataFrame]) -> DataFrame:
    """Return the messages that leave the tree of a fragment, computed level by level."""
    messages: DataFrame | None = None
    for level in levels:
        come = [] if messages is None else [messages]
        program = with_conditions(level)
        if level.topics:
            routed = _step("Router", read(level.topics), program)
            come.append(_step("Latest", routed, program) if level.latest else routed)
        come += [done[number] for number in level.rows]
        if level.reread:
            come.append(_step("ChangeDetector", reduce(DataFrame.unionAll, [done[n] for n in level.reread]), program))
        messages = reduce(DataFrame.unionAll, come)
        for step in level.steps:
            messages = _step(step, messages, level.program)
    assert messages is not None, "a fragment has a level"
    return messages


def with_conditions(level: Level) -> str:
    """Return a level's program with its filters as Spark SQL over the array `image`, the texts of a row's values."""
    conditions = [predicate(f, "image", node.types) for node in level.filters if (f := node.filter) is not None]
    return json.dumps({**json.loads(level.program), "conditions": conditions})


def finished(rows: DataFrame, plan: Plan, fragment: Fragment) -> DataFrame:
    """Apply a fragment's expressions and WHERE to rows (k, m); returns rows (k, m)."""
    if fragment.finish.plain:
        return rows
    named = f"table {plan.sink.table}" + ("" if fragment is plan.last else f", part {fragment.number + 1}")
    return finish(rows, fragment, named)


def kernel_of(session: Any) -> Any:
    """Return the Java package of the kernel, whose classes may have been added to a running JVM."""
    jvm = session.sparkContext._jvm
    if not callable(jvm.tailorbird.kernel.Router):
        # only threads with this class loader see a jar added to a running JVM; py4j has one thread per Python thread
        jvm.java.lang.Thread.currentThread().setContextClassLoader(
            session._jsparkSession.sharedState().jarClassLoader()
        )
    return jvm.tailorbird.kernel


def _step(name: str, rows: DataFrame, program: str) -> DataFrame:
    session: Any = rows.sparkSession
    return DataFrame(getattr(kernel_of(session), name).apply(rows._jdf, program), session)
