"""Filters at the source: tables, columns and masks."""

from __future__ import annotations

import pytest

from cdc.model.errors import TopologyError
from cdc.model.filters import TableRule, is_captured, mask, shape_of
from cdc.model.schema import TableId
from cdc.topology.reader import read_source, read_topology

RULES = {
    "listed": TableRule(),
    "shortened": TableRule(ignored_columns=("secret",)),
}


def table(name: str, database: str = "d") -> TableId:
    return TableId(source="s", database=database, table=name)


@pytest.mark.parametrize(
    ("policy", "captured"),
    [("drop", {"listed", "shortened"}), ("accept", {"shortened", "other"})],
)
def test_policies_as_a_packet_filter_has_them(policy: str, captured: set[str]) -> None:
    """drop: only the listed tables are captured. accept: all except those listed without options."""
    rules = {table(name): rule for name, rule in RULES.items()}
    found = {
        name
        for name in ("listed", "shortened", "other")
        if is_captured(policy, rules, frozenset({"d"}), table(name))  # type: ignore[arg-type]  # one of the two
    }
    assert found == captured
    assert not is_captured("accept", rules, frozenset({"d"}), table("other", "elsewhere"))


def test_a_list_of_ignored_columns_keeps_the_table_under_accept() -> None:
    """Also an empty list. A table that is listed without it, and without another option, is not captured."""
    text = """{type: mysql, hostname: h, username: u, password: p, database: d, server_id: 1, filter_policy: accept,
      tables: {whole: {ignored_columns: []}, bare: {}, nothing: , masked: {mask: {}}, short: {ignored_columns: [a]}}}"""
    source = read_source(text, name="s", file="f")
    names = ("whole", "bare", "nothing", "masked", "short", "other")
    assert [name for name in names if source.captures(table(name))] == ["whole", "short", "other"]
    assert shape_of(source.rules[table("whole")]) is None


def test_masks_and_ignored_columns() -> None:
    """Ignored columns are absent. Equal values have equal masks, and NULL stays NULL."""
    rule = TableRule(ignored_columns=("a",), masks={"b": "sha256(pepper)", "c": "truncate(2)", "d": "redact"})
    shape = shape_of(rule)
    assert shape is not None
    row: dict[str, object] = {"a": 1, "b": "x@y", "c": 1234, "d": "gone", "e": "kept"}
    shape(row)
    assert row == {"b": mask("sha256(pepper)")("x@y"), "c": "12", "d": "***", "e": "kept"}
    assert row["b"] != mask("sha256(salt)")("x@y")
    empty: dict[str, object] = {"a": None, "b": None, "c": None, "d": None}
    shape(empty)
    assert empty == {"b": None, "c": None, "d": None}
    assert shape_of(TableRule(where="id > 5")) is None


@pytest.mark.parametrize(
    ("kind", "left"),
    [
        ("mysql", {"b": "x", "m": "***"}),
        ("mariadb", {"b": "x", "m": "***"}),
        ("postgresql", {"A": 1, "b": "x", "m": 2}),
    ],
)
def test_columns_are_the_same_in_any_case_unless_the_server_reports_them_apart(
    kind: str, left: dict[str, object]
) -> None:
    """`ignored_columns: [Password]` hides MySQL's column `password`. In PostgreSQL they are two columns."""
    number = "" if kind == "postgresql" else ", server_id: 1"
    text = f"""{{type: {kind}, hostname: h, username: u, password: p, database: d, dbname: x{number},
      tables: {{t: {{ignored_columns: [a], mask: {{M: redact}}}}}}}}"""
    text = text if kind == "postgresql" else text.replace(", dbname: x", "")
    shape = shape_of(read_source(text, name="s", file="f").rules[table("t")])
    assert shape is not None
    row: dict[str, object] = {"A": 1, "b": "x", "m": 2}
    shape(row)
    assert row == left


def test_a_topology_has_options_by_table() -> None:
    """`tables` is a list of names, or a mapping with options for each."""
    text = """
name: t
sources:
  s: {type: mysql, hostname: h, username: u, password: p, database: d, server_id: 1,
      tables: {logs: {}, orders: {}, users: {ignored_columns: [password], mask: {email: sha256(x)}, where: "id > 3"}}}
tables: {w: {query: SELECT o.id FROM s.orders o, row_key: [id]}}
"""
    topology = read_topology(text, file="t.yml", environ={})
    source = topology.sources["s"]
    assert source.rules[table("users")] == TableRule(
        ignored_columns=("password",), masks={"email": "sha256(x)"}, where="id > 3"
    )
    assert [source.captures(table(name)) for name in ("logs", "users", "others")] == [True, True, False]
    assert topology.table_id(("s", "orders")) == table("orders")
    assert topology.table_id(("s", "others")) is None
    text = text.replace("server_id: 1,", "server_id: 1, filter_policy: accept,")
    source = read_topology(text, file="t.yml", environ={}).sources["s"]
    assert [source.captures(table(name)) for name in ("logs", "users", "others")] == [False, True, True]
    with pytest.raises(TopologyError, match="sha256"):
        read_topology(text.replace("sha256(x)", "md5"), file="t.yml", environ={})


@pytest.mark.parametrize("tables", ["", ", tables: []", ", tables: {}"])
def test_accept_without_a_list_captures_all_tables(tables: str) -> None:
    """Without a list, accept captures every table of the database, and none of another database."""
    text = f"""
name: t
sources:
  s: {{type: mysql, hostname: h, username: u, password: p, database: d, server_id: 1, filter_policy: accept{tables}}}
tables: {{w: {{query: SELECT o.id FROM s.orders o, row_key: [id]}}}}
"""
    source = read_topology(text, file="t.yml", environ={}).sources["s"]
    assert source.captures(table("orders"))
    assert not source.captures(table("orders", "elsewhere"))
