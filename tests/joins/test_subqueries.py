"""Subqueries that are values, NOT IN, and EXISTS with an inequality: what they compile to, and what is refused.

`docs/queries.md` has examples, which are compared with DuckDB over random changes, as are those of `aggrandom`."""

from __future__ import annotations

from typing import Any

import pytest

from cdc.model.errors import TopologyError
from joins.oracle.oracle import tables_after
from joins.query.describe import text_of_plan
from joins.query.plan import Plan
from joins.select.tokens import statements_of
from tests.joins.joincase import Case, events_of, prepared, run_case

TABLES: dict[str, dict[str, Any]] = {
    "shop.a": {"key": ["id"], "id": "int", "x": "int?", "k": "int?", "word": "varchar(9)?"},
    "shop.b": {"key": ["id"], "id": "int", "y": "int?", "k": "int?", "word": "varchar(9)?"},
}


def case(query: str, *row_key: str, history: list[list[Any]] | None = None) -> Case:
    return Case(tables=TABLES, query=query, row_key=list(row_key), history=history or [])


def plan(where: str) -> Plan:
    return case(f"SELECT a.id FROM shop.a a WHERE {where}", "id").plan()


def lookups(found: Plan) -> list[tuple[int, int]]:
    """Return the number of columns and of constants of each lookup."""
    return [(len(one.columns), len(one.constants)) for node in found.nodes() for one in node.lookups]


def test_a_correlated_value_is_looked_up_by_its_columns() -> None:
    """One group per key, and a lookup of the group."""
    assert lookups(plan("a.x > (SELECT avg(b.y) FROM shop.b b WHERE b.k = a.k)")) == [(1, 0)]
    assert lookups(plan("a.x > (SELECT avg(b.y) FROM shop.b b WHERE b.k = a.k AND b.word = a.word)")) == [(2, 0)]


def test_a_value_of_all_rows_is_looked_up_by_a_constant() -> None:
    """The only group has the key 1."""
    assert lookups(plan("a.x > (SELECT avg(b.y) FROM shop.b b)")) == [(0, 1)]


def test_the_cost_of_a_value_of_all_rows_is_reported() -> None:
    """`explain-plan` says that one task has all rows, and what a change costs."""
    cost = "one row for all, so one task has them, and a change of it updates every row of a"
    assert cost in text_of_plan(plan("a.x > (SELECT avg(b.y) FROM shop.b b)"))
    assert cost not in text_of_plan(plan("a.x > (SELECT avg(b.y) FROM shop.b b WHERE b.k = a.k)"))


def test_values_of_the_same_rows_share_a_lookup() -> None:
    """Two aggregates of one subquery, and the two counts of NOT IN."""
    text = "(SELECT {} FROM shop.b b WHERE b.k = a.k)"
    assert lookups(plan(f"a.x BETWEEN {text.format('min(b.y)')} AND {text.format('max(b.y) + count(*)')}")) == [(1, 0)]
    assert lookups(plan("a.x NOT IN (SELECT b.y FROM shop.b b)")) == [(0, 1), (1, 0)]


REFUSED = {
    "a.x > (SELECT b.y FROM shop.b b WHERE b.k = a.k)": "a subquery of single rows as a value",
    "a.x > (SELECT max(b.y), 1 FROM shop.b b)": "a subquery of several columns as a value",
    "a.x > (SELECT max(b.y) FROM shop.b b GROUP BY b.k)": "a subquery with GROUP BY as a value",
    "a.x > (SELECT max(b.y) FROM shop.b b ORDER BY 1 LIMIT 1)": "a subquery with LIMIT as a value",
    "a.x > (SELECT max(b.y) + b.k FROM shop.b b)": "b.k, which is not aggregated in a subquery",
    "a.x > (SELECT max(b.y) FROM shop.b b WHERE b.k > a.k)": "b.k > a.k between a subquery and its outer query",
    "a.x > (SELECT max(b.y) FROM shop.b b WHERE b.k = a.k + 1)": "a.k + 1 compared with a subquery",
    "EXISTS (SELECT 1 FROM shop.b b WHERE b.k > a.k AND b.y < a.x)": "b.k > a.k between a subquery and its outer query",
    "EXISTS (SELECT max(b.y) FROM shop.b b WHERE b.k = a.k AND b.y <> a.x)": "b.y <> a.x between a subquery",
    "a.x = 1 OR a.x NOT IN (SELECT b.y FROM shop.b b)": "a subquery here is not supported",
}


@pytest.mark.parametrize("where", REFUSED)
def test_refusals(where: str) -> None:
    """The error has the position of the part that is not supported."""
    with pytest.raises(TopologyError) as error:
        plan(where)
    assert REFUSED[where] in error.value.what.replace("`", "")
    assert "query line 1, column" in str(error.value)


def test_a_list_as_a_value_is_refused() -> None:
    """Of no rows it is an empty list; the LEFT JOIN would give NULL."""
    query = "SELECT a.id, (SELECT collect_list(b.y) FROM shop.b b WHERE b.k = a.k) AS ys FROM shop.a a"
    with pytest.raises(TopologyError, match=r"(?i)collect_list.* in a subquery as a value"):
        case(query, "id").plan()


@pytest.mark.parametrize(
    ("order", "replaced"),
    [("x", "8 - a.x"), ("-x DESC", "-(8 - a.x) DESC"), ("2", "8 - a.x"), ("a.x", "a.x"), ("max(x)", "MAX(x)")],
)
def test_names_in_order_by_are_those_of_the_result(order: str, replaced: str) -> None:
    """As in Spark, also within expressions: `x` is the column of the result and not of the table."""
    statement = statements_of(f"SELECT a.id, 8 - a.x AS x FROM shop.a a ORDER BY {order} LIMIT 2")[0]
    assert statement is not None
    written = statement.sql("duckdb").replace(" NULLS FIRST", "").replace(" NULLS LAST", "")
    assert written.endswith(f"QUALIFY ROW_NUMBER() OVER (ORDER BY {replaced}) <= 2")


def test_a_value_beside_an_aggregate_of_all_rows_is_refused() -> None:
    """The one row of a query without GROUP BY exists without rows, and `max` of the value would be NULL."""
    query = "SELECT 'all' AS k, count(*) - (SELECT count(*) FROM shop.b b) AS n FROM shop.a a"
    with pytest.raises(TopologyError, match="a subquery with an aggregate of all rows"):
        case(query, "k").plan()


def test_a_value_in_groups_must_be_of_the_group() -> None:
    """`a.x` may differ between the rows of a group."""
    query = "SELECT a.k, (SELECT count(*) FROM shop.b b WHERE b.y = a.{}) AS n FROM shop.a a GROUP BY a.k"
    case(query.format("k"), "k").plan()
    with pytest.raises(TopologyError, match=r"a\.x in a subquery of groups"):
        case(query.format("x"), "k").plan()


PUTS: dict[str, list[list[Any]]] = {
    "a": [[1, 5, 1, "p"], [2, None, 1, "q"], [3, 7, None, None]],
    "b": [[1, 5, 1, "p"], [2, 6, 1, None]],
}


def put(name: str, values: list[Any]) -> list[Any]:
    table = TABLES[f"shop.{name}"]
    return ["put", f"shop.{name}", dict(zip([column for column in table if column != "key"], values, strict=True))]


@pytest.mark.parametrize(
    "where",
    [
        "a.x NOT IN (SELECT b.y FROM shop.b b)",
        "a.x NOT IN (SELECT b.y FROM shop.b b WHERE b.k = a.k)",
        "a.x NOT IN (SELECT b.y FROM shop.b b GROUP BY b.y HAVING count(*) > 1)",
        "a.x NOT IN (SELECT DISTINCT b.y FROM shop.b b WHERE b.word = 'p')",
        "EXISTS (SELECT * FROM shop.b b WHERE b.k = a.k AND b.y <> a.x)",
        "NOT EXISTS (SELECT * FROM shop.b b WHERE b.k = a.k AND b.y <> a.x)",
        "NOT EXISTS (SELECT 1 FROM shop.b b WHERE a.x >= b.y)",
        "a.x >= (SELECT count(*) FROM shop.b b)",
        "a.x <= (SELECT 2 * sum(b.y) FROM shop.b b WHERE b.k = a.k)",
        "coalesce(a.x, 0) > (SELECT count(b.y) FROM shop.b b WHERE b.word = a.word)",
    ],
)
def test_nulls_and_empty_lists_mean_what_sql_says(where: str) -> None:
    """Values appear, become NULL, change and vanish; the result equals DuckDB's at every step."""
    history = [put("a", row) for row in PUTS["a"]] + [["quiet"]]
    for row in PUTS["b"]:
        history += [put("b", row), ["quiet"]]
    history += [
        put("b", [3, None, 1, "p"]),
        ["quiet"],
        put("b", [3, 7, 2, "p"]),
        ["quiet"],
        put("a", [2, 6, 2, "p"]),
        ["quiet"],
    ]
    history += [["delete", "shop.b", {"id": number}] for number in (1, 2)] + [
        ["quiet"],
        ["delete", "shop.b", {"id": 3}],
    ]
    run_case(case(f"SELECT a.id, a.x FROM shop.a a WHERE {where}", "id", history=history), seed=1)


@pytest.mark.parametrize("word", ["LIKE", "ILIKE"])
def test_not_like_is_the_opposite_of_like(word: str) -> None:
    """Rows without a text have neither."""
    rows: list[list[Any]] = [[1, 5, 1, "apple"], [2, 5, 1, "pear"], [3, 5, 1, None]]
    for form in (f"a.word NOT {word} 'a%'", f"NOT a.word {word} 'a%'"):
        assert "NOT" in text_of_plan(plan(form))
        run_case(case(f"SELECT a.id FROM shop.a a WHERE {form}", "id", history=[put("a", row) for row in rows]), 0)


def test_a_left_join_by_a_constant_keeps_its_other_conditions() -> None:
    """The row of b must also have the value of c."""
    tables = {**TABLES, "shop.c": {"key": ["id"], "id": "int", "z": "int?"}}
    query = (
        "SELECT a.id, b.word FROM shop.a a LEFT JOIN shop.c c ON c.id = a.k "
        "LEFT JOIN shop.b b ON b.id = 5 AND b.y = c.z"
    )
    found = Case(tables=tables, query=query, row_key=["id"], history=[]).plan()
    assert "b.y" in text_of_plan(found)


@pytest.mark.parametrize(
    ("query", "what"),
    [
        ("SELECT a.id FROM shop.a a WHERE a.x IN (SELECT b.y FROM shop.b b ORDER BY b.y LIMIT 3)", "LIMIT or QUALIFY"),
        (
            "SELECT a.id FROM shop.a a WHERE EXISTS (SELECT 1 FROM shop.b b WHERE b.k = a.k ORDER BY b.k LIMIT 1)",
            "LIMIT or QUALIFY",
        ),
        ("SELECT a.id FROM shop.a a WHERE a.x IN ((SELECT b.y FROM shop.b b) ORDER BY y LIMIT 1)", "ORDER"),
        ("(SELECT a.id, a.x FROM shop.a a) ORDER BY x LIMIT 3", "ORDER BY"),
        ("SELECT * FROM shop.a a ORDER BY 2 LIMIT 3", "ORDER BY"),
        ("SELECT a.id, a.x FROM shop.a a ORDER BY 5 LIMIT 3", "ORDER BY"),
        ("SELECT a.id FROM shop.a a ORDER BY a.x LIMIT 3 BY k", "ORDER BY"),
        ("SELECT a.id FROM shop.a a WHERE a.x BETWEEN SYMMETRIC 5 AND 1", "SYMMETRIC"),
        ("SELECT a.id, CAST(a.word AS INT DEFAULT 0 ON CONVERSION ERROR) AS n FROM shop.a a", "DEFAULT"),
        ("SELECT a.id, DATE'2026-01-01' + INTERVAL '5' DAY TO SECOND AS d FROM shop.a a", "INTERVAL"),
        ("SELECT a.id, ceil(CAST(a.x AS DECIMAL(9,2)) TO DAY) AS n FROM shop.a a", "ceil"),
    ],
)
def test_what_would_be_ignored_is_refused(query: str, what: str) -> None:
    """A clause or argument that changes the meaning is computed, or it is an error."""
    with pytest.raises(TopologyError, match=f"(?i){what}"):
        case(query, "id").plan()


def test_a_name_in_order_by_is_a_column_of_the_result() -> None:
    """Also without AS, and if two tables have a column of this name."""
    query = "SELECT b.k, a.id FROM shop.a a JOIN shop.b b ON b.id = a.x ORDER BY k LIMIT 3"
    assert "b.k" in text_of_plan(case(query, "id").plan())


def test_a_value_within_a_query_in_from_is_a_lookup_too() -> None:
    """Its table has the name of the inner query before its own."""
    inner = "SELECT a.id, a.x FROM shop.a a WHERE a.x > (SELECT avg(b.y) FROM shop.b b)"
    query = f"SELECT q.id, q.x, b.y FROM ({inner}) q LEFT JOIN shop.b b ON b.id = q.x"
    assert (0, 1) in lookups(case(query, "id").plan())


@pytest.mark.parametrize(
    ("value", "joined"),
    [
        ("string_agg(DISTINCT a.id, ',')", {"p": "9,10,11", "q": "1"}),  # the column x is no variable of the oracle
        ("string_agg(a.id, ',') WITHIN GROUP (ORDER BY a.k, a.id)", {"p": "9,10,11", "q": "1"}),
        ("group_concat(a.id ORDER BY a.k, a.id DESC SEPARATOR ';')", {"p": "11;10;9", "q": "1"}),
        ("string_agg(a.id, ',') WITHIN GROUP (ORDER BY a.id)", {"p": "9,10,11", "q": "1"}),
    ],
)
def test_numbers_are_joined_in_the_order_of_numbers(value: str, joined: dict[str, str]) -> None:
    """Their texts have another order."""
    rows = [(9, "p"), (10, "p"), (11, "p"), (1, "q")]
    history: list[list[Any]] = [["put", "shop.a", {"id": id_, "x": 1, "k": 1, "word": word}] for id_, word in rows]
    made = case(f"SELECT a.word, {value} AS v FROM shop.a a GROUP BY a.word", "word", history=history)
    run_case(made, 0)
    events = [event for some in events_of(made) for event in some]
    keys = {table: schema.primary_key for table, schema in made.schemas().items()}
    found = prepared(made).answer(tables_after(events, keys)).values()
    assert {row["word"]: row["v"] for row in found} == joined
