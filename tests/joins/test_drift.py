"""A table's successive schemas determine what its log can hold, and what happened to the columns of a query."""

from __future__ import annotations

from dataclasses import replace

from cdc.model.schema import Column, TableId, TableSchema
from cdc.model.types import Canonical
from joins.query.drift import default_of, drifts, remembering
from joins.query.plan import Plan
from joins.select.compiler import compile_plan
from tests.joins.joincase import Case

TABLE = TableId(source="shop", database="shop", table="t")
OTHER = TableId(source="shop", database="shop", table="d")


def schema(defaults: dict[str, Canonical] | None = None, /, **columns: str) -> TableSchema:
    known = defaults or {}
    made = tuple(
        Column(name=n, column_type=t, default=known.get(n), default_known=n in known) for n, t in columns.items()
    )
    return TableSchema(table_id=TABLE, version=1, columns=made, primary_key=("id",))


def plan(query: str, table: TableSchema) -> Plan:
    case = Case(
        tables={"shop.t": {"key": ["id"], "id": "int"}, "shop.d": {"key": ["id"], "id": "int", "name": "text"}},
        query=query,
        row_key=["id"],
        history=[],
    )
    topology = case.topology()
    return compile_plan(topology, topology.tables["wide"], {**case.schemas(), TABLE: table})


def test_columns_that_went_stand_where_they_stood() -> None:
    """A plan reads them in the same order as before, so its state stays valid; `*` does not include them."""
    first = schema(id="int", a="int", b="int", c="int", d="int")
    newest = remembering([first, schema(id="int", a="bigint", c="int", d="int"), schema(id="int", d="int", e="int")])
    assert newest.places() == ("id", "a", "b", "c", "d", "e")
    assert newest.column("a") == Column(name="a", column_type="bigint")
    assert [column.name for column in newest.columns] == ["id", "d", "e"]
    query = "SELECT id, d, b, a FROM shop.t"
    assert plan(query, newest).fingerprint() == plan(query, replace(first, columns=(*first.columns[:1], Column(
        name="a", column_type="bigint"), *first.columns[2:]))).fingerprint()  # fmt: skip
    assert [o.name for o in plan("SELECT * FROM shop.t", newest).outputs] == ["id", "d", "e"]


def test_a_default_is_the_one_with_which_the_column_came() -> None:
    """Older rows have that default; it is converted to the column's current type."""
    versions = [
        schema({"a": 1}, id="int", a="int"),
        schema(id="int"),
        schema({"a": 5}, id="int", a="int"),
        schema({"a": "9.00"}, id="int", a="decimal(6,2)"),
    ]
    assert default_of(remembering(versions), "a") == "5.00"
    assert default_of(remembering(versions[3:]), "a") == "9.00"
    assert default_of(remembering(versions[:2]), "a") is None
    assert default_of(schema(id="int", a="int"), "a") is None
    assert default_of(schema({"a": "x"}, id="int", a="int"), "a") is None


def test_what_drifts_is_reported() -> None:
    """Warnings name what reads as NULL, what may not convert, and what repairs it; nothing else is reported."""
    first = schema(id="int", name="text", price="decimal(4,2)", d_id="int", unused="int")
    query = "SELECT t.id, t.name, t.price, d.name AS of FROM shop.t t JOIN shop.d d ON d.id = t.d_id"
    known = plan(query, first)
    assert drifts(known, {TABLE: first}) == []
    assert drifts(known, {}) == []
    dropped = schema(id="int", price="decimal(4,2)", d_id="int")
    assert drifts(known, {TABLE: dropped}) == ["shop.shop.t has no column name any more: it reads as NULL"]
    (reported,) = drifts(known, {TABLE: schema(id="int", name="text", price="decimal(4,2)")})
    assert reported.startswith("shop.shop.t has no column d_id any more")
    assert "`tailorbird snapshot`" in reported
    (reported,) = drifts(known, {TABLE: schema(id="int", name="text", price="decimal(8,3)", d_id="int")})
    assert reported.startswith("shop.shop.t.price was decimal(4,2) and is decimal(8,3): ")
    assert "--rebuild" in reported
    (reported,) = drifts(known, {TABLE: schema(key="int", name="text", price="decimal(4,2)", d_id="int")})
    assert "part of its key" in reported


def test_a_column_in_the_place_of_another_may_be_that_one() -> None:
    """No schema shows whether a column was renamed. Older records would read as its default, so a warning is shown."""
    renamed = remembering([schema(id="int", name="text", n="int"), schema(id="int", title="text", n="int")])
    (reported,) = drifts(plan("SELECT id, title FROM shop.t", renamed), {TABLE: renamed})
    assert reported.startswith("shop.shop.t.title replaced name")
    assert drifts(plan("SELECT id, n FROM shop.t", renamed), {TABLE: renamed}) == []
    retyped = remembering([schema(id="int", name="text"), schema(id="int", title="int")])
    assert drifts(plan("SELECT id, title FROM shop.t", retyped), {TABLE: retyped}) == []
