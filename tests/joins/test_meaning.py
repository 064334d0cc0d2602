"""Expressions of `verify` (`joins.evaluate`) have the join's results, also for extreme values."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import orjson
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from cdc.model.types import Canonical, LogicalType
from joins.engine.spark_expressions import canonical, typed
from joins.engine.spark_session import close_session, open_session
from joins.evaluate.casting import single
from joins.evaluate.evaluating import prepared
from joins.evaluate.stored import to_canonical, to_native
from joins.evaluate.unknown import UnknownValue
from joins.query.expressions import Typed
from joins.query.value_types import NULL
from tests.joins import meanings

SOME, MANY = (1, 40), (4, 60)  # expressions of each form of a call, and rows
AT_ONCE = 100


@cache  # compiling thousands of expressions takes longer than comparing them
def calls(most: int) -> Mapping[str, Typed]:
    return meanings.calls(most)


def test_every_documented_function_is_tried() -> None:
    """A function added to the documentation is covered automatically, or needs a form of its own here."""
    found = calls(SOME[0])
    lacking = [name for name in meanings.NAMES if not any(name in text.lower() for text in found)]
    assert lacking == []


@pytest.mark.parametrize("name", ["upper(s)", "sha2(s, 512)", "dayofweek(at)", "CAST(d AS INT)", "substring(s, 0, 2)"])
def test_what_once_deleted_rows_is_reported(name: str) -> None:
    """The expressions for which a repair once deleted correct rows are evaluated correctly."""
    call = meanings.compiled_call(name)
    assert call is not None
    prepared(call.sql, meanings.types_of())


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    folder = tmp_path_factory.mktemp("spark")
    settings = {"spark.sql.session.timeZone": "UTC", "spark.sql.warehouse.dir": str(folder / "warehouse")}
    made = open_session("meaning", partitions=1, scratch=folder / "scratch", settings=settings)
    made.sparkContext.setLogLevel("OFF")
    # many small expressions: compiling each takes longer than running it
    made.conf.set("spark.sql.codegen.wholeStage", "false")
    made.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN")
    yield made
    close_session(made)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("most", "number"), [SOME, pytest.param(*MANY, marks=pytest.mark.matrix)])
def test_expressions_mean_what_the_join_computes(spark: SparkSession, most: int, number: int) -> None:
    """Every function, operator and cast, with arguments of every type, gives the same value, or an unknown one."""
    tried, types = calls(most), meanings.types_of()
    rows = meanings.rows(number, seed=1)
    images = [(n, orjson.dumps(row).decode()) for n, row in enumerate(rows)]
    read = spark.createDataFrame(images, "n int, v string").selectExpr("n", "from_json(v, 'array<string>') AS vals")
    given = read.selectExpr("n", *(f"{typed('vals', i, type_)} AS t{i}" for i, type_ in enumerate(types))).cache()
    natives = [[to_native(type_, value) for type_, value in zip(types, row, strict=True)] for row in rows]
    wrong, reported, unknown = [], 0, 0
    texts = list(tried)
    for start in range(0, len(texts), AT_ONCE):
        for text, answers in _answers(given, {text: tried[text] for text in texts[start : start + AT_ONCE]}).items():
            call = tried[text]
            for n, row in enumerate(natives):
                try:
                    mine = to_canonical(call.type, prepared(call.sql, types).of(row))
                except UnknownValue:
                    unknown += 1
                    continue
                reported += 1
                if not _equal(call.type, mine, answers[n]):
                    wrong.append(f"{text} of {rows[n]}: {mine!r}, Spark {answers[n]!r}")
    assert not wrong, "\n".join(wrong[:20])
    assert unknown < reported / 10, f"{unknown:,} values are unknown"


def _answers(given: DataFrame, calls: dict[str, Typed]) -> dict[str, dict[int, Canonical]]:
    """Return Spark's results by expression and row, without the expressions that it refuses to compile."""
    types = meanings.types_of()
    names = [f"t{i}" for i in range(len(types))]
    asked = [
        f"{'CAST(NULL AS STRING)' if call.type == NULL else canonical(call.sql.format(*names), call.type)} AS e{i}"
        for i, call in enumerate(calls.values())
    ]
    try:
        found = given.selectExpr("n", *asked).collect()
    except PySparkException:
        if len(calls) == 1:
            return {}
        half = len(calls) // 2
        some = list(calls.items())
        return {**_answers(given, dict(some[:half])), **_answers(given, dict(some[half:]))}
    return {
        text: {row.n: None if row[i + 1] is None else orjson.loads(row[i + 1]) for row in found}
        for i, text in enumerate(calls)
    }


def _equal(type_: LogicalType, mine: Canonical, theirs: Any) -> bool:
    if isinstance(mine, float) and isinstance(theirs, int | float):
        if type_.kind == "float32":
            return mine == single(float(theirs))
        return math.isclose(mine, theirs, rel_tol=1e-9)
    return mine == theirs and isinstance(mine, bool) == isinstance(theirs, bool)
