"""Canonical rows and leaves: no two rows share a text, and every process computes the same leaves."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

from cdc.merkle.canonical import RowText, covered
from cdc.merkle.leaves import LeafOf, bounds, grid_of
from cdc.merkle.tree import NOTHING, Leaves, Nodes, delta, differing
from cdc.model.geometry import point_of
from cdc.model.schema import Column, TableId, TableSchema
from cdc.model.types import Canonical


def schema(*columns: str, key: tuple[str, ...] = ("id",)) -> TableSchema:
    """Return a table of `name type` columns."""
    named = [column.partition(" ") for column in columns]
    return TableSchema(
        table_id=TableId(source="s", database="d", table="t"),
        version=1,
        columns=tuple(Column(name=name, column_type=column_type) for name, _, column_type in named),
        primary_key=key,
    )


@pytest.mark.parametrize(
    ("column_type", "value", "part"),
    [
        ("int", -5, "-5"),
        ("bigint unsigned", 2**64 - 1, "18446744073709551615"),
        ("bit(1)", True, "1"),
        ("bit(9)", "AQE=", "257"),
        ("decimal(10,2)", "12.30", "12.30"),
        ("decimal(10,3)", "12.30", "12.300"),
        ("decimal(10,0)", "12.30", "12.30"),
        ("decimal(5,5)", "-0.12345", "-0.12345"),
        ("date", "2017-09-15Z", "2017-09-15"),
        ("datetime", "2017-09-15T10:12:00Z", "2017-09-15 10:12:00"),
        ("datetime(3)", "2017-09-15T10:12:00.5Z", "2017-09-15 10:12:00.500"),
        ("timestamp(6)", "2017-09-15T10:12:00Z", "2017-09-15 10:12:00.000000"),
        ("datetime", "2017-09-15T10:12:00.5Z", "2017-09-15 10:12:00.5"),
        ("time(2)", "-12:30:00", "-12:30:00.00"),
        ("varchar(9)", "a,b", "3:a,b"),
        ("varchar(9)", "héllo", "6:héllo"),
        ("varchar(9)", "", "0:"),
        ("enum('a','b')", "b", "1:b"),
        ("varbinary(9)", "AP8=", "x00FF"),
        ("varbinary(9)", "", "x"),
        ("varbinary(9)", None, ""),
        ("year", 0, "0"),
        ("uuid", "6ccd780c-baba-1026-9564-5b8c656024db", "36:6ccd780c-baba-1026-9564-5b8c656024db"),
        ("point", point_of(1, 2, 4326), "xE61000000101000000000000000000F03F0000000000000040"),
        ("vector(2)", [1.0, -0.5], "x0000803F000000BF"),
    ],
)
def test_each_form(column_type: str, value: Canonical, part: str) -> None:
    """The text of a value is what a database prints of it."""
    what = covered(schema("id int", f"v {column_type}"))
    assert RowText(what.forms)({"id": 1, "v": value}) == f"1,{part}"


@pytest.mark.parametrize("column_type", ["int", "varchar(9)", "date", "datetime(3)", "time", "bit(4)", "blob", "point"])
@pytest.mark.parametrize("value", [7.5, "2032-03-01T00:00:00Z", {"wkb": 1}, [1.0], True])
def test_a_value_of_another_type_is_reported_as_such(column_type: str, value: Any) -> None:
    """An older row may have the value of a former column of this name, whose type was another."""
    text = RowText(covered(schema("id int", f"v {column_type}")).forms)
    with suppress(ValueError):  # any other error would end the ledger
        assert text({"id": 1, "v": value})


def test_left_out_columns_have_a_reason() -> None:
    """Columns that stores print differently are not in a digest, and a table with such a key has none."""
    what = covered(schema("id int", "f float", "d double", "j json", "m varchar(9)", "v int"), masked=["m"])
    assert what.names == ("id", "v")
    assert [name for name, _ in what.left_out] == ["f", "d", "j", "m"]
    assert not what.without_grid
    assert "floating" in covered(schema("f double", key=("f",))).without_grid
    assert covered(schema("v int", key=())).without_grid == "it has no key"


def test_a_column_that_came_later_reads_as_its_default() -> None:
    """A row that was logged before ALTER TABLE … ADD COLUMN has the same hash as its current row in the source."""
    columns = (Column(name="id", column_type="int"), Column(name="n", column_type="int", default=7, default_known=True))
    table = TableSchema(
        table_id=TableId(source="s", database="d", table="t"), version=2, columns=columns, primary_key=("id",)
    )
    text = RowText(covered(table).forms)
    assert text({"id": 1}) == text({"id": 1, "n": 7}) == "1,7"
    assert text.whole({"id": 1})
    assert not RowText(covered(schema("id int", "n int")).forms).whole({"id": 1})


@pytest.mark.parametrize(
    ("column_type", "values"),
    [
        ("bigint", [-(2**63), -1025, -1024, -1, 0, 1023, 1024, 2**63 - 1]),
        ("bigint unsigned", [0, 1023, 1024, 2**64 - 1]),
        ("date", ["0001-01-01Z", "1999-12-31Z", "2000-01-01Z", "9999-12-31Z"]),
        ("datetime(3)", ["0001-01-01T00:00:00Z", "2020-01-01T00:17:03.5Z", "9999-12-31T23:59:59.999Z"]),
    ],
)
def test_leaves_keep_the_order_of_the_key(column_type: str, values: list[Canonical]) -> None:
    """Leaves grow with the key, so that consecutive leaves are one range; each contains its own keys."""
    table = schema(f"id {column_type}")
    leaf, grid = LeafOf(grid_of(table), covered(table)), grid_of(table)
    found = [leaf({"id": value}) for value in values]
    assert found == sorted(found)
    assert 0 <= found[0] <= found[-1] <= grid.last
    assert bounds(grid, 0, grid.last) == ("", "")
    for value, one in zip(values, found, strict=True):
        low, high = bounds(grid, one, one) or ("", "")
        if column_type.startswith("big"):
            assert not low or int(low) <= int(str(value))
            assert not high or int(str(value)) < int(high)
        else:
            text = str(value).replace("T", " ").removesuffix("Z")
            assert not low or low.strip("'") <= text
            assert not high or text < high.strip("'")


def test_a_grid_of_hashes_takes_every_other_key() -> None:
    """Texts, bytes, decimals: the leaf is the beginning of the hash over all columns of the key."""
    table = schema("a varchar(9)", "b int", key=("a", "b"))
    grid = grid_of(table)
    leaf = LeafOf(grid, covered(table))
    assert (grid.kind, bounds(grid, 0, 5)) == ("hash", None)
    assert len({leaf({"a": "x", "b": number}) for number in range(100)}) > 95
    assert all(0 <= leaf({"a": "x", "b": number}) <= grid.last for number in range(100))


def test_inserts_and_deletes_cancel_out_in_a_digest() -> None:
    """Inserted and deleted rows cancel out; an empty leaf is not kept."""
    leaves = Leaves()
    leaves.add(3, delta(None, 10))
    leaves.add(3, delta(10, 12))
    assert leaves[3] == leaves.total() == delta(None, 12) != delta(None, 10)
    leaves.add(3, delta(12, None))
    assert (leaves.digests, leaves[3], bool(NOTHING)) == ({}, NOTHING, False)


def test_narrowing_looks_only_below_what_differs() -> None:
    """One leaf of 65,536 is found by visiting sixteen nodes per level."""
    left, right = Leaves(), Leaves()
    for leaf in range(65_536):
        left.add(leaf, delta(None, leaf + 1))
    right.merge(left)
    right.add(777, delta(778, 5))
    mine, theirs = Nodes(left, 16), Nodes(right, 16)
    assert list(differing(mine, theirs)) == [777]
    assert mine.asked <= 1 + 4 * 16
