"""Compiled expressions, and those of `verify` (`joins.evaluate`), have Spark's own results, also for extreme values."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import orjson
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from cdc.model.types import Canonical, LogicalType
from joins.engine.spark_expressions import canonical, typed
from joins.engine.spark_session import close_session, open_session
from joins.evaluate.casting import single
from joins.evaluate.evaluating import prepared
from joins.evaluate.stored import to_canonical, to_native
from joins.evaluate.unknown import UnknownValue
from joins.query.functions.patterns import pattern_of
from joins.query.typed import Typed
from joins.query.value_types import NULL, spark_type
from tests.joins import meanings

SOME, MANY = (1, 25), (4, 60)  # expressions of each form of a call, and rows
AT_ONCE = 100
Asked = tuple[list[list[Canonical]], Mapping[str, Typed]]  # rows and expressions
# Expressions that deliberately differ from Spark's: durations, geometries, and windows, which have tests of their own;
# floor and ceil of doubles, which are BIGINTs in Spark and may overflow; negatives of 38 digits, which Spark rounds
OTHERWISE = re.compile(r"\b(t|pt)\b|window|st_|(floor|ceil)\([fx]\)|^-[ge]$", re.IGNORECASE)
# A type of the result that docs/queries.md states: by the expression, Spark's type and the join's.
STATED = {
    (r"(floor|ceil|round)\(huge", "decimal(21,0)", "decimal(20,0)"),
}


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


WORST = {
    "(?:a|bc)*d": "abc", ".*b.*": "a", "(a*)(a*)b": "a", "^a*a*a*b": "a", "(?:a[a-z]?-)+c": "ab-",
    "(a*)?(a|aa)?b$": "a", r"(.*?),(.*)": "a", "(a|b|ab|c)?[abc]*d": "abc",
}  # fmt: skip


@pytest.mark.parametrize(
    "pattern", [pytest.param(one, marks=() if n < 2 else pytest.mark.matrix) for n, one in enumerate(WORST)]
)
def test_no_text_stalls_a_pattern(spark: SparkSession, pattern: str) -> None:
    """The longest text of each accepted pattern is answered soon, although Java may try many ways to match it."""
    text, most = WORST[pattern], pattern_of(pattern).most
    longest = (text * most)[:most]
    call = meanings.compiled_call(f"s RLIKE '{pattern}'")
    assert call is not None
    asked = call.sql.format(*meanings.TYPES)
    since = time.monotonic()
    rows = spark.createDataFrame([(longest,), (longest + text,)], "s string").selectExpr(f"{asked} AS x").collect()
    assert [row.x for row in rows] == [False, None]
    assert time.monotonic() - since < 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Computed:
    """The answers of Spark to one expression, by row number, and the rows for which it counts as failed."""

    answers: dict[int, Canonical]
    failed: frozenset[int]


@pytest.fixture(scope="module", params=[SOME, pytest.param(MANY, marks=pytest.mark.matrix)])
def asked(spark: SparkSession, request: pytest.FixtureRequest) -> Asked:
    """Return rows and expressions, and register the rows as the view `t`."""
    most, number = request.param
    rows = meanings.rows(number, seed=1)
    _view(spark, "t", rows)
    return rows, calls(most)


@pytest.fixture(scope="module")
def computed(spark: SparkSession, asked: Asked) -> dict[str, Computed]:
    """Return what the compiled expressions compute. None may end the query or be refused by Spark."""
    refused = dict[str, str]()
    found = _collected(spark, {text: _columns(call) for text, call in asked[1].items()}, refused)
    assert not refused, "\n".join(f"{text}: {error}" for text, error in refused.items())
    return {
        text: Computed(
            answers={n: None if value is None else orjson.loads(value) for n, (value, _) in rows.items()},
            failed=frozenset(n for n, (_, failed) in rows.items() if failed),
        )
        for text, rows in found.items()
    }


@pytest.mark.matrix
@pytest.mark.timeout(3000)
def test_no_value_ends_a_query(spark: SparkSession) -> None:
    """Ten thousand rows of extreme values pass every function, operator and cast: each expression has a value, NULL, or
    a dead letter for each row."""
    _view(spark, "many", meanings.rows(10_000, seed=3))
    ended, asked = dict[str, str](), calls(1)
    with pytest.raises(PySparkException):  # an expression that is not compiled does end a query
        spark.table("many").selectExpr("bit_xor(xxhash64(CAST(s AS INT)))").first()
    for start in range(0, len(asked), AT_ONCE):
        some = dict(list(asked.items())[start : start + AT_ONCE])
        try:
            _pass(spark, some)
        except PySparkException:
            for text, call in some.items():
                try:
                    _pass(spark, {text: call})
                except PySparkException as error:
                    ended[text] = str(error)[:300]
    assert len(asked) > 250
    assert not ended, "\n".join(f"{text}: {error}" for text, error in ended.items())


def _pass(spark: SparkSession, calls: Mapping[str, Typed]) -> None:
    """Compute expressions over all rows of the view `many`. The hashes have to be computed even if nothing is NULL."""
    columns = [f"bit_xor(xxhash64({value}, {failed}))" for value, failed in map(_columns, calls.values())]
    assert spark.table("many").selectExpr("count(*) AS n", *columns).first()["n"] == 10_000  # type: ignore[index]


@pytest.mark.long
@pytest.mark.timeout(900)
def test_expressions_mean_what_the_join_computes(asked: Asked, computed: dict[str, Computed]) -> None:
    """Every function, operator and cast, with arguments of every type, gives the same value, or an unknown one."""
    types = meanings.types_of()
    rows, tried = asked
    natives = [[to_native(type_, value) for type_, value in zip(types, row, strict=True)] for row in rows]
    wrong, reported, unknown = [], 0, 0
    for text, call in tried.items():
        for n, row in enumerate(natives):
            try:
                mine = to_canonical(call.type, prepared(call.sql, types).of(row))
            except UnknownValue:
                unknown += 1
                continue
            reported += 1
            if not _equal(call.type, mine, computed[text].answers[n]):
                wrong.append(f"{text} of {rows[n]}: {mine!r}, Spark {computed[text].answers[n]!r}")
    assert not wrong, "\n".join(wrong[:20])
    assert unknown < reported / 10, f"{unknown:,} values are unknown"


@pytest.mark.long
@pytest.mark.timeout(900)
def test_expressions_mean_what_spark_computes(spark: SparkSession, asked: Asked, computed: dict[str, Computed]) -> None:
    """The query's own text, run by Spark, has the same type, and the same value where the join reports no failure.

    Only rows without a failure are evaluated, because the others may end Spark's query."""
    rows, tried = asked
    own = {text: call for text, call in tried.items() if not OTHERWISE.search(text) and call.type != NULL}
    refused: dict[str, str] = {}

    def columns(text: str) -> tuple[str, str]:
        fine = ", ".join(str(n) for n in range(len(rows)) if n not in computed[text].failed)
        value = canonical(f"({text})", own[text].type)
        return f"CASE WHEN number IN ({fine or '-1'}) THEN {value} END", f"typeof({text})"

    found = _collected(spark, {text: columns(text) for text in own}, refused)
    wrong = [f"{text}: {error}" for text, error in refused.items()]
    for text, answers in found.items():
        type_ = own[text].type
        wanted, theirs = (
            spark_type(type_).lower(),
            next(iter(answers.values()))[1].replace("timestamp_ntz", "timestamp"),
        )
        if not _stated(text, theirs, wanted.replace("timestamp_ntz", "timestamp")):
            wrong.append(f"{text} is {wanted}, in Spark {theirs}")
        for n, (answer, _) in answers.items():
            value = None if answer is None else orjson.loads(answer)
            if n not in computed[text].failed and not _equal(type_, computed[text].answers[n], value):
                wrong.append(f"{text} of {rows[n]}: {computed[text].answers[n]!r}, Spark {value!r}")
    assert not wrong, f"{len(wrong)} differences:\n" + "\n".join(wrong[:40])


def _stated(text: str, theirs: str, ours: str) -> bool:
    if ours == theirs:
        return True
    return any(re.match(form, text) and (theirs, ours) == (spark, join) for form, spark, join in STATED)


def _view(spark: SparkSession, name: str, rows: list[list[Canonical]]) -> None:
    """Register rows as a view, each with its number."""
    images = [(n, orjson.dumps(row).decode()) for n, row in enumerate(rows)]
    read = spark.createDataFrame(images, "number int, v string").selectExpr(
        "number", "from_json(v, 'array<string>') AS vals"
    )
    types = zip(meanings.TYPES, meanings.types_of(), strict=True)
    columns = [f"{typed('vals', i, type_)} AS {column}" for i, (column, type_) in enumerate(types)]
    read.selectExpr("number", *columns).cache().createOrReplaceTempView(name)


def _columns(call: Typed) -> tuple[str, str]:
    """Return the SQL of an expression's value as text, and of whether it counts as failed."""
    names = list(meanings.TYPES)
    value = "CAST(NULL AS STRING)" if call.type == NULL else canonical(call.sql.format(*names), call.type)
    return value, f"coalesce({(call.failed or 'FALSE').format(*names)}, FALSE)"


def _collected(
    spark: SparkSession, columns: Mapping[str, tuple[str, str]], refused: dict[str, str]
) -> dict[str, dict[int, tuple[Any, Any]]]:
    """Return by expression and row number the values of two columns. `refused` gets the errors of the others."""
    found: dict[str, dict[int, tuple[Any, Any]]] = {}
    texts = list(columns)
    for start in range(0, len(texts), AT_ONCE):
        found |= _some(spark, {text: columns[text] for text in texts[start : start + AT_ONCE]}, refused)
    return found


def _some(
    spark: SparkSession, columns: Mapping[str, tuple[str, str]], refused: dict[str, str]
) -> dict[str, dict[int, tuple[Any, Any]]]:
    asked = [f"{sql} AS c{i}_{j}" for i, pair in enumerate(columns.values()) for j, sql in enumerate(pair)]
    try:
        rows = spark.table("t").selectExpr("number", *asked).collect()
    except PySparkException as error:
        if len(columns) == 1:
            refused[next(iter(columns))] = str(error)[:300]
            return {}
        some, half = list(columns.items()), len(columns) // 2
        return {**_some(spark, dict(some[:half]), refused), **_some(spark, dict(some[half:]), refused)}
    return {text: {row[0]: (row[2 * i + 1], row[2 * i + 2]) for row in rows} for i, text in enumerate(columns)}


def _equal(type_: LogicalType, mine: Canonical, theirs: Any) -> bool:
    if isinstance(mine, float) and isinstance(theirs, int | float):
        if type_.kind == "float32":  # several texts mean the same four bytes
            return single(mine) == single(float(theirs))
        return math.isclose(mine, theirs, rel_tol=1e-9)
    return mine == theirs and isinstance(mine, bool) == isinstance(theirs, bool)
