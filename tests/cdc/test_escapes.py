"""Names with any characters in Kafka's topics: no two tables share one, ordinary names stay, and topics are read
back."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cdc.model import naming
from cdc.model.escapes import dotted, escaped, meanings, parts_of, table_parts, unescaped
from cdc.model.schema import TableId

# Prefers names that are nearly escapes, dots and quotes.
PIECES = (
    "-",
    "x",
    "0",
    "00",
    "0020",
    "002d",
    "_",
    ".",
    " ",
    "`",
    '"',
    "$",
    "a",
    "A",
    "é",
    "日本",
    "😀",
    "-h",
    "/",
    "%",
)
NAMES = st.one_of(
    st.lists(st.sampled_from(PIECES), min_size=1, max_size=8).map("".join),
    st.text(min_size=1, max_size=64),
    st.sampled_from(("order details", 'bestellung "x"', "日本", "a.b", "a_b", "-x0020-", " x0020-", "-x0020 ")),
)
TABLES = st.builds(TableId, source=st.sampled_from(("shop", "s")), database=NAMES, table=NAMES)


@given(NAMES)
@example("-x0020 ")
@example("-x0020-x0020-")
@example("\ud800")
def test_an_escape_is_read_back(name: str) -> None:
    """`unescaped` is the inverse of `escaped`, so no two names have the same escape."""
    text = escaped(name)
    assert unescaped(text) == name
    assert naming.is_topic(text) or len(text) > 249


@given(TABLES, TABLES)
@example(TableId(source="s", database="a.b", table="c"), TableId(source="s", database="a", table="b.c"))
def test_no_two_tables_have_one_topic(one: TableId, other: TableId) -> None:
    """Names with dots, and names that look like an escape, never collide in a topic, a key or a file."""
    for made in (lambda table: naming.change_topic("top", table), str, naming.file_name):
        assert (made(one) == made(other)) == (one == other)


@given(TABLES)
def test_a_topic_is_read_back(table: TableId) -> None:
    """Kafka accepts every topic, and its table is found again unless its name was shortened."""
    topic = naming.change_topic("top", table)
    assert naming.is_topic(topic)
    found = naming.table_of("top", topic)
    assert found == table or (found is None and len(topic) == 249)


@pytest.mark.parametrize("name", ["orders", "Order_Items-2", "order-x2", "x0020", "_x0020_", "t-x12-y", "a--b"])
def test_ordinary_names_stay(name: str) -> None:
    """Names of letters, digits, `_` and `-` do not change."""
    table = TableId(source="shop", database=name, table=name)
    assert naming.change_topic("demo", table) == f"demo.shop.{name}.{name}"
    assert str(table) == f"shop.{name}.{name}"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("order details", "order-x0020-details"),
        ("日本", "-x65e5672c-"),
        ("a.b", "a-x002e-b"),
        ("-x0020-", "-x002d-x0020-"),
        ('bestellung "x"', "bestellung-x00200022-x-x0022-"),
    ],
)
def test_how_names_are_escaped(name: str, text: str) -> None:
    """The examples of the documentation are right."""
    assert escaped(name) == text


def test_long_names_end_with_a_hash() -> None:
    """64 characters of any script fit Kafka's 249; a hash distinguishes shortened names."""
    tables = [TableId(source="s" * 63, database="日" * 64, table="日" * 63 + end) for end in "ab"]
    first, second = (naming.change_topic("t" * 63, table) for table in tables)
    assert len(first) == len(second) == 249
    assert first != second
    assert naming.is_topic(first)
    assert naming.table_of("t" * 63, first) is None
    # a table whose own topic looks like a shortened one is shortened, too
    twin = TableId(source="s" * 63, database="d" * 88, table=("x" * 249)[: 249 - 64 - 64 - 89 - 34] + "-h" + "0" * 32)
    assert naming.change_topic("t" * 63, twin) != f"{'t' * 63}.{naming.escaped_table(twin)}"


@given(NAMES, NAMES)
def test_dotted_names_are_read_back(database: str, table: str) -> None:
    """Names in keys and signals mean exactly one table."""
    assert parts_of(dotted(database, table)) == (database, table)
    assert table_parts(dotted(database, table), "other") == (database, table)
    assert table_parts(dotted(table), "other") == ("other", table)
    assert (database, table) in meanings(dotted(database, table), "other")


def test_what_a_name_in_a_topology_means() -> None:
    """Quotes are needed for dots alone. Without quotes, the first dot separates database and table."""
    assert table_parts("order details", "d") == ("d", "order details")
    assert table_parts("shop.order details", "d") == ("shop", "order details")
    assert table_parts("`a.b`", "d") == ("d", "a.b")
    assert table_parts('"my.db".t', "d") == ("my.db", "t")
    assert table_parts("a.b.c", "d") == ("a", "b.c")
    assert table_parts("`it``s`.t", "d") == ("it`s", "t")
    assert meanings("a.b.c", "d") == [("d", "a.b.c"), ("a", "b.c"), ("a.b", "c")]
