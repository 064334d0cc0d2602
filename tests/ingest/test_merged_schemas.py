"""Merged tables: which tables fit, and what happens to the others, as tables are created, altered and dropped."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from cdc.model.errors import Skippable
from cdc.model.patterns import MergedTable
from cdc.model.schema import Column, TableId, TableSchema
from ingest.events.published import MergedSchemas

MERGED = MergedTable(table_id=TableId(source="s", database="t*", table="orders"))


def schema(database: str, key: str = "id", **columns: str) -> TableSchema:
    made = tuple(Column(name=name, column_type=type_, nullable=name != key) for name, type_ in columns.items())
    return TableSchema(
        table_id=TableId(source="s", database=database, table="orders"), version=1, columns=made, primary_key=(key,)
    )


def why(merged: MergedSchemas, one: TableSchema) -> str:
    try:
        merged.refuse(one)
    except Skippable as error:
        return error.message.partition(": ")[2]
    return ""


def put(merged: MergedSchemas, *schemas: TableSchema) -> None:
    for one in schemas:
        merged.put(one.table_id, one, lambda schema: schema)


def test_most_tables_decide() -> None:
    """A table with another key or type, or without a column, does not fit; one with a further column does. Once most
    are altered, the others do not fit."""
    merged = MergedSchemas([MERGED])
    good = [schema(f"t{n}", id="int", v="int") for n in range(4)]
    odd = {
        schema("ta", id="int"): "it has no column v, which most others have",
        schema("tb", id="int", v="date"): "its column v has type",
        schema("tc", "v", id="int", v="int"): "its key is (v), that of most others is (id)",
        schema("td", id="int", v="int", database_name="int"): "has the name of the merged table's column",
    }
    wider = schema("tw", id="int", v="int", w="int")
    put(merged, *good, *odd, wider)
    assert all(why(merged, one) == "" for one in (*good, wider))
    assert all(reason in why(merged, one) for one, reason in odd.items())
    (found,) = merged.schemas().values()
    assert [column.name for column in found.columns] == ["database_name", "id", "v"]
    assert found.primary_key == ("database_name", "id")
    assert merged.take_changed() == (found,)
    assert merged.take_changed() == ()
    put(merged, *(schema(f"t{n}", id="int", v="bigint") for n in range(4)), schema("tw", id="int", v="bigint"))
    assert why(merged, schema("t1", id="int", v="bigint")) == ""
    assert "its column v has type" in why(merged, schema("tx", id="int", v="int"))


def test_of_two_the_first_by_name_decides() -> None:
    """The result does not depend on the order in which tables appear."""
    one, two = schema("t1", id="int", v="int"), schema("t2", id="int", v="date")
    for order in ((one, two), (two, one)):
        merged = MergedSchemas([MERGED])
        put(merged, *order)
        assert (why(merged, one), why(merged, two) != "") == ("", True)


@pytest.mark.parametrize("seed", range(3))
def test_counts_follow_a_random_life(seed: int) -> None:
    """After any creates, alters and drops, the tables that fit and the merged schema are those that a fresh count of
    the same tables gives, and every table whose fate changed was returned."""
    chance, merged = random.Random(seed), MergedSchemas([MERGED])
    known: dict[TableId, TableSchema] = {}
    fate: dict[TableId, str] = {}
    for _ in range(200):
        columns = {
            "id": "int",
            **{name: chance.choice(["int", "int", "date"]) for name in "vw" if chance.random() < 0.8},
        }
        one = schema(f"t{chance.randrange(6)}", chance.choice(["id", "id", "id", *columns]), **columns)
        gone = chance.random() < 0.3
        named = merged.put(one.table_id, None if gone else one, lambda schema: schema)
        known.pop(one.table_id, None)
        if not gone:
            known[one.table_id] = one
        fresh = MergedSchemas([MERGED])
        put(fresh, *chance.sample(list(known.values()), len(known)))
        assert fresh.schemas() == merged.schemas()
        now = {table: why(merged, schema) for table, schema in known.items()}
        assert now == {table: why(fresh, schema) for table, schema in known.items()}
        changed = {table for table in now if (fate.get(table) or "") != (now[table] or "") and table in fate}
        assert {table for table in changed if bool(fate[table]) != bool(now[table])} <= named
        fate = now
    assert Counter(bool(reason) for reason in fate.values())
