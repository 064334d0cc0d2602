"""A join by time on Spark's own join of two streams with watermarks: rows of both sides' logs → rows that meet.

Every row that a side has to tell passes the join, since Spark lets a stream be read only once: what is no row to be met
(dead letters, rows that leave alone at once) fails the part of the condition that asks one side, `real`, and leaves an
outer join in the same batch, without a state. So the join is a full outer one, whatever the query asked; what nobody
asked for ends behind it. Rows wait in Spark's state until the watermark has passed the last time that they could meet;
the join drops no late row, for `kernel/log/Timed.java` has told those apart by the same watermark before.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from joins.engine.spark_expressions import text_at
from joins.kernel.program import FragmentProgram
from joins.query.nodes import Interval
from joins.query.plan import SINK, Fragment, Plan
from joins.steps.by_time import TimedSide, sides_of
from joins.steps.records import DIM_PUT, ROW_PUT

# Steps behind a join by time fold by names and look at no watermark, so that rows which come late to them are none.
CHECKS = "spark.sql.streaming.statefulOperator.checkCorrectness.enabled"
# What waits for the watermark leaves in the batch behind the one that moved it, also where no news makes one.
WAITS = "spark.sql.streaming.noDataMicroBatches.enabled"
# One store for a partition of the join's state in place of four, each of which commits in every batch.
STORES = "spark.sql.streaming.join.stateFormatVersion"
_LENGTH = "CAST(conv(hex(substring(m, 10, 4)), 16, 10) AS INT)"
_MICROS = "CAST(conv(hex(substring(m, 2, 8)), 16, 10) AS BIGINT)"


def set_up_by_time(spark: SparkSession, plan: Plan) -> None:
    """Set a session up for a query that begins: it reads these settings as it does."""
    spark.conf.set(CHECKS, str(not plan.by_time).lower())
    spark.conf.set(WAITS, str(plan.by_time).lower())
    spark.conf.set(STORES, "3")


def met_by_time(routed: Callable[[Any], DataFrame], part: FragmentProgram, fragment: Fragment) -> DataFrame:
    """Rows (k, m): the pairs of a fragment's join by time, left rows that meet none where they stay, and notices.

    `routed` gives a side's messages (k, m) by its program.
    """
    interval = fragment.root
    assert isinstance(interval, Interval), "a fragment with sides joins by time"
    sides = list(sides_of([fragment]))
    left, right = (_opened(routed(level), side) for level, side in zip(part.sides, sides, strict=True))
    earliest, latest = (f"l_at + {_seconds(micros)}" for micros in (interval.earliest, interval.latest))
    condition = f"l_met = r_met AND l_real AND r_real AND r_at >= {earliest} AND r_at <= {latest}"
    return _reported(left.join(right, f.expr(condition), "full_outer"), interval, sides)


def _seconds(micros: int) -> str:
    """An interval of Spark's SQL; a literal, from which Spark finds how long rows are to be kept."""
    sign, rest = "-" if micros < 0 else "", abs(micros)
    return f"INTERVAL '{sign}{rest // 1_000_000}.{rest % 1_000_000:06}' SECOND"


def _opened(messages: DataFrame, side: TimedSide) -> DataFrame:
    """A side's messages with what the join looks at: whether it is a row to be met, at which key, and its time."""
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
    """What leaves of the joined rows, as messages."""
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
    """SQL of the trace of a pair: the entries of both, or what rows from before there were traces have."""
    left, right = (f"substring({p}, 11, {text_at(p)} - 11)" for p in ("l_p", "r_p"))
    entries = f"concat({left}, {right})"
    count = f"unhex(lpad(hex(CAST(length({entries}) / 8 AS INT)), 2, '0'))"
    return f"IF(length({entries}) = 0, X'', concat(X'00', {count}, {entries}))"


def _message(k: str, m: str) -> str:
    return f"array(named_struct('k', {k}, 'm', {m}))"
