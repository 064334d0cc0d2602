"""Compiled expressions in Spark equal batch Spark's own answer to the query, row by row."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from decimal import Decimal
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession

from cdc.model.types import Canonical, LogicalType
from joins.engine.spark_expressions import finish, predicate
from joins.engine.spark_session import close_session, open_session
from joins.oracle.duckdb_types import native
from joins.query.value_types import spark_type
from joins.runtime.records import (
    REFUSED,
    ROW_GONE,
    ROW_PUT,
    TRUNCATION_POINT,
    Message,
    dump,
    load,
    payload,
    text_of,
    values_of,
)
from tests.joins.evaluator import canonical
from tests.joins.joincase import Case

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

COLUMNS = {
    "id": "int", "n": "int?", "big": "bigint?", "tiny": "tinyint?", "huge": "bigint unsigned?", "d": "decimal(6,2)?",
    "s": "varchar(9)?", "day": "date?", "at": "datetime(3)?", "f": "double?", "b": "varbinary(9)?", "yes": "bit(1)?",
}  # fmt: skip
ROWS: list[list[Canonical]] = [
    [1, 5, 9007199254740993, 100, 18446744073709551615, "1.50", 'ab"ü\\', "2026-01-31Z", "2026-01-31T10:12:00.5Z", 1.5,
     "AQI=", True],
    [2, None, None, None, None, None, None, None, None, None, None, None],
    [3, 2147483647, -9223372036854775808, -128, 0, "-9999.99", "12", "2024-02-29Z", "1969-12-31T23:59:59.999Z", -1e300,
     "", False],
    [4, 0, 0, 0, 1, "0.00", "", "2026-12-31Z", "2026-12-31T00:00:00Z", 0.0, "/+8=", True],
    [5, -7, 12, 3, 7, "12.34", '{"a": {"b": 1}}', "2026-05-05Z", "2026-05-05T01:02:03Z", 2.25, "AA==", False],
]  # fmt: skip
EXPRESSIONS = """
n + 1 | n - big | n * n | n / 2 | n / 0 | n % 3 | -n | tiny + tiny | big - 1 | d + d | d * d | d / 3 | d / n | d % 7
d * f | f / n | huge + 1 | n + d | 1.50 + n | 1e3 * n | abs(n) | abs(d) | abs(f) | round(d, 1) | round(d) | round(f, 1)
floor(d) | ceil(d) | floor(n) | sqrt(n) | sqrt(d) | power(n, 2) | ln(n) | log10(d) | exp(n) | greatest(n, big, 2)
least(d, n) | nullif(n, 5) | coalesce(n, tiny, 0) | ifnull(s, 'none') | nvl(d, 0) | if(n > 1, 'a', 'b') | upper(s)
CASE WHEN n > 1 THEN 'x{y}' WHEN n = 0 THEN 'it\\'s' END | CASE n WHEN 5 THEN d WHEN 0 THEN 1 ELSE NULL END | lower(s)
trim(s) | ltrim(s) | rtrim(s) | reverse(s) | length(s) | char_length(s) | substring(s, 1, 2) | substr(s, 2) | left(s, 1)
right(s, 1) | replace(s, 'a', 'b') | lpad(s, 5, '0') | rpad(s, 5, '*') | instr(s, 'b') | locate('b', s) | md5(s)
position('b' IN s) | contains(s, 'b') | startswith(s, 'a') | endswith(s, '2') | sha2(s, 256) | concat(s, '-', n)
s || s | concat_ws('-', s, n, day) | get_json_object(s, '$.a.b') | CAST(s AS INT) | CAST(d AS INT) | CAST(n AS STRING)
CAST(d AS DECIMAL(4,1)) | CAST(f AS BIGINT) | CAST(n AS TINYINT) | CAST(day AS STRING) | CAST(s AS DATE)
CAST(n AS DOUBLE) | CAST(day AS TIMESTAMP_NTZ) | CAST(at AS DATE) | CAST(d AS STRING) | CAST(s AS DECIMAL(9,3))
TRY_CAST(s AS BIGINT) | year(at) | quarter(day) | month(day) | day(day) | dayofweek(day) | dayofyear(day)
last_day(day) | second(at) | datediff(day, '2026-01-01') | date_add(day, 30) | date_add(day, n % 100) | to_date(s)
date(at) | hour(at) | minute(at)
date_format(at, 'yyyy-MM-dd HH:mm:ss') | date_format(day, 'yyyyMM') | at > '2026-01-01' | day = '2026-01-31' | day < at
n IS NULL | n IS NOT NULL | yes IS TRUE | yes | NOT yes | n IN (1, 5, NULL) | s IN ('12', 'x') | n BETWEEN 0 AND 5
s LIKE 'a%' | s LIKE '_2' | n <=> NULL | n = big | n <> 5 AND d > 0 | n = 5 OR d > 0 | d > 1 AND NOT s = '12' | n > d
b = b | coalesce(b, b) | DATE'2026-01-31' | TRUE | try_add(n, 1) | try_divide(d, 0) | (n + 1) * (n - 1) | f = 2.25
"""
REAL_FUNCTIONS = ("sqrt(", "power(", "ln(", "log10(", "exp(")
TEXTS = [text.replace("@@", "||") for text in EXPRESSIONS.replace("||", "@@").replace("\n", " | ").split(" | ") if text]


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    folder = tmp_path_factory.mktemp("spark")
    settings = {"spark.sql.session.timeZone": "UTC", "spark.sql.warehouse.dir": str(folder / "warehouse")}
    # as in joins: a process has one JVM, and later tests need the kernel in it
    made = open_session("expressions", partitions=1, scratch=folder / "scratch", settings=settings)
    made.sparkContext.setLogLevel("OFF")  # values that batch Spark cannot compute would flood the output
    yield made
    close_session(made)


def case(columns: str, where: str = "") -> Case:
    return Case(
        tables={"shop.t": {"key": ["id"], **COLUMNS}},
        query=f"SELECT id{columns} FROM shop.t {where}",
        row_key=["id"],
        history=[],
    )


def messages(spark: SparkSession, case: Case) -> DataFrame:
    """Return the rows as whole rows to the sink, with other messages that arrive there."""
    used = [list(COLUMNS).index(name) for name in case.plan().last.tree.columns]
    made: list[tuple[Any, ...]] = [
        (b"\xff" + text_of([row[0]]), ROW_PUT, 1, payload([row[i] for i in used], 5)) for row in ROWS
    ]
    made += [(b"\xff9", ROW_GONE, 0, b""), (b"\xff", TRUNCATION_POINT, 0, b"why")]
    return stored(spark, made)


def stored(spark: SparkSession, rows: Iterable[tuple[bytes, int, int, bytes]]) -> DataFrame:
    """Return rows (k, m) of messages, given as (k, op, v, p)."""
    found = [dump(Message(k=k, op=op, r=b"", v=v, p=p)) for k, op, v, p in rows]
    return spark.createDataFrame(found, "k binary, m binary")


def reported(spark: SparkSession, asked: Case) -> list[Message]:
    """Return the messages that leave the expressions of a case for its rows."""
    rows = finish(messages(spark, asked), asked.plan().last, "table wide").collect()
    return [load(bytes(row.k), bytes(row.m)) for row in rows]


def as_spark_takes_it(type_: LogicalType, value: Canonical) -> Any:
    return Decimal(str(value)) if type_.kind == "uint64" and value is not None else native(type_, value)


def near(value: Any) -> Any:
    return float(f"{value:.9g}") if isinstance(value, float) else value


def computed(text: str, value: Any) -> Any:
    """Return batch Spark's answer; NULL if a function of real numbers has no value, which is a dead letter."""
    return None if text.startswith(REAL_FUNCTIONS) and value in ("NaN", "Infinity", "-Infinity") else near(value)


def test_expressions_are_what_batch_spark_says(spark: SparkSession) -> None:
    """Every operator and function, on extreme values; NULL where Spark's ANSI mode would end the query."""
    asked = case("".join(f", {text} AS e{i}" for i, text in enumerate(TEXTS)))
    plan = asked.plan()
    found = {
        values_of(message.p)[0]: values_of(message.p) for message in reported(spark, asked) if message.op == ROW_PUT
    }
    types = [column.type for column in asked.schemas()[plan.last.tree.captured.table_id].columns]
    typed = [[as_spark_takes_it(type_, value) for type_, value in zip(types, row, strict=True)] for row in ROWS]
    schema = ", ".join(f"{name} {spark_type(type_)}" for name, type_ in zip(COLUMNS, types, strict=True))
    local(spark, spark.createDataFrame([tuple(row) for row in typed], schema)).createOrReplaceTempView("t")
    spark.conf.set("spark.sql.ansi.enabled", "true")
    # hundreds of small queries: compiling each takes longer than running it
    spark.conf.set("spark.sql.codegen.wholeStage", "false")
    spark.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN")
    wrong = []
    for i, text in enumerate(TEXTS):
        answers = batch_answers(spark, text)
        column = plan.outputs[i + 1]
        for row in ROWS:
            got, expected = found[row[0]][column.index], answers[row[0]]
            if near(got) != computed(text, expected):
                wrong.append(f"{text} of row {row[0]} ({column.type}): {got!r}, batch Spark {expected!r}")
    assert not wrong, "\n".join(wrong)


def local(spark: SparkSession, rows: DataFrame) -> DataFrame:
    """Return the same rows as part of the plan: a query of them needs no job."""
    session: Any = spark
    return DataFrame(session._jsparkSession.createDataFrame(rows._jdf.collectAsList(), rows._jdf.schema()), spark)


def batch_answers(spark: SparkSession, text: str) -> dict[Canonical, Canonical]:
    """Return batch Spark's answers by id; NULL for the rows that it cannot compute."""
    try:
        rows = spark.sql(f"SELECT id, {text} AS x FROM t").collect()
    except PySparkException:
        rows = []
        for row in ROWS:
            try:
                rows += spark.sql(f"SELECT id, {text} AS x FROM t WHERE id = {row[0]}").collect()
            except PySparkException as error:
                if error.getCondition() is None:  # not an error of a value
                    raise
                rows.append(Row(id=row[0], x=None))
    return {row.id: canonical(bytes(row.x) if isinstance(row.x, bytearray) else row.x) for row in rows}


def test_windows_begin_where_sparks_do(spark: SparkSession) -> None:
    """`window(x, …)` is the start of Spark's window of that length, also before 1970; NULL for NULL."""
    lengths = ["1 second", "45 seconds", "1 minute", "15 minutes", "1 hour", "6 hours", "90 minutes", "1 day"]
    texts = [f"window(at, '{length}')" for length in lengths]
    asked = case("".join(f", {text} AS e{i}" for i, text in enumerate(texts)))
    plan = asked.plan()
    found = [values_of(message.p) for message in reported(spark, asked) if message.op == ROW_PUT]
    at = {row[0]: native(LogicalType(kind="datetime"), row[list(COLUMNS).index("at")]) for row in ROWS}
    spark.createDataFrame([*at.items()], "id int, at timestamp_ntz").createOrReplaceTempView("moments")
    for i, text in enumerate(texts):
        answers = spark.sql(f"SELECT id, {text}.start AS x FROM moments WHERE at IS NOT NULL").collect()
        expected = {row.id: canonical(row.x) for row in answers} | {2: None}
        assert {row[0]: row[plan.outputs[i + 1].index] for row in found} == expected, text


def test_times_are_durations(spark: SparkSession) -> None:
    """Results equal DuckDB's in the simulation; a text that is no time is NULL and does not end the query."""
    texts = [
        "t > '100:00:00'",
        "t = '9:30'",
        "t IN ('-0:00:01.5')",
        "greatest(t, '9:00:00')",
        "least(t, '-9:00', NULL)",
    ]
    columns = {"id": "int", "t": "time(6)?"}
    query = f"SELECT id, {', '.join(f'{text} AS x{i}' for i, text in enumerate(texts))} FROM shop.t"
    plan = Case(tables={"shop.t": {"key": ["id"], **columns}}, query=query, row_key=["id"], history=[]).plan()
    times = ["99:00:00", "100:00:00.000001", "09:30:00", "-00:00:01.5", None, "soon", "9999999999:99:99", "-838:59:59"]
    rows = [(b"\xff" + text_of([n]), ROW_PUT, 1, payload([n, time], 5)) for n, time in enumerate(times)]
    whole = [bytes(row.m) for row in finish(stored(spark, rows), plan.last, "table wide").collect()]
    found = {values_of(m[13:])[1]: values_of(m[13:])[2:] for m in whole}
    assert found == {
        "99:00:00": [False, False, False, "99:00:00", "-09:00:00"],
        "100:00:00.000001": [True, False, False, "100:00:00.000001", "-09:00:00"],
        "09:30:00": [False, True, False, "09:30:00", "-09:00:00"],
        "-00:00:01.5": [False, False, True, "09:00:00", "-09:00:00"],
        None: [None, None, None, "09:00:00", "-09:00:00"],
        "soon": [None, None, None, "09:00:00", "-09:00:00"],
        "9999999999:99:99": [None, None, None, "09:00:00", "-09:00:00"],
        "-838:59:59": [False, False, False, "09:00:00", "-838:59:59"],
    }


def test_geometries_are_texts_with_coordinates(spark: SparkSession) -> None:
    """Each function over points, other geometries, invalid texts, and NULL; none ends the query."""
    columns = {"id": "int", "g": "geometry?"}
    calls = ("ST_X(g)", "ST_Latitude(g)", "st_srid(g)", "ST_AsText(g)")
    query = f"SELECT id, {', '.join(f'{text} AS x{i}' for i, text in enumerate(calls))} FROM shop.t"
    plan = Case(tables={"shop.t": {"key": ["id"], **columns}}, query=query, row_key=["id"], history=[]).plan()
    line = "LINESTRING(1 2,3 4)"
    wanted: dict[str | None, list[Canonical]] = {
        "POINT(-0.5 1e20)": [-0.5, 1e20, 0, "POINT(-0.5 1e20)"],
        "SRID=4326;POINT(2.35 48.85)": [2.35, 48.85, 4326, "POINT(2.35 48.85)"],
        f"SRID=4294967295;{line}": [None, None, 4294967295, line],
        "GEOMETRYCOLLECTION(POINT(1 2))": [None, None, 0, "GEOMETRYCOLLECTION(POINT(1 2))"],
        "": [None, None, 0, ""],
        None: [None, None, None, None],
    }
    rows = [(b"\xff" + text_of([n]), ROW_PUT, 1, payload([n, text], 5)) for n, text in enumerate(wanted)]
    whole = [bytes(row.m) for row in finish(stored(spark, rows), plan.last, "table wide").collect()]
    assert {values_of(m[13:])[1]: values_of(m[13:])[2:] for m in whole} == wanted


def test_failures_are_reported_during_the_row(spark: SparkSession) -> None:
    """A dead letter contains the row's key and the expression; guarded and hidden failures report nothing."""
    asked = case(", n / d AS q, CASE WHEN tiny <> 0 THEN n / tiny END AS g", "WHERE n < 100 OR n IS NULL")
    rows = reported(spark, asked)
    dead_letters = [json.loads(row.p) for row in rows if row.op == REFUSED]
    assert [(dead_letter[0], dead_letter[3]) for dead_letter in dead_letters] == [
        ("table wide, row 4", "not computed: t.n / t.d")
    ]
    assert {row.k for row in rows if row.op == ROW_GONE} == {b"\xff3", b"\xff9"}
    assert [(row.v, row.p) for row in rows if row.op == TRUNCATION_POINT] == [(0, b"why")]


def test_a_date_beyond_year_9999_is_null(spark: SparkSession) -> None:
    """It has no canonical form: the value is NULL with a dead letter, and the row stays."""
    far = "CAST(concat('1', '2026-01-01') AS DATE)"
    asked = case(f", date_add(day, 3000000) AS x, {far} AS y, date_add(day, 1) AS z", "WHERE id = 1")
    plan, rows = asked.plan(), reported(spark, asked)
    found = [values_of(row.p) for row in rows if row.op == ROW_PUT]
    assert [[row[output.index] for output in plan.outputs] for row in found] == [[1, None, None, "2026-02-01Z"]]
    assert [json.loads(row.p)[3] for row in rows if row.op == REFUSED] == ["not computed: DATE_ADD(t.day, 3000000)"]


def test_filter_over_values_is_true_or_false(spark: SparkSession) -> None:
    """`predicate` is for routing: NULL is false."""
    plan = case("", "WHERE d > 1.00 AND s LIKE 'a%'").plan()
    node = plan.last.tree
    assert node.filter is not None
    used = [list(COLUMNS).index(name) for name in node.columns]
    images = [([None if row[i] is None else str(row[i]) for i in used],) for row in ROWS]
    values = spark.createDataFrame(images, "image array<string>")
    held = values.selectExpr(f"{predicate(node.filter, 'image', node.types)} AS x").collect()
    assert [row.x for row in held] == [True, False, False, False, False]


@pytest.mark.parametrize("rows", ["shop.t", "shop.t JOIN shop.u ON t.n = u.id"])
def test_a_row_is_parsed_once(spark: SparkSession, rows: str) -> None:
    """Spark copies an expression into a filter, and evaluates it there for each value that the filter uses."""
    asked = Case(
        tables={"shop.t": {"key": ["id"], **COLUMNS}, "shop.u": {"key": ["id"], "id": "int", "low": "int"}},
        query=f"SELECT t.s, max(t.d) AS most FROM {rows} WHERE t.tiny BETWEEN t.n AND t.big GROUP BY t.s",
        row_key=["s"],
        history=[],
    )
    fragment = asked.plan().fragments[0]
    assert fragment.adds_up or fragment.retracts
    optimized = finish(stored(spark, []), fragment, "table wide")._jdf.queryExecution().optimizedPlan().toString()
    assert optimized.count("from_json(") == 1
