"""Queries that once ended a join, lost an argument or a value, or were refused by mistake."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cdc.model.errors import TopologyError
from cdc.model.types import Canonical, LogicalType
from joins.evaluate.evaluating import prepared
from joins.evaluate.stored import to_canonical, to_native
from joins.evaluate.unknown import UnknownValue
from joins.query.aggregate_functions import FUNCTIONS
from joins.query.functions.arity import ARITY
from joins.query.nodes import Expression
from tests.joins import meanings
from tests.joins.joincase import Case, read_case
from tests.joins.test_functions import DOCUMENT, NAMES

COLUMNS = {
    "id": "int", "n": "int?", "big": "bigint?", "huge": "bigint unsigned?", "d": "decimal(6,2)?", "s": "varchar(9)?",
    "day": "date?", "at": "datetime(3)?", "f": "double?", "tiny": "tinyint?", "small": "smallint?", "single": "float?",
}  # fmt: skip
GROUPS = Path(__file__).parents[1] / "cases" / "joins" / "groups"


def case(columns: str, *, key: str = "id", after: str = "") -> Case:
    return Case(
        tables={"shop.t": {"key": ["id"], **COLUMNS}},
        query=f"SELECT {columns} FROM shop.t {after}",
        row_key=[key],
        history=[],
    )


def computed(text: str) -> Expression:
    found = case(f"id, {text} AS x").plan().last.finish.computed
    return found[0]


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("crc32(s, 1)", "crc32() with 1"),
        ("date(s, 'yyyyMMdd')", "date(x) of a moment"),
        ("floor(d, 1)", "floor(x * 10) / 10"),
        ("ceil(d, 1)", "ceil(x * 10) / 10"),
        ("round(d, 1, 2)", "round() with 1 to 2"),
        ("length(s, 1)", "length() with 1"),
        ("date_trunc('DAY', at, 1)", "date_trunc() with 2"),
        ("get_json_object(s, '$.a', 1)", "get_json_object() with 2"),
        ("upper(substring(s))", "substring() with 2 to 3"),
        ("greatest(n)", "greatest() with at least 2"),
        ("contains(s, 'a', 'b')", "contains() with 2"),
    ],
)
def test_an_argument_that_nothing_reads_is_refused(text: str, remedy: str) -> None:
    """The refusal has the line and the column of the call, and a form that works."""
    with pytest.raises(TopologyError, match=r"case\.yml:\d+: .* with \d+ argument") as error:
        case(f"id, {text} AS x").plan()
    assert remedy in str(error.value)
    assert "query line 1, column" in str(error.value)


@pytest.mark.parametrize("call", ["max(n, 2)", "min(n, n)", "collect_list(n, 2)", "max_by(n, id, 2)", "sum(n, 2)"])
def test_an_argument_that_no_aggregate_reads_is_refused(call: str) -> None:
    """Also the aggregate functions state how many arguments they take."""
    with pytest.raises(TopologyError, match=r"with \d argument"):
        case(f"s, {call} AS x", key="s", after="GROUP BY s").plan()


_OTHER_NAMES = {
    "stddev_samp",
    "var_samp",
    "percentile_cont",
    "approx_percentile",
    "listagg",
    "group_concat",
    "array_join",
}


def test_every_function_states_its_number_of_arguments() -> None:
    """A function added to the page or to the aggregates needs a row, else its arguments would not be counted."""
    aggregates = {function.shown.partition("(")[0] for function in FUNCTIONS}
    page = DOCUMENT.partition("\n## Window functions")[2].partition("\n## ")[0]
    windows = re.findall(r"`(\w+)\(", " ".join(re.findall(r"\n\|([^|]*)", page)))
    assert set(ARITY) == {*NAMES, *aggregates, "count_if", *_OTHER_NAMES, *windows}


@pytest.mark.parametrize(
    "text",
    [
        "substring(s FROM 2)", "position('a' IN s)", "trim(concat(s, ','))", "round(d)", "if(n IN (1, 2), 1, 0)",
        "'floor(a, b)'", "concat('(', s)", "coalesce(n, big, 0)", "greatest(n, (big + 1) * 2)",
    ],
)  # fmt: skip
def test_arguments_are_counted_as_written(text: str) -> None:
    """Words between arguments, parentheses and texts count for nothing."""
    case(f"id, {text} AS x").plan()


@pytest.mark.parametrize(
    "text", ["CAST(s AS DECIMAL(5,10))", "CAST(s AS DECIMAL(0))", "1e400 * n", "CAST(-1e309 AS DOUBLE)"]
)
def test_an_expression_that_spark_would_refuse_is_refused(text: str) -> None:
    """It once passed `validate`, and the query could not start."""
    with pytest.raises(TopologyError, match="expected"):
        case(f"id, {text} AS x").plan()


@pytest.mark.parametrize("call", ["substring(s, big, 2)", "left(s, big)", "right(s, f)", "sha2(s, huge)"])
def test_a_number_beyond_an_int_ends_no_query(call: str) -> None:
    """The number is cast to INT without an error, and counts as a failure."""
    found = computed(call)
    assert "try_cast({" in found.sql
    assert found.failed is not None


@pytest.mark.parametrize("name", ["floor", "ceil", "round"])
def test_unsigned_integers_are_not_rounded_through_a_double(name: str) -> None:
    """18446744073709551615 is no double."""
    assert str(computed(f"{name}(huge)").type) == "uint64"
    assert "DOUBLE" not in computed(f"{name}(huge)").sql


def test_the_sum_of_a_wide_decimal_has_room() -> None:
    """Decimals of up to 38 digits have Spark's types, wider ones gain digits."""
    plan = read_case(GROUPS / "sums-of-decimals-wider-than-38-digits.case").plan()
    types = {output.name: str(output.type) for output in plan.last.finish.outputs}
    assert types["s"] == "decimal(75,30)"
    assert types["a"] == "decimal(69,34)"


def test_having_uses_a_result_column_within_no_aggregate() -> None:
    """`HAVING total > 10` means the result column, and an aggregate of an aggregate has a message of its own."""
    case("s, sum(n) AS total", key="s", after="GROUP BY s HAVING total > 10").plan()
    with pytest.raises(TopologyError, match="total, an aggregate, within another one"):
        case("s, sum(n) AS total", key="s", after="GROUP BY s HAVING max(total) > 10").plan()


def test_having_aggregates_the_tables_column() -> None:
    """`max(at)` is the maximum of the column, and not of the result column of that name."""
    plan = case(
        "date_trunc('DAY', at) AS at, count(*) AS c", key="at", after="GROUP BY 1 HAVING max(at) > '2026-01-01'"
    )
    group = plan.plan().fragments[0].group
    assert group is not None
    assert [result.text for result in group.results] == ["COUNT(*)", "MAX(t.at)"]


@pytest.mark.parametrize(
    "columns",
    ["2 AS k, CAST(sum(d) AS DECIMAL(10,2)) AS x", "1 AS k, round(avg(d), 1) AS x", "'a' AS k, max(s) || 'a' AS x"],
)
def test_a_literal_key_leaves_other_literals_alone(columns: str) -> None:
    """The key of the only group is a literal, which other expressions may contain, too."""
    case(columns, key="k").plan()


def test_the_sum_of_floats_adds_their_four_bytes() -> None:
    """The text 1.1 is another number than the FLOAT 1.1, which conditions compare."""
    plan = read_case(GROUPS / "sums-of-floats.case").plan()
    group = plan.fragments[0].group
    assert group is not None
    assert {str(total.type) for total in group.totals} == {"float64"}
    assert [str(result.type) for result in group.results] == ["float64"] * 4 + ["float32"]


@pytest.mark.parametrize(
    ("text", "type_"),
    [
        ("-tiny", "int8"), ("-small", "int16"), ("-n", "int32"), ("-d", "decimal(6,2)"), ("-huge", "decimal(20,0)"),
        ("-single", "float32"), ("huge / 3", "decimal(26,6)"), ("d / -3", "decimal(10,6)"),
        ("d / (3)", "decimal(10,6)"),
        ("huge * 007", "decimal(22,0)"),
    ],
)  # fmt: skip
def test_types_are_sparks(text: str, type_: str) -> None:
    """A literal counts its digits, also a negative one; a negative number has the type of the number."""
    assert str(computed(text).type) == type_


@pytest.mark.parametrize(
    "text", ["TRY_CAST(s AS INT)", "try_add(n, 1)", "try_divide(n, 0)", "TRY_CAST(s AS TIMESTAMP)"]
)
def test_a_try_is_no_failure(text: str) -> None:
    """The user asked for NULL, so a bad value makes no dead letter. A CAST does."""
    assert computed(text).failed is None
    assert computed("CAST(s AS INT)").failed is not None


def test_decimals_without_a_common_type_are_compared() -> None:
    """38 digits hold no number with 36 whole digits and 20 decimal places, so Spark rounds to two places."""
    wide, long = "CAST(d AS DECIMAL(38,2))", "CAST(d AS DECIMAL(38,20))"
    assert "> CAST(try_cast({1} AS DECIMAL(38,20)) AS DECIMAL(38,2)))" in computed(f"{wide} > {long}").sql
    with pytest.raises(TopologyError, match="decimal"):
        computed(f"coalesce({wide}, {long})")


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("nvl(n, d, 1)", "coalesce(a, b, c)"), ("ifnull(n)", "coalesce(a, b, c)"), ("md5(n)", "CAST(… AS STRING)"),
        ("sha2(d, 256)", "CAST(… AS STRING)"), ("get_json_object(n, '$.a')", "CAST(… AS STRING)"),
    ],
)  # fmt: skip
def test_a_call_that_spark_refuses_is_refused(text: str, remedy: str) -> None:
    """Such a query is no Spark SQL. The error names the form that is."""
    with pytest.raises(TopologyError) as error:
        case(f"id, {text} AS x").plan()
    assert remedy in str(error.value)


def test_a_failure_within_a_try_is_one() -> None:
    """`try_add(n / 0, 1)`: the division fails, not the addition."""
    failed = computed("try_add(CAST(s AS INT), 1)").failed
    assert failed is not None
    assert failed.count("IS NULL") == 1


@pytest.mark.parametrize(("type_", "length"), [("CHAR(2)", 2), ("VARCHAR(9)", 9)])
def test_a_length_that_spark_ignores_is_refused(type_: str, length: int) -> None:
    """MySQL and PostgreSQL cut the text, Spark does not."""
    with pytest.raises(TopologyError, match="CAST to") as error:
        case(f"id, CAST(s AS {type_}) AS x").plan()
    assert f"left(CAST(… AS STRING), {length})" in str(error.value)


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-03-29T02:30:00+05:00", "2026-03-28T21:30:00Z"),
        ("2026-03-29 02:30:00-01:30", "2026-03-29T04:00:00Z"),
        ("2026-03-29 02:30:00Z", "2026-03-29T02:30:00Z"),
        ("2026-03-29", "2026-03-29T00:00:00Z"),
        ("2026-03-29 02:30:00+19:00", None),
    ],
)
def test_an_offset_in_a_text_is_applied(text: str, moment: str | None) -> None:
    """A literal and a text column mean the same moment in UTC."""
    found = computed("CAST(s AS TIMESTAMP)")
    types = tuple(LogicalType(kind="string") for _ in COLUMNS)
    value = prepared(found.sql, types).of([text] * len(types))
    assert to_canonical(found.type, value) == moment


def test_no_value_ends_an_evaluation() -> None:
    """Every function, operator and cast of every type gives a value, NULL or an unknown one for extreme values."""
    types, columns = meanings.types_of(), list(meanings.TYPES)
    wild: dict[str, list[Canonical]] = {"f": ["NaN", "Infinity", "-Infinity"], "x": ["NaN", "Infinity", "-Infinity"]}
    rows: list[list[Canonical]] = [[None] * len(types), *([*row] for row in meanings.rows(12, seed=7))]
    rows += [[wild.get(name, [None] * 3)[i] for name in columns] for i in range(3)]
    natives = [[to_native(type_, value) for type_, value in zip(types, row, strict=True)] for row in rows]
    ended, known = [], 0
    for text, call in meanings.calls(1).items():
        for n, row in enumerate(natives):
            try:
                to_canonical(call.type, prepared(call.sql, types).of(row))
                known += 1
            except UnknownValue:
                continue
            except Exception as error:  # noqa: BLE001  # what the test looks for
                ended.append(f"{text} of {rows[n]}: {error!r}")
    assert not ended, "\n".join(ended[:20])
    assert known > 1000


def test_a_plan_is_the_same_in_every_process() -> None:
    """A many-to-many join kept its tables in a set, so a restart could find another plan than before."""
    names = [f"t{i}" for i in range(8)]
    tables = {f"shop.{name}": {"key": ["id"], "id": "int", "x": "int", "y": "int?"} for name in names}
    joins = " ".join(f"JOIN shop.{name} {name} ON {name}.id = t0.x" for name in names[1:])
    query = f"SELECT t0.id, m.id AS other FROM shop.t0 t0 {joins} JOIN shop.t1 m ON m.y = t7.y"
    plan = Case(tables=tables, query=query, row_key=["id", "other"], history=[]).plan()
    outputs = [output.name for output in plan.fragments[0].finish.outputs]
    assert [name for name in outputs if name.endswith(".id")] == [f"{name}.id" for name in names]
