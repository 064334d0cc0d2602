"""Columns of outer queries without their table, and equalities that all alternatives of an OR share."""

from __future__ import annotations

from typing import Any

import duckdb
import pytest
import sqlglot
from sqlglot import exp

from cdc.model.errors import TopologyError
from joins.query.describe import text_of_plan
from joins.select.connected import factored
from joins.select.parser import check_query, tables_of
from joins.select.rewrite.outer_columns import unknown_in_orders, with_outer_columns
from tests.joins.joincase import Case, run_case

KNOWN = {
    ("s", "a"): ["id", "x", "k"], ("s", "b"): ["id", "y", "kb"], ("s", "c"): ["id", "z", "x"], ("view",): ["v"],
}  # fmt: skip


def named(query: str) -> str:
    found = with_outer_columns(sqlglot.parse_one(query, read="spark"), lambda parts: KNOWN.get(parts))
    return found.sql("spark").replace("`", "")


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("SELECT 1 FROM s.b WHERE kb = k", "kb = a.k"),
        ("SELECT 1 FROM s.b WHERE KB = K", "KB = a.K"),
        ("SELECT 1 FROM s.b WHERE b.kb = x AND id = y", "b.kb = a.x AND id = y"),  # the inner id
        ("SELECT 1 FROM s.b WHERE kb = v", "kb = view.v"),
        ("SELECT 1 FROM s.b JOIN s.c ON c.id = kb WHERE x = y AND k = y", "x = y AND a.k = y"),  # x of c
        ("SELECT 1 FROM (SELECT y AS k FROM s.b) q WHERE q.k = x", "q.k = a.x"),
        ("SELECT 1 FROM (SELECT * FROM s.b) q WHERE kb = k", "kb = k"),  # not known
        ("SELECT 1 FROM s.b WHERE kb IN (SELECT z FROM s.c WHERE y = k)", "b.y = a.k"),
        ("SELECT max(y) AS k FROM s.b HAVING k > 1", "HAVING k > 1"),
        ("SELECT y AS k FROM s.b WHERE kb = k", "kb = a.k"),  # WHERE does not know the result's k
        ("WITH w AS (SELECT kb FROM s.b) SELECT 1 FROM w WHERE kb = k", "kb = a.k"),
        ("SELECT 1 FROM s.b a WHERE a.kb = k", "a.kb = k"),  # the table that has k has another's name
        ("SELECT 1 FROM s.b UNION SELECT 1 FROM s.c WHERE z = k", "z = a.k"),
    ],
)
def test_columns_of_outer_tables_are_named(written: str, meant: str) -> None:
    """A name is one of the innermost query whose tables have it."""
    text = named(f"SELECT a.id FROM s.a, view WHERE EXISTS ({written})")
    assert meant in text
    assert named(text) == text


def test_a_query_without_subqueries_is_not_changed() -> None:
    """The same object, so that its plan cannot differ."""
    query = sqlglot.parse_one("SELECT id FROM s.a WHERE x = 1", read="spark")
    assert with_outer_columns(query, lambda parts: KNOWN.get(parts)) is query


@pytest.mark.parametrize(
    ("query", "unknown"),
    [
        ("SELECT id, x + 1 AS more FROM s.a ORDER BY more, ID, a.k DESC, 2", []),
        ("SELECT id FROM s.a ORDER BY y", ["y"]),
        ("SELECT id FROM s.a ORDER BY a.y, b.id, 2, 0", ["a.y", "b.id", "2", "0"]),
        ("SELECT q.n FROM (SELECT id AS n FROM s.a ORDER BY z) q ORDER BY q.id", ["z", "q.id"]),
        ("SELECT * FROM s.a ORDER BY k, y, 9", ["y"]),
        ("SELECT id FROM s.unknown ORDER BY y", []),
        ("SELECT id FROM s.a UNION SELECT kb FROM s.b ORDER BY id, kb", ["kb"]),
        ("SELECT id FROM s.a EXCEPT SELECT kb FROM s.b ORDER BY kb", ["kb"]),
        ("SELECT x FROM s.a GROUP BY ROLLUP (x) ORDER BY count(*), sum(y)", ["y"]),
        ("SELECT id FROM s.a WHERE EXISTS (SELECT 1 FROM s.b WHERE kb = id ORDER BY x, w)", ["w"]),
        ("WITH w AS (SELECT kb AS n FROM s.b) SELECT n FROM w ORDER BY n, kb", ["kb"]),
        ("SELECT id FROM s.a ORDER BY (SELECT max(y) FROM s.b WHERE kb = id)", []),
        ("SELECT a.id FROM s.a JOIN s.b USING (id) ORDER BY id, y, z", ["z"]),
        ("SELECT id FROM s.a ORDER BY y LIMIT 3", []),  # checked where it is computed
    ],
)
def test_unknown_columns_of_an_order_without_effect(query: str, unknown: list[str]) -> None:
    """Such a clause is left out, but a wrong name in it is an error, as everywhere."""
    assert [one.sql() for one in unknown_in_orders(query, lambda parts: KNOWN.get(parts))] == unknown
    assert unknown_in_orders(query, None) == []


def test_an_unknown_column_is_refused_with_its_place() -> None:
    """The rest of the query is as before."""
    assert case("SELECT pid FROM shop.part ORDER BY brand", "pid").plan()
    with pytest.raises(TopologyError, match=r"unknown column colour in ORDER BY \(query line 2, column 10\)"):
        case("SELECT pid FROM shop.part\nORDER BY colour", "pid").plan()


@pytest.mark.parametrize(
    ("condition", "found"),
    [
        ("(a = b AND c = 1) OR (a = b AND d = 2)", ["a = b", "c = 1 OR d = 2"]),
        ("(a = b AND c = 1 AND e) OR (a = b AND d) OR (f AND a = b)", ["a = b", "c = 1 AND e OR d OR f"]),
        ("(a = b AND c = 1) OR a = b", ["a = b"]),
        ("(a = b AND c = 1) OR (b = a AND d = 2)", ["a = b", "c = 1 OR d = 2"]),
        ("(a = b AND c = 1) OR (A = B AND d = 2)", ["a = b", "c = 1 OR d = 2"]),
        ("(a = b AND c) OR (a = d AND e)", ["(a = b AND c) OR (a = d AND e)"]),
        ("a = b", ["a = b"]),
    ],
)
def test_what_all_alternatives_share(condition: str, found: list[str]) -> None:
    """It becomes a condition of its own, and the rest has the same values, NULL included."""
    parsed = sqlglot.parse_one(condition)
    plain = [one.sql().replace("(", "").replace(")", "") for one in factored([parsed])]
    assert plain == [text.replace("(", "").replace(")", "") for text in found]
    names = sorted({column.name.lower() for column in parsed.find_all(exp.Column)})
    database = duckdb.connect()
    typed = {name: "BOOLEAN" if name in "ef" or f"{name})" in condition else "INT" for name in names}
    domain = {
        name: "(NULL), (true), (false)" if kind == "BOOLEAN" else "(NULL), (1), (2)" for name, kind in typed.items()
    }
    tables = ", ".join(f"(VALUES {domain[name]}) v{name}({name})" for name in names)
    both = f"({condition}), ({' AND '.join(f'({one.sql()})' for one in factored([parsed]))})"
    for before, after in database.execute(f"SELECT {both} FROM {tables}").fetchall():
        assert before == after


TABLES: dict[str, dict[str, Any]] = {
    "shop.part": {"key": ["pid"], "pid": "int", "brand": "varchar(9)?"},
    "shop.lines": {"key": ["lid"], "lid": "int", "part_id": "int?", "qty": "int?"},
}


def case(query: str, key: str, history: list[list[Any]] | None = None) -> Case:
    return Case(tables=TABLES, query=query, row_key=[key], history=history or [])


def test_such_queries_are_checked_without_schemas() -> None:
    """`validate` knows no columns, so it takes the equality for one with the outer query."""
    made = case("SELECT pid FROM shop.part WHERE EXISTS (SELECT 1 FROM shop.lines WHERE part_id = pid)", "pid")
    topology = made.topology()
    assert check_query(topology, topology.tables["wide"]) == ["pid"]
    assert len(tables_of(topology, topology.tables["wide"])) == 2


def test_an_equality_within_the_subquery_is_none_with_the_outer_query() -> None:
    """The schemas show that both columns belong to the subquery."""
    made = case("SELECT pid FROM shop.part WHERE EXISTS (SELECT 1 FROM shop.lines WHERE part_id = qty)", "pid")
    with pytest.raises(TopologyError, match="EXISTS without an equality with the outer query"):
        made.plan()


def test_names_and_plans_are_those_of_the_query_with_tables() -> None:
    """The table's name changes nothing else."""
    texts = [
        f"SELECT lid FROM shop.lines l, shop.part WHERE part_id = pid AND qty < (SELECT avg(x.qty) FROM shop.lines x"
        f" WHERE x.part_id = {pid})"
        for pid in ("pid", "part.pid")
    ]
    one, other = (text_of_plan(case(text, "lid").plan()) for text in texts)
    assert one == other


def test_a_join_within_or_is_its_select() -> None:
    """The equality that all alternatives share joins the tables."""
    query = (
        "SELECT lid, brand FROM shop.lines, shop.part WHERE (pid = part_id AND brand = 'a' AND qty > 1)"
        " OR (pid = part_id AND brand = 'b' AND qty < 1)"
    )
    history: list[list[Any]] = [
        *(["put", "shop.part", {"pid": pid, "brand": "ab"[pid % 2]}] for pid in range(4)),
        *(["put", "shop.lines", {"lid": lid, "part_id": lid % 5, "qty": lid % 3}] for lid in range(20)),
        ["quiet"],
        ["put", "shop.part", {"pid": 0, "brand": None}],
        ["delete", "shop.part", {"pid": 1}],
    ]
    for seed in range(5):
        run_case(case(query, "lid", history), seed)


@pytest.mark.parametrize("pid", ["pid", "p.pid"])
def test_a_join_within_or_that_others_continue_is_its_select(pid: str) -> None:
    """A further table is joined to the second one, which only the alternatives join to the first."""
    query = (
        f"SELECT lid, brand, m.qty AS more FROM shop.lines l, shop.part p, shop.more m WHERE m.mid = {pid} AND "
        f"(({pid} = l.part_id AND brand = 'a') OR ({pid} = l.part_id AND l.qty < 2))"
    )
    history: list[list[Any]] = [
        *(["put", "shop.part", {"pid": one, "brand": "ab"[one % 2]}] for one in range(4)),
        *(["put", "shop.more", {"mid": one, "qty": one}] for one in range(3)),
        *(["put", "shop.lines", {"lid": one, "part_id": one % 5, "qty": one % 3}] for one in range(20)),
        ["quiet"],
        ["put", "shop.part", {"pid": 0, "brand": None}],
        ["delete", "shop.more", {"mid": 1}],
    ]
    tables = {**TABLES, "shop.more": {"key": ["mid"], "mid": "int", "qty": "int?"}}
    for seed in range(3):
        run_case(Case(tables=tables, query=query, row_key=["lid"], history=history), seed)
