"""The supported shape of a query is understood; anything else is refused with its position."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sqlglot import exp

from cdc.model.errors import TopologyError
from cdc.model.schema import Column, TableId, TableSchema
from cdc.model.types import Canonical
from cdc.topology.reader import read_topology
from cdc.topology.topology import Topology
from joins.kernel.program import program_of
from joins.query.plan import Plan
from joins.runtime.records import Values
from joins.select.compiler import compile_plan, ties_of
from joins.select.parser import check_query, parse_query, tables_of
from joins.select.sql import Select, place_of
from joins.select.tokens import statements_of, without_effect
from tests.joins.evaluator import Evaluator

HEAD = """name: shape
sources:
  shop: {type: mysql, hostname: h, username: u, password: p, database: shop, tables: [orders, old.lines], server_id: 1}
  crm: {type: mysql, hostname: h, username: u, password: p, database: crm, tables: [customers], server_id: 2}
tables:
  wide:
    query: |
"""
FIRST_LINE = 8  # of a query in HEAD's file


def topology(query: str, row_key: str = "[id]") -> Topology:
    lines = "".join(f"      {line}\n" for line in query.strip().splitlines())
    return read_topology(f"{HEAD}{lines}    row_key: {row_key}\n", file="shape.yml", environ={})


def schema(table: TableId, columns: dict[str, str], key: tuple[str, ...] = ("id",)) -> TableSchema:
    made = tuple(Column(name=n, column_type=t.removesuffix("?"), nullable=t.endswith("?")) for n, t in columns.items())
    return TableSchema(table_id=table, version=1, columns=made, primary_key=key)


ORDERS = TableId(source="shop", database="shop", table="orders")
LINES = TableId(source="shop", database="old", table="lines")
CUSTOMERS = TableId(source="crm", database="crm", table="customers")
SCHEMAS = {
    ORDERS: schema(ORDERS, {"id": "int", "customer_id": "bigint?", "code": "varchar(9)?", "rate": "double?"}),
    LINES: schema(LINES, {"order_id": "int", "nr": "int", "rate": "double"}, ("order_id", "nr")),
    CUSTOMERS: schema(CUSTOMERS, {"id": "int", "name": "varchar(9)", "rate": "double"}),
}


def compiled(query: str, row_key: str = "[id]") -> Plan:
    made = topology(query, row_key)
    return compile_plan(made, made.tables["wide"], SCHEMAS)


def check(query: str, row_key: str = "[id]") -> list[str] | None:
    made = topology(query, row_key)
    return check_query(made, made.tables["wide"])


FROM = "FROM shop.orders o"
JOIN = "LEFT JOIN crm.customers c ON c.id = o.customer_id"


def test_shape_is_understood() -> None:
    """Aliases, three-part names, either side of ON, backticks and comments are supported."""
    made = topology(
        f"SELECT o.id, c.`name` AS customer -- who\n{FROM}\n"
        "LEFT OUTER JOIN crm.crm.customers AS c ON (o.customer_id = c.id)"
    )
    select = parse_query(made, made.tables["wide"])
    assert isinstance(select, Select)
    assert tables_of(made, made.tables["wide"]) == {ORDERS, CUSTOMERS}
    assert [(join.relation.alias, join.inner, join.place.line) for join in select.joins] == [("c", False, 2)]
    assert check_query(made, made.tables["wide"]) == ["id", "customer"]


def test_zero_joins_need_no_alias() -> None:
    """A table is copied unchanged: topologies/smallest.yml."""
    assert check("SELECT id, code AS x FROM shop.orders") == ["id", "x"]


def test_star_names_are_open_until_schemas_are_known() -> None:
    """`t.*` is allowed; its names come from the schema."""
    assert check(f"SELECT o.* {FROM}") is None
    plan = compiled(f"SELECT o.*, c.name {FROM} {JOIN}")
    assert [output.name for output in plan.outputs] == ["id", "customer_id", "code", "rate", "name"]
    assert [output.index for output in plan.outputs] == [0, 1, 2, 3, 5]


@pytest.mark.parametrize(
    "window",
    ["max_by(O.code, o.rate) OVER (ORDER BY O.rate ROWS 2 PRECEDING)", "lag(o.code, 2) OVER (ORDER BY o.rate)"],
)
def test_a_window_has_one_place(window: str) -> None:
    """By it verify's oracle finds the key that decides between equal rows, also if constants have places, too."""
    made = topology(f"SELECT o.id, {window} AS v {FROM}")
    [node] = parsed(made).find_all(exp.Window)
    assert list(ties_of(made, made.tables["wide"], SCHEMAS)) == [place_of("wide", node)]


def parsed(made: Topology) -> exp.Expr:
    [found] = statements_of(made.tables["wide"].query)
    assert found is not None
    return found


@pytest.mark.parametrize("query", [f"SELECT o.id {FROM}", f"SELECT o.id {FROM} UNION SELECT o.id {FROM}"])
def test_an_order_without_limit_has_no_effect(query: str) -> None:
    """It is accepted, because queries often end so, and reported."""
    assert check(f"{query} ORDER BY id DESC") == ["id"]
    for text, found in ((query, []), (f"{query} ORDER BY id", ["ORDER BY without LIMIT"])):
        made = topology(text)
        assert [one[:22] for one, _ in without_effect(made, made.tables["wide"])] == found


@pytest.mark.parametrize(
    ("query", "where", "says"),
    [
        (f"SELECT o.id\n{FROM}\nLIMIT 3", (3, 7), "LIMIT is not supported"),
        (f"SELECT DISTINCT ON (o.code) o.id\n{FROM} LIMIT 3", (1, 21), "DISTINCT ON here is not supported, expected"),
        (f"SELECT DISTINCT ON (o.code) o.id\n{FROM} ORDER BY o.id", (1, 21), "ORDER BY o.x, o.y"),
        (f"WITH RECURSIVE x AS (SELECT 1)\nSELECT o.id {FROM}", (1, 16), "WITH RECURSIVE is not supported"),
        (
            f"SELECT o.id {FROM}\nEXCEPT ALL\nSELECT o.id\n{FROM}",
            (3, 8),
            "EXCEPT ALL is not supported, expected DISTINCT",
        ),
        (
            f"SELECT o.id {FROM}\nUNION ALL\n(SELECT o.id {FROM} UNION SELECT o.id {FROM})",
            (3, 9),
            "UNION within UNION ALL, expected the UNION as a table of its own under `tables:`",
        ),
        (f"SELECT o.id {FROM}\nWHERE sum(o.rate) > 1", (2, 7), "SUM(o.rate) where rows are not grouped yet"),
        (f"SELECT sum(count(o.id)) AS s {FROM}", (1, 8), "an aggregate within SUM(COUNT(o.id)), expected the inner"),
        (f"SELECT first(o.id) AS s {FROM}", (1, 8), "FIRST(o.id) is not supported, expected min, max, or max_by"),
        (
            f"SELECT collect_list(DISTINCT o.id) AS s {FROM}",
            (1, 8),
            "DISTINCT in COLLECT_LIST(DISTINCT o.id), expected co",
        ),
        (f"SELECT o.*, count(*) AS n {FROM} GROUP BY o.id", (1, 8), "* of groups, expected the columns of GROUP BY"),
        (
            f"SELECT o.id {FROM} GROUP BY ROLLUP (o.id) ORDER BY o.id LIMIT 3",
            (1, 49),
            "ROLLUP here is not supported, expected it in FROM (SELECT …) name, without ORDER BY",
        ),
        (f"SELECT o.id {FROM} GROUP BY ALL", (1, 1), "GROUP BY ALL is not supported, expected GROUP BY a, b"),
        (
            f"SELECT o.id, row_number() OVER w AS n {FROM}",
            (1, 14),
            "OVER w, a window with a name (query line 1, column 14), expected rank() OVER (PARTITION BY a.x ORDER BY",
        ),
        (
            f"SELECT o.id\n{FROM}\nWHERE rank() OVER (ORDER BY o.id) < 3",
            (3, 7),
            "RANK() OVER (ORDER BY o.id) in a condition (query line 3, column 7), expected QUALIFY, or",
        ),
        (f"SELECT o.id,\n  rand() AS x\n{FROM}", (2, 3), "RAND() is not supported, expected one of the functions"),
        (f"SELECT o.id,\n  o.rate + 1\n{FROM}", (2, 3), "o.rate + 1 without a name"),
        (f"SELECT o.id\n{FROM}\nWHERE o.id IN (SELECT 1)", (3, 23), "a subquery that is not SELECT … FROM …"),
        (f"SELECT o.id\n{FROM}\nWHERE EXISTS (SELECT 1 FROM shop.old.lines l)", (3, 22), "EXISTS without an equality"),
        (
            f"SELECT o.id\n{FROM}\nWHERE EXISTS (SELECT 1 FROM shop.old.lines l WHERE l.nr > o.id AND l.nr < o.rate)",
            (3, 52),
            "l.nr > o.id between a subquery and its outer query, expected inner.x = outer.y",
        ),
        (
            f"SELECT o.id\n{FROM}\nWHERE o.id = 1 OR EXISTS (SELECT 1 FROM shop.old.lines l WHERE l.nr = o.id)",
            (3, 34),
            "a subquery here is not supported, expected FROM (SELECT …) name",
        ),
        (f"SELECT o.id\n{FROM}\nWHERE x.id > 1", (3, 7), "unknown table x in x.id, expected one of o"),
        (
            f"SELECT id\n{FROM}\n{JOIN} RIGHT JOIN crm.customers d ON d.id = o.customer_id",
            (3, 62),
            "RIGHT JOIN after another join, expected a table's name before each column; or FROM d LEFT JOIN (SELECT …)",
        ),
        (
            f"SELECT o.id\n{FROM}\nLEFT ANTI JOIN crm.customers c USING (id)",
            (3, 16),
            "LEFT ANTI JOIN is not supported yet, expected WHERE NOT EXISTS (SELECT 1 FROM crm.customers AS c WHERE",
        ),
        (f"SELECT o.id\n{FROM}\nLEFT JOIN crm.customers c", (3, 11), "a join without ON"),
        (f"SELECT o.id\n{FROM}\nLEFT JOIN (SELECT 1) c ON c.id = o.id", (3, 19), "no FROM"),
        (
            "SELECT o.id\nFROM shop.nothing o",
            (2, 6),
            "unknown table shop.nothing (query line 2, column 6), expected one of shop.orders, shop.old.lines",
        ),
        ("SELECT o.id\nFROM orders o", (2, 6), "unknown table orders"),
        ("SELECT o.id\nFROM wide o", (2, 6), "wide reads itself: wide → wide"),
        (f"SELECT o.id,\n x.name {FROM}", (2, 2), "unknown table x in x.name"),
        (f"SELECT o.id,\n  o.code AS id\n{FROM}", (2, 3), "column id twice"),
        (f"SELECT o.id,\n  o.code AS _code\n{FROM}", (2, 3), "column _code"),
        (f"SELECT o.id\n{FROM}\nLEFT JOIN crm.customers o ON o.id = o.customer_id", (3, 11), "o names two tables"),
        (f"SELECT o.id,, o.code\n{FROM}", (1, 13), "not SQL"),
        ("SELECT o.id\nFROM shop.orders o\nLEFT JOIN", (3, 9), "not SQL"),
        (f"SELECT o.id, 'it''s' AS x {FROM}", (1, 20), "two texts side by side: 'it' 's'"),
        (
            f"SELECT o.id,\n date_format(o.code, '%Y-%m-%d %H:%i %p') AS d {FROM}",
            (2, 22),
            "pattern '%Y-%m-%d %H:%i %p' of date_format (query line 2, column 22), expected of yyyy MM dd HH mm ss and "
            "- / : . _ and blanks: 'yyyy-MM-dd HH:mm:ss'",
        ),
        (f"SELECT o.id, Date_Format(upper(o.code), 'EEE') AS d {FROM}", (1, 41), "pattern 'EEE' of date_format"),
        (f"SELECT o.id, date_format(o.code, o.code) AS d {FROM}", (1, 36), "pattern code of date_format"),
        (
            f"SELECT o.id,\n o.code -> '$.x' AS x {FROM}",
            (2, 2),
            "o.code -> '$.x', whose texts keep their quotes, is not supported (query line 2, column 2), expected "
            "o.code ->> '$.x', or get_json_object(o.code, '$.x')",
        ),
        (f"SELECT o.id, json_extract(o.code, '$.x') AS x {FROM}", (1, 14), "json_extract(o.code, '$.x'), whose texts"),
        (
            f"SELECT o.id, json_unquote(json_extract(o.code, '$.x')) AS x {FROM}",
            (1, 14),
            "json_unquote is not supported (query line 1, column 14), expected x ->> '$.a', or",
        ),
        ("DELETE FROM shop.orders", (1, 13), "expected a SELECT"),
        ("SELECT 1", (1, 8), "no FROM"),
        (f"SELECT o.id {FROM};\nSELECT o.id {FROM}", (1, 1), "not one statement"),
    ],
)
def test_refused_where_it_stands(query: str, where: tuple[int, int], says: str) -> None:
    """The error has file, line and column, and the nearest form that works; no schema is needed for that."""
    with pytest.raises(TopologyError) as caught:
        check(query)
    line, column = where
    assert f"shape.yml:{FIRST_LINE + line - 1}: tables.wide.query: " in str(caught.value)
    assert f"(query line {line}, column {column})" in str(caught.value)
    assert says.partition(", expected")[0] in str(caught.value)
    assert says.rpartition("expected")[2] in str(caught.value)


@pytest.mark.parametrize(
    ("query", "row_key", "says"),
    [
        (f"SELECT o.id,\n o.nothing {FROM}", "[id]", r"shape.yml:9: .*unknown column o.nothing .*one of id, cust"),
        (f"SELECT o.id,\n id AS x\n{FROM}\n{JOIN}", "[id]", "column id is in o and c .*expected o.id or c.id"),
        (
            f"SELECT o.id\n{FROM}\nLEFT JOIN crm.customers c ON c.name = o.code",
            "[id]",
            r"every pair, and c.id is not in",
        ),
        (f"SELECT o.id\n{FROM}\nLEFT JOIN crm.customers c ON c.id = o.code", "[id]", r":10: .*one exact type"),
        (
            f"SELECT o.id\n{FROM}\nLEFT JOIN shop.old.lines l ON l.nr = o.id",
            "[id]",
            r"every pair, and l.order_id is not in it",
        ),
        (f"SELECT o.code, count(*) AS n {FROM} GROUP BY o.code", "[n]", "column n may be NULL|no key of the groups"),
        (f"SELECT count(*) AS n {FROM} GROUP BY o.code", "[n]", "no key of the groups: .*orders.code is not in it"),
        (f"SELECT count(*) AS n {FROM}", "[n]", "one row of all, without a key, expected SELECT 'all' AS scope"),
        (f"SELECT o.id, count(*) AS n {FROM} GROUP BY o.code", "[id]", "o.id is neither grouped nor aggregated"),
        (
            f"SELECT o.code, sum(o.code) AS n {FROM} GROUP BY o.code",
            "[code]",
            r"string in SUM\(o.code\) .*expected a number",
        ),
        (
            f"SELECT o.rate * 1.5e0 AS r, count(*) AS n {FROM} GROUP BY 1",
            "[r]",
            "GROUP BY .*, a float64 .*expected values",
        ),
        (
            f"SELECT id {FROM} UNION ALL SELECT id FROM crm.customers",
            "[id]",
            "no column distinguishes the queries of UNION ALL",
        ),
        (f"SELECT 'o' AS t, id {FROM} UNION ALL SELECT id FROM crm.customers", "[t, id]", "1 columns instead of 2"),
        (
            f"SELECT 'o' AS t, id {FROM} UNION ALL SELECT 'c', name FROM crm.customers",
            "[t, id]",
            "id is int32 and here string",
        ),
        (
            f"SELECT a.code, b.code AS other FROM (SELECT code {FROM} GROUP BY code) a"
            f"\nFULL JOIN (SELECT code {FROM} GROUP BY code) b ON b.code = a.code",
            "[code, other]",
            r"shape.yml:9: .*orders.code and .*orders.code may all be NULL in two of them .*expected WHERE …",
        ),
        (
            f"SELECT o.id, l.order_id, l.nr {FROM}\nFULL JOIN shop.old.lines l ON l.nr = o.id AND o.code = 'a'",
            "[id, order_id, nr]",
            r"shape.yml:9: .*ON o.code = 'a' in a FULL JOIN of many to many .*expected equalities",
        ),
        (f"SELECT o.id\n{FROM}, crm.customers c", "[id]", "no equality joins c .*expected ON c.id = o.c_id"),
        (f"SELECT o.code, o.id {FROM}", "[id, code]", "column code may be NULL"),
        (f"SELECT o.id, upper(o.code) AS up {FROM}", "[up]", "column up is computed"),
        (f"SELECT o.id, c.name {FROM} {JOIN}", "[id, name]", "column name comes from the joined table c"),
        ("SELECT l.order_id AS id FROM shop.old.lines l", "[id]", "l.nr, of the primary key, is not in it"),
        (f"SELECT o.id, o.rate, c.*\n{FROM}\n{JOIN}", "[id]", "column id twice"),
        (f"SELECT o.id, o.code + 1 AS x {FROM}", "[id]", "string and int32 in o.code"),
        (f"SELECT o.id, o.code = 1 AS x {FROM}", "[id]", "string and int32 .*write a CAST"),
        (f"SELECT o.id {FROM} WHERE o.code", "[id]", "o.code is a string.*expected a condition"),
        (f"SELECT o.id, NULL AS x {FROM}", "[id]", "column x is NULL without a type"),
    ],
)
def test_refused_once_schemas_are_known(query: str, row_key: str, says: str) -> None:
    """Errors that need the tables' columns: unknown names, joins off the primary key, invalid row keys, types."""
    with pytest.raises(TopologyError, match=says):
        compiled(query, row_key)


def test_a_column_of_a_type_that_is_not_captured_is_named_where_it_is_used() -> None:
    """A query that does not use it compiles, and `*` omits it; a query that names it gets the reason."""
    schemas = {**SCHEMAS, ORDERS: replace(SCHEMAS[ORDERS], left_out=(("place", "geometry"),))}
    made = topology(f"SELECT * {FROM}")
    outputs = compile_plan(made, made.tables["wide"], schemas).outputs
    assert [output.name for output in outputs] == ["id", "customer_id", "code", "rate"]
    for name in ("o.place", "place"):
        made = topology(f"SELECT o.id,\n {name} {FROM}")
        with pytest.raises(TopologyError, match=r"shape.yml:9: .*shop.shop.orders.place has type geometry, which is"):
            compile_plan(made, made.tables["wide"], schemas)


def test_a_plain_column_that_is_a_set_says_so() -> None:
    """The index counts its members; an expression over it is an ordinary text."""
    columns = (*SCHEMAS[ORDERS].columns, Column(name="tags", column_type="set('a','b')"))
    made = topology(f"SELECT o.id, o.tags, upper(o.tags) AS loud {FROM}")
    plan = compile_plan(made, made.tables["wide"], {**SCHEMAS, ORDERS: replace(SCHEMAS[ORDERS], columns=columns)})
    assert [column.members for column in plan.layout(1).columns] == [False, True, False]


def test_what_the_refusals_name_works() -> None:
    """The forms recommended instead of `->` and of MySQL's patterns compile."""
    columns = (
        *SCHEMAS[ORDERS].columns,
        Column(name="at", column_type="datetime"),
        Column(name="j", column_type="json"),
    )
    made = topology(
        f"SELECT o.id, o.j ->> '$.x' AS a, get_json_object(o.j, '$.x') AS b, date_format(o.at, 'yyyy-MM') AS c {FROM}"
    )
    plan = compile_plan(made, made.tables["wide"], {**SCHEMAS, ORDERS: replace(SCHEMAS[ORDERS], columns=columns)})
    assert [output.name for output in plan.outputs] == ["id", "a", "b", "c"]
    assert plan.last.finish.computed[0].sql == plan.last.finish.computed[1].sql or len(plan.last.finish.computed) == 2


def test_rows_that_null_names_do_not_meet_in_full() -> None:
    """If one side of a FULL JOIN excludes the group of NULL, no two rows have the same id: it compiles."""
    groups = f"(SELECT code {FROM} WHERE o.code IS NOT NULL GROUP BY code)"
    query = f"SELECT a.code, b.code AS other FROM {groups} a FULL JOIN (SELECT code {FROM} GROUP BY code) b"
    plan = compiled(f"{query} ON b.code = a.code", "[code, other]")
    assert plan.nullable_key == ("code", "other")
    assert compiled(f"SELECT g.code FROM {groups} g", "[code]").nullable_key == ()


@pytest.mark.parametrize(
    ("query", "row_key"),
    [
        (
            f"SELECT o.customer_id AS c, count(*) AS n {FROM} JOIN crm.customers c ON c.id = o.customer_id GROUP BY 1",
            "[c]",
        ),
        (
            f"SELECT o.customer_id AS c, o.id, p.id AS other {FROM} JOIN crm.customers c ON c.id = o.customer_id"
            " JOIN shop.orders p ON p.code = o.code",
            "[c, id, other]",
        ),
        (f"SELECT o.code, o.id, p.id AS other {FROM} JOIN shop.orders p ON p.code = o.code", "[code, id, other]"),
    ],
    ids=["groups", "in front of pairs", "pairs"],
)
def test_what_an_inner_join_equals_is_not_null(query: str, row_key: str) -> None:
    """Such a column may be part of a row key, also of derived rows; after a LEFT JOIN it may be NULL."""
    assert compiled(query, row_key).nullable_key == ()
    assert compiled(query.replace(" JOIN", " LEFT JOIN"), row_key).nullable_key[:1] == (
        row_key[1:].split(",")[0].strip("]"),
    )
    with pytest.raises(TopologyError, match="code may be NULL"):
        compiled(f"SELECT o.id, o.code {FROM}", "[id, code]")


def test_plan_reads_only_what_it_uses() -> None:
    """Unused columns are not read: their updates cause no state change."""
    plan = compiled(f"SELECT o.id, c.name {FROM} {JOIN}")
    assert [(node.alias, node.columns) for node in plan.nodes()] == [
        ("o", ("id", "customer_id")),
        ("c", ("id", "name")),
    ]
    assert plan.topics == ("shape.crm.crm.customers", "shape.shop.shop.orders")


def test_root_is_the_table_whose_rows_they_are() -> None:
    """Inner joins may be written in any order, with ON or with commas; the row key is found through equalities."""
    plain = compiled(f"SELECT o.id, c.name {FROM} JOIN crm.customers c ON c.id = o.customer_id")
    for query in (
        "SELECT o.id, c.name FROM crm.customers c JOIN shop.orders o ON o.customer_id = c.id",
        "SELECT o.id, c.name FROM crm.customers c, shop.orders o WHERE c.id = o.customer_id",
        f"SELECT o.id, name {FROM} CROSS JOIN crm.customers c WHERE (o.customer_id = c.id)",
    ):
        assert compiled(query).fingerprint() == plain.fingerprint()
    one_to_one = compiled(f"SELECT c.id, o.code {FROM} JOIN crm.customers c ON c.id = o.id")
    assert one_to_one.last.tree.alias == "o"


def test_inner_join_below_a_left_one_makes_it_inner() -> None:
    """A row that needs another row also needs the rows above it, by SQL's order of joins."""
    plan = compiled(
        f"SELECT o.id, l.rate {FROM} LEFT JOIN crm.customers c ON c.id = o.customer_id"
        " JOIN shop.old.lines l ON l.order_id = c.id AND l.nr = c.id"
    )
    assert [(step.number, step.inner) for step in plan.last.steps] == [(1, True), (0, True)]


def test_conditions_of_one_table_are_filters_and_stay_in_where() -> None:
    """A filter only saves state, so the same plan without filters is still correct."""
    plan = compiled(
        f"SELECT o.id {FROM} JOIN crm.customers c ON c.id = o.customer_id"
        " WHERE c.name LIKE 'a%' AND o.rate > c.rate AND o.code IS NOT NULL"
    )
    root, customers = plan.nodes()
    assert root.filter is not None
    assert root.filter.text == "NOT o.code IS NULL"
    assert customers.filter is not None
    assert customers.filter.text == "c.name LIKE 'a%'"
    assert plan.last.finish.where is not None
    assert plan.last.finish.where.text.count(" AND ") == 2
    left = compiled(f"SELECT o.id {FROM} {JOIN} WHERE c.name IS NULL")
    assert [node.filter for node in left.nodes()] == [None, None]


def test_failing_expressions_have_a_condition_that_reports() -> None:
    """`try_` forms return NULL; a guard such as CASE keeps an expression that is not computed from counting as
    failed."""
    plan = compiled(
        f"SELECT o.id, o.rate / o.id AS a, CASE WHEN o.id > 0 THEN o.rate / o.id END AS b, upper(o.code) AS c {FROM}"
    )
    division, case, upper = plan.last.finish.computed
    assert "try_divide({" in division.sql
    assert division.failed is not None
    assert "IS NULL" in division.failed
    assert case.failed is not None
    assert "> 0" in case.failed
    assert upper.failed is None


def test_checkpoints_of_before_go_on() -> None:
    """Golden: the fingerprint of a state, and the order of the steps by which Spark numbers it. Either may change only
    together with STATE_FORMATS, which forces a rebuild."""
    chain = f"SELECT o.id, c.name, l.rate {FROM} JOIN crm.customers c ON c.id = o.customer_id"
    chain += " LEFT JOIN shop.old.lines l ON l.order_id = c.id AND l.nr = c.id"
    star = f"SELECT o.id, c.name, d.name AS other {FROM} JOIN crm.customers c ON c.id = o.customer_id"
    star += " LEFT JOIN crm.customers d ON d.id = o.id"
    plans = [compiled(query) for query in (f"SELECT o.id {FROM}", chain, star)]
    programs = [program_of(plan, {}) for plan in plans]
    found = [(plan.fingerprint(), [level.steps for level in part.levels])
             for plan, (part,) in zip(plans, programs, strict=True)]  # fmt: skip
    assert found == [
        ("1b84749a02a8d185", [()]),
        ("c1b5291be765b0a0", [("KeyedJoin",), ("KeyedJoin",)]),
        ("3075d873918181cc", [("KeyedJoin", "Assemble")]),
    ]


def test_checkpoints_of_groups_over_joins_of_before_go_on() -> None:
    """Golden: what version 0.2 computed, whose groups have a change detector behind the joins."""
    chain = f"{FROM} JOIN crm.customers c ON c.id = o.customer_id"
    star = f"{chain} LEFT JOIN crm.customers d ON d.id = o.id"
    plans = [compiled(f"SELECT c.name, COUNT(*) AS n {some} GROUP BY c.name", "[name]") for some in (chain, star)]
    steps = ("ChangeDetector", "Combine", "Aggregate")
    found = [(plan.fingerprint(), [level.steps for level in one.levels], one.steps)
             for plan in (one.in_format(5) for one in plans) for one in program_of(plan, {})[:1]]  # fmt: skip
    assert found == [
        ("433dab6169fc2b94", [("KeyedJoin",)], steps),
        ("d12f432abe5f4601", [("KeyedJoin", "Assemble")], steps),
    ]


def test_a_key_that_may_be_null_is_another_state() -> None:
    """The layout records it and the old checkpoint is refused: its rows have other keys. Columns outside the key do not
    matter."""
    plain = compiled(f"SELECT o.id, o.code {FROM}")
    key, code = plain.outputs
    finish = replace(plain.last.finish, outputs=(replace(key, nullable=True), replace(code, nullable=True)))
    nullable = replace(plain, fragments=(replace(plain.last, finish=finish),))
    assert (plain.layout(1).nullable_key, nullable.layout(1).nullable_key) == ((), ("id",))
    assert nullable.fingerprint() != plain.fingerprint()
    finish = replace(plain.last.finish, outputs=(key, replace(code, nullable=True)))
    assert replace(plain, fragments=(replace(plain.last, finish=finish),)).fingerprint() == plain.fingerprint()


def test_a_renamed_alias_keeps_fingerprint_and_layout() -> None:
    """A computed column, WHERE and a filter are equal under other aliases: nothing stored changes."""
    text = "SELECT {0}.id, upper({1}.name) AS loud FROM shop.orders {0} JOIN crm.customers {1} ON {1}.id ="
    text += " {0}.customer_id WHERE {0}.rate > 1 AND ({1}.name <> {0}.code OR {0}.id = 7)"
    one, other = compiled(text.format("o", "c")), compiled(text.format("x", "y"))
    assert one.fingerprint() == other.fingerprint()
    assert one.layout(4).same_shape(other.layout(5))
    louder = compiled(text.format("o", "c").replace("upper", "lower"))
    assert one.fingerprint() != louder.fingerprint()
    typed = compiled(text.format("o", "c").replace("upper(c.name)", "c.rate + 1"))
    assert not one.layout(4).same_shape(typed.layout(4))


SHIFTS = TableId(source="shop", database="shop", table="orders")
SHIFT_COLUMNS = {"id": "int", "t": "time(6)?", "u": "time?", "at": "datetime(6)?", "s": "varchar(9)?"}
SHIFT_COLUMNS |= {"wide": "decimal(50,10)?", "most": "decimal(38,10)?"}


def shifts(column: str) -> Plan:
    """Return the plan of one computed column over a table with times, datetimes and long numbers."""
    made = topology(f"SELECT id, {column} AS x FROM shop.orders")
    return compile_plan(made, made.tables["wide"], {SHIFTS: schema(SHIFTS, SHIFT_COLUMNS)})


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("t > '100:00:00'", {"99:00:00": False, "100:00:00": False, "100:00:00.000001": True, "-838:59:59": False}),
        ("t >= '-1:00:00'", {"-00:59:59.9": True, "-01:00:00": True, "-01:00:00.1": False, "-99:00:00": False}),
        ("t = '9:30'", {"09:30:00": True, "09:30:00.5": False, "-09:30:00": False}),
        ("t <=> NULL", {None: True, "00:00:00": False}),
        ("t < u", {"99:00:00": True, "100:00:00": False}),
        ("t BETWEEN '9:00:00' AND '100:00:00'", {"10:00:00": True, "100:00:00": True, "-10:00:00": False}),
        ("t IN ('9:00:00.50', '0:00:01')", {"09:00:00.5": True, "00:00:01": True, "09:00:00": False}),
        ("greatest(t, u)", {"99:00:00": "100:00:00", "838:59:59": "838:59:59", None: "100:00:00"}),
        ("least(t, u, '9:00')", {"99:00:00": "09:00:00", "-00:00:01.5": "-00:00:01.5", None: "09:00:00"}),
        ("nullif(t, '9:00')", {"09:00:00": None, "90:00:00": "90:00:00"}),
        ("CASE t WHEN '9:00' THEN 1 END", {"09:00:00": 1, "90:00:00": None}),
    ],
)
def test_times_compare_as_durations(text: str, rows: dict[str | None, Canonical]) -> None:
    """TIME is a duration: '99:00:00' is less than '100:00:00' despite its text; also negative ones and fractions."""
    plan, evaluator = shifts(text), Evaluator()
    columns = plan.last.tree.columns
    values: list[Values] = [[{"id": 1, "t": time, "u": "100:00:00"}[name] for name in columns] for time in rows]
    found = [row[-1] for row, _ in evaluator.finish(plan.last.finish, values)]
    evaluator.close()
    assert dict(zip(rows, found, strict=True)) == rows


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("t > 'soon'", "'soon' is no time (query"),
        ("t = s", "time and string in t = s (query"),
        ("wide + 1", "wide is decimal(50,10): expressions have at most 38 digits"),
        ("CASE WHEN wide IS NULL THEN 1 END", "wide is decimal(50,10): expressions have at most 38 digits"),
        ("CAST(wide AS DOUBLE)", "wide is decimal(50,10): expressions have at most 38 digits"),
    ],
)
def test_what_types_do_not_allow_is_refused(text: str, says: str) -> None:
    """It is refused before the start, with line and column: Spark would fail, or compare texts that are no times."""
    with pytest.raises(TopologyError) as raised:
        shifts(text)
    assert says in str(raised.value).replace("shop.orders.", "").replace("orders.", "")
    assert "query line 1, column" in str(raised.value)


def test_numbers_of_more_than_38_digits_pass_as_they_are() -> None:
    """MySQL has decimals of 65 digits: a plain column keeps them all, expressions have Spark's 38."""
    assert str(shifts("wide").outputs[1].type) == "decimal(50,10)"
    assert str(shifts("most + 1").outputs[1].type) == "decimal(38,9)"


@pytest.mark.parametrize(
    ("literal", "moment"),
    [
        ("'2026-01-31 12:00:00+02:00'", "2026-01-31 10:00:00"),
        ("'2026-01-31T00:30:00.5+0100'", "2026-01-30 23:30:00.5"),
        ("'2026-01-31 12:00:00-00:30'", "2026-01-31 12:30:00"),
        ("'2026-01-31 12:00:00Z'", "2026-01-31 12:00:00"),
        ("'2026-01-31 12:00:00'", "2026-01-31 12:00:00"),
        ("TIMESTAMP'2026-01-31 12:00:00+02:00'", "2026-01-31 10:00:00"),
        ("CAST('2026-01-31 12:00:00+02:00' AS TIMESTAMP)", "2026-01-31 10:00:00"),
    ],
)
def test_a_literals_offset_counts(literal: str, moment: str) -> None:
    """A datetime with an offset is converted to UTC, as all columns are."""
    compared = shifts(f"at = {literal}").last.finish.computed[0].sql
    assert f"TIMESTAMP_NTZ'{moment}'" in compared.replace(".500000'", ".5'")


def test_fingerprint_names_what_the_state_depends_on() -> None:
    """A checkpoint may only be continued with an equivalent query."""
    one = compiled(f"SELECT o.id, c.name {FROM} {JOIN}")
    assert one.fingerprint() == compiled(f"SELECT o.id,\n  c.name\n{FROM}\n{JOIN}").fingerprint()
    renamed = "SELECT x.id, y.name FROM shop.orders x LEFT JOIN crm.customers y ON x.customer_id = y.id"
    assert one.fingerprint() == compiled(renamed).fingerprint()
    assert one.fingerprint() != compiled(f"SELECT o.id, c.rate AS name {FROM} {JOIN}").fingerprint()
    assert one.fingerprint() != compiled(f"SELECT o.id, c.name {FROM} {JOIN} WHERE o.id > 0").fingerprint()
