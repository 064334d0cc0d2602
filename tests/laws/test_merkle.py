"""Digests of random rows: independent of order and of the split into parts, equal rows have equal digests, and a
comparison names exactly the leaves with a planted difference."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from cdc.merkle.canonical import RowText, covered
from cdc.merkle.leaves import LeafOf, grid_of
from cdc.merkle.tree import Digest, Leaves, Nodes, delta, differing
from cdc.model.schema import Column, TableId, TableSchema
from cdc.model.types import Canonical

KEYS: dict[str, st.SearchStrategy[Canonical]] = {
    "int": st.integers(-(2**31), 2**31 - 1),
    "bigint unsigned": st.integers(0, 2**64 - 1),
    "varchar(9)": st.text(),
}
Row = dict[str, Canonical]
texts = st.one_of(st.none(), st.text(alphabet="a,:1é😀", max_size=4))
SCHEMAS = {
    column_type: TableSchema(
        table_id=TableId(source="s", database="d", table="t"),
        version=1,
        columns=(
            Column(name="id", column_type=column_type),
            Column(name="a", column_type="varchar(9)"),
            Column(name="b", column_type="varchar(9)"),
        ),
        primary_key=("id",),
    )
    for column_type in KEYS
}


@st.composite
def tables(draw: st.DrawFn) -> tuple[str, dict[Canonical, Row]]:
    """Generate a table: the type of its key, and its rows by key."""
    kind = draw(st.sampled_from(sorted(KEYS)))
    rows = draw(st.dictionaries(KEYS[kind], st.tuples(texts, texts), max_size=12))
    return kind, {key: {"id": key, "a": a, "b": b} for key, (a, b) in rows.items()}


def leaves_of(kind: str, rows: list[Row]) -> Leaves:
    table, found = SCHEMAS[kind], Leaves()
    what = covered(table)
    text, leaf = RowText(what.forms), LeafOf(grid_of(table), what)
    for row in rows:
        found.add(leaf(row), delta(None, text.hash(row)))
    return found


@given(texts, texts, texts, texts)
def test_no_two_rows_have_one_text(a: str | None, b: str | None, c: str | None, d: str | None) -> None:
    """Commas, colons and digits within texts, empty ones and NULL are distinguished."""
    text = RowText(covered(SCHEMAS["int"]).forms)
    left, right = text({"id": 1, "a": a, "b": b}), text({"id": 1, "a": c, "b": d})
    assert (left == right) == ((a, b) == (c, d))


@given(tables(), st.randoms(use_true_random=False), st.lists(st.tuples(st.integers(0, 11), texts), max_size=20))
def test_the_way_does_not_matter(
    table: tuple[str, dict[Canonical, Row]], random: Random, changes: list[tuple[int, str | None]]
) -> None:
    """Rows are added, changed, deleted and added again in any order: the leaves are those of the existing rows."""
    kind, rows = table
    what = covered(SCHEMAS[kind])
    text, leaf = RowText(what.forms), LeafOf(grid_of(SCHEMAS[kind]), what)
    order = list(rows.values())
    random.shuffle(order)
    found = leaves_of(kind, order)
    for number, value in changes:
        if not rows:
            break
        key = sorted(rows, key=repr)[number % len(rows)]
        old = rows[key]
        if value is None:
            found.add(leaf(old), delta(text.hash(old), None))
            del rows[key]
            continue
        rows[key] = {**old, "a": value}
        found.add(leaf(old), delta(text.hash(old), text.hash(rows[key])))
    assert found.digests == leaves_of(kind, list(rows.values())).digests


@given(tables(), st.randoms(use_true_random=False))
def test_shards_merge(table: tuple[str, dict[Canonical, Row]], random: Random) -> None:
    """Merged from any parts, the leaves are the table's, and so is the root at every level of the tree."""
    kind, rows = table
    shards: list[list[Row]] = [[], [], []]
    for row in rows.values():
        random.choice(shards).append(row)
    merged = Leaves()
    for shard in shards:
        merged.merge(leaves_of(kind, shard))
    whole = leaves_of(kind, list(rows.values()))
    assert merged.digests == whole.digests
    nodes = Nodes(whole, 54)
    assert nodes.node(nodes.height, 0) == whole.total()
    assert sum((nodes.node(nodes.height - 1, child) for child in range(16)), Digest()) == whole.total()


@given(tables(), st.sets(st.integers(0, 11), max_size=4), st.sampled_from(["change", "remove"]))
def test_narrowing_finds_exactly_what_was_planted(
    table: tuple[str, dict[Canonical, Row]], planted: set[int], fault: str
) -> None:
    """A comparison names the leaves of the rows that were changed, or are missing."""
    kind, rows = table
    what = covered(SCHEMAS[kind])
    leaf = LeafOf(grid_of(SCHEMAS[kind]), what)
    left = leaves_of(kind, list(rows.values()))
    hit = {leaf(rows[key]) for number, key in enumerate(sorted(rows, key=repr)) if number in planted}
    other = [
        {**rows[key], "b": f"{rows[key]['b']}!"} if number in planted else rows[key]
        for number, key in enumerate(sorted(rows, key=repr))
        if fault == "change" or number not in planted
    ]
    assert set(differing(Nodes(left, 54), Nodes(leaves_of(kind, other), 54))) == hit
