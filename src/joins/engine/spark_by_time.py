"""Run a join by time with Spark's stream-stream join and watermarks.

Spark reads a stream only once, so all messages of both sides pass the join. Some are not rows to match: dead
letters, and rows that are emitted alone at once. For these the column `real` is false, which makes the join
condition false. So they leave an outer join in the same batch and need no state. The join is therefore always a full
outer join, and rows that the query does not need are dropped after it.

Rows stay in Spark's state until the watermark has passed the last time at which they could match. The join itself
drops no late row, because `kernel/log/Timed.java` has already refused those by the same watermark."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from joins.engine.spark_expressions import text_at
from joins.kernel.program import FragmentProgram
from joins.query.nodes import Interval
from joins.query.plan import SINK, Fragment, Plan
from joins.runtime.records import DIM_PUT, ROW_PUT
from joins.steps.by_time import TimedSide, sides_of

# Steps after a join by time fold by id and ignore the watermark, so no row is late for them.
CHECKS = "spark.sql.streaming.statefulOperator.checkCorrectness.enabled"
# Rows that waited for the watermark leave in the batch after the one that advanced it, even if there is no new data. So
# do rows whose time is over, with conditions on the time.
WAITS = "spark.sql.streaming.noDataMicroBatches.enabled"
# One store per partition of the join's state instead of four, each of which would commit in every batch.
STORES = "spark.sql.streaming.join.stateFormatVersion"
_LENGTH = "CAST(conv(hex(substring(m, 10, 4)), 16, 10) AS INT)"
_MICROS = "CAST(conv(hex(substring(m, 2, 8)), 16, 10) AS BIGINT)"


def set_up_by_time(spark: SparkSession, plan: Plan) -> None:
    """Configure a session for a query, whose batches may depend on the time. Call it before the query starts."""
    spark.conf.set(CHECKS, str(not plan.by_time).lower())
    spark.conf.set(WAITS, str(plan.by_time or plan.by_clock).lower())
    spark.conf.set(STORES, "3")


def met_by_time(routed: Callable[[Any], DataFrame], part: FragmentProgram, fragment: Fragment) -> DataFrame:
    """Return the result of a join by time as rows (k, m): pairs, left rows without a match, and dead letters.

    `routed` returns the messages (k, m) of one side, given its program."""
    interval = fragment.root
    assert isinstance(interval, Interval), "a fragment with sides joins by time"
    sides = list(sides_of([fragment]))
    left, right = (_opened(routed(level), side) for level, side in zip(part.sides, sides, strict=True))
    earliest, latest = (f"l_at + {_seconds(micros)}" for micros in (interval.earliest, interval.latest))
    condition = f"l_met = r_met AND l_real AND r_real AND r_at >= {earliest} AND r_at <= {latest}"
    return _reported(left.join(right, f.expr(condition), "full_outer"), interval, sides)


def _seconds(micros: int) -> str:
    """Return an interval as a literal of Spark's SQL. Spark derives from it how long rows must be kept."""
    sign, rest = "-" if micros < 0 else "", abs(micros)
    return f"INTERVAL '{sign}{rest // 1_000_000}.{rest % 1_000_000:06}' SECOND"


def _opened(messages: DataFrame, side: TimedSide) -> DataFrame:
    """Return the messages of a side with the columns of the join: whether it is a row to match, its key, and its
    time."""
    at = "lr"[side.number]
    timed, put = f"substring(k, 1, 1) = X'{side.target:02X}'", f"substring(m, 1, 1) = X'{DIM_PUT:02X}'"
    opened = messages.selectExpr(
        f"k AS {at}_k",
        f"m AS {at}_m",
        f"{timed} AS {at}_timed",
        f"{timed} AND {put} AS {at}_real",
        f"IF({timed} AND {put}, substring(m, 14, {_LENGTH}), NULL) AS {at}_met",
        f"IF({timed} AND {put}, substring(m, 14 + {_LENGTH}), NULL) AS {at}_p",
        f"IF({timed}, timestamp_micros({_MICROS}), NULL) AS {at}_at",
    )
    return opened.withWatermark(f"{at}_at", f"{side.interval.lateness[side.number]} milliseconds")


def _reported(joined: DataFrame, interval: Interval, sides: list[TimedSide]) -> DataFrame:
    """Convert joined rows to messages."""
    outlet = sides[0].outlet
    head = f"X'{ROW_PUT if outlet == SINK else DIM_PUT:02X}000000000000000100000000'"
    to, left, right = f"X'{outlet:02X}'", "substring(l_k, 2)", "substring(r_k, 2)"
    pair = _message(
        f"concat({to}, {left}, X'2C', {right})",
        f"concat({head}, greatest(substring(l_p, 1, 8), substring(r_p, 1, 8)), {_trace()}, {_text('l_p')}, X'2C',"
        f" {_text('r_p')})",
    )
    names, values = (",null" * count for count in (len(interval.right.id_columns), interval.right.width))
    alone = _message(
        f"concat({to}, {left}, encode('{names}', 'UTF-8'))", f"concat({head}, l_p, encode('{values}', 'UTF-8'))"
    )
    nothing = "CAST(array() AS ARRAY<STRUCT<k: BINARY, m: BINARY>>)"
    cases = [
        f"WHEN l_k IS NOT NULL AND NOT l_real THEN IF(l_timed, {nothing}, {_message('l_k', 'l_m')})",
        f"WHEN r_k IS NOT NULL AND NOT r_real THEN IF(r_timed, {nothing}, {_message('r_k', 'r_m')})",
        f"WHEN l_k IS NOT NULL AND r_k IS NOT NULL THEN {pair}",
        f"WHEN l_k IS NOT NULL THEN {alone if interval.left_stays else nothing}",
    ]
    return joined.selectExpr(f"inline(CASE {' '.join(cases)} ELSE {nothing} END)")


def _text(payload: str) -> str:
    return f"substring({payload}, {text_at(payload)})"


def _trace() -> str:
    """Return the SQL of a pair's trace: the entries of both rows. Empty for rows that were stored without traces."""
    left, right = (f"substring({p}, 11, {text_at(p)} - 11)" for p in ("l_p", "r_p"))
    entries = f"concat({left}, {right})"
    count = f"unhex(lpad(hex(CAST(length({entries}) / 8 AS INT)), 2, '0'))"
    return f"IF(length({entries}) = 0, X'', concat(X'00', {count}, {entries}))"


def _message(k: str, m: str) -> str:
    return f"array(named_struct('k', {k}, 'm', {m}))"
