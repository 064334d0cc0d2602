"""Properties of encodings: encoded values decode, keys sort as their values do, stored records read back."""

from __future__ import annotations

import base64
import datetime as dt
import struct
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.model.types import Canonical, LogicalType, float_of, from_mysql, list_of, parse_type
from cdc.stored.cells import Barrier, RowCodec, barrier_key, is_barrier, load_barrier, split_keys
from cdc.stored.layout import Layout, LayoutColumn, dump_layout, load_layout
from cdc.stored.values import datetime_of, decoder, encoder, micros_of

_BITS = {"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "bigint": 64}


def column_types() -> st.SearchStrategy[str]:
    """Generate every MySQL column type of the table of types."""
    integers = [f"{name}{sign}" for name in _BITS for sign in ("", " unsigned")]
    decimals = st.tuples(st.integers(1, 65), st.integers(0, 30)).map(lambda p: f"decimal({max(p)},{min(p)})")
    others = ["bit(1)", "bit(9)", "float", "double", "date", "datetime(6)", "timestamp", "time(3)", "varchar(9)",
              "text", "json", "uuid", "inet4", "inet6", "point", "multipolygon", "enum('a','b')", "set('a')",
              "binary(3)", "blob", "year"]  # fmt: skip
    return st.sampled_from(integers + others) | decimals


def canonical(column_type: str) -> st.SearchStrategy[Canonical]:
    """Generate canonical values that a column of the type may hold."""
    base = column_type.split("(")[0].split(" ")[0]
    if base in _BITS:
        bits, unsigned = _BITS[base], "unsigned" in column_type
        return st.integers(0, 2**bits - 1) if unsigned else st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    kind = from_mysql(column_type)
    match kind.kind:
        case "decimal":
            limit = 10**kind.precision - 1
            return st.integers(-limit, limit).map(lambda n: f"{Decimal(n).scaleb(-kind.scale):.{kind.scale}f}")
        case "float32":
            return st.floats(width=32).map(float_of)
        case "float64":
            return st.floats().map(float_of)
        case "bool":
            return st.booleans()
        case "date":
            return st.dates(dt.date(1000, 1, 1)).map(lambda d: d.isoformat() + "Z")
        case "datetime" | "timestamp":
            micro = dt.timedelta(microseconds=1)
            return st.datetimes(dt.datetime(1000, 1, 1)).map(
                lambda d: datetime_of((d - dt.datetime(1970, 1, 1)) // micro)
            )
        case "bytes":
            return st.binary(max_size=40).map(lambda b: base64.b64encode(b).decode())
        case "int32":
            return st.integers(1901, 2155)
        case _:
            return st.text(max_size=40)


typed_values = column_types().flatmap(lambda t: st.tuples(st.just(from_mysql(t)), canonical(t)))
typed_lists = column_types().flatmap(
    lambda t: st.tuples(st.just(list_of(from_mysql(t))), st.lists(canonical(t), max_size=5))
)


@given(typed_values | typed_lists)
def test_value_survives_its_bytes(typed: tuple[LogicalType, Canonical]) -> None:
    """decode(encode(v)) == v for every kind, and for lists of it: the table of types is lossless."""
    type_, value = typed
    assert decoder(type_)(encoder(type_)(value)) == value


@given(typed_values | typed_lists)
def test_type_survives_its_text(typed: tuple[LogicalType, Canonical]) -> None:
    """A layout's types read back as they were stored."""
    assert parse_type(str(typed[0])) == typed[0]


@pytest.mark.parametrize("text", ["list", "list<>", "list<decimal>", "list<list<int32>>", "list<int32> ", "decimal"])
def test_a_type_that_there_is_not_is_refused(text: str) -> None:
    """A layout of a later version is not misread."""
    with pytest.raises(ValueError, match="not a logical type"):
        parse_type(text)


@pytest.mark.parametrize("stored", ["000000", "0000000161000000", "00000002" + "61", "ffffffff", "00000001ff"])
def test_bytes_that_are_no_list_are_refused(stored: str) -> None:
    """Truncated or invalid bytes cause an error, never fewer members."""
    with pytest.raises((ValueError, struct.error)):
        decoder(parse_type("list<string>"))(bytes.fromhex(stored))


@pytest.mark.parametrize(
    ("kind", "value", "stored"),
    [
        ("int", 1, "00000001"),
        ("bigint", -2, "fffffffffffffffe"),
        ("varchar(9)", "né", "6ec3a9"),
        ("decimal(10,2)", "-0.05", "00000002fb"),
        ("decimal(10,2)", "1.28", "000000020080"),
        ("double", 1.0, "3ff0000000000000"),
        ("bit(1)", True, "ff"),
        ("date", "1970-01-02Z", "00000001"),
        ("datetime(6)", "1970-01-01T00:00:01.5Z", "000000000016e360"),
    ],
)
def test_bytes_are_those_of_hbase(kind: str, value: Canonical, stored: str) -> None:
    """Golden bytes: HBase's `Bytes.toBytes`, so that other readers of the table agree."""
    assert encoder(from_mysql(kind))(value).hex() == stored


def test_wrong_value_is_refused() -> None:
    """A value of another type is an error, never a guess."""
    wrong: list[tuple[str, Canonical]] = [
        ("int", "1"),
        ("decimal(9,2)", "1.005"),
        ("datetime", "2020-01-01T00:00:00"),
        ("text", 1),
    ]
    for column_type, value in wrong:
        with pytest.raises((ValueError, struct.error)):
            encoder(from_mysql(column_type))(value)
    lists: list[Any] = ["a", ["a", None], ["a", 1], [["a"]], {"a": 1}]
    for no_texts in lists:
        with pytest.raises(ValueError, match="is not a"):
            encoder(parse_type("list<string>"))(no_texts)
    with pytest.raises(ValueError, match="no logical type"):
        from_mysql("xmltype")
    assert micros_of(datetime_of(-1)) == -1


def layout(
    columns: Sequence[str | LogicalType], row_key: tuple[str, ...] = ("c0",), nullable_key: tuple[str, ...] = ()
) -> Layout:
    types = [from_mysql(one) if isinstance(one, str) else one for one in columns]
    return Layout(
        topology="t",
        table="x",
        id=7,
        family="d",
        columns=tuple(LayoutColumn(name=f"c{i}", type=type_, origin=f"s.t.c{i}") for i, type_ in enumerate(types)),
        row_key=row_key,
        salt_buckets=4,
        nullable_key=nullable_key,
    )


@given(
    st.lists(
        (typed_values | typed_lists).flatmap(lambda t: st.tuples(st.just(t[0]), st.none() | st.just(t[1]))), max_size=20
    )
)
def test_row_survives_its_cells(columns: list[tuple[LogicalType, Canonical]]) -> None:
    """A whole row reads back, with NULL distinguished from empty, and with its batch and time."""
    made = layout(["int", *(type_ for type_, _ in columns)])
    values: dict[str, Canonical] = {"c0": 1} | {f"c{i + 1}": value for i, (_, value) in enumerate(columns)}
    codec = RowCodec(load_layout(dump_layout(made)))
    row = codec.row(codec.cells(values, batch=3, ts_ms=1_700_000_000_123))
    assert (row.values, row.layout_id, row.batch, row.ts_ms) == (values, 7, 3, 1_700_000_000_123)


def order(value: Canonical) -> tuple[bool, Any]:
    """Return the sort key of NULL, integers and texts: NULL first, texts by UTF-8."""
    return value is not None, value.encode() if isinstance(value, str) else value or 0


@st.composite
def keys(draw: st.DrawFn) -> tuple[Layout, list[Canonical], list[Canonical]]:
    """Generate a layout of one to three key columns, some nullable, and two of its keys."""
    types = draw(
        st.lists(st.sampled_from(["int", "bigint unsigned", "varchar(9)", "smallint"]), min_size=1, max_size=3)
    )
    nullable = [draw(st.booleans()) for _ in types]
    names = tuple(f"c{i}" for i in range(len(types)))
    made = layout(types, names, tuple(name for name, null in zip(names, nullable, strict=True) if null))
    values = [st.none() | canonical(t) if null else canonical(t) for t, null in zip(types, nullable, strict=True)]
    first = [draw(value) for value in values]
    # with common prefixes more often than by chance
    second = [draw(st.just(a) | value) for a, value in zip(first, values, strict=True)]
    return made, first, second


@given(keys())
def test_keys_sort_as_values_do(case: tuple[Layout, list[Canonical], list[Canonical]]) -> None:
    """Within a bucket, rows are in the order of their keys, NULL first, and different values never share a key."""
    made, a, b = case
    codec = RowCodec(load_layout(dump_layout(made)))
    key_a, key_b = (codec.row_key(dict(zip(made.row_key, values, strict=True)))[1:] for values in (a, b))
    assert (key_a < key_b) == (list(map(order, a)) < list(map(order, b)))
    assert (key_a == key_b) == (a == b)
    assert not key_a.startswith(key_b) or key_a == key_b, "a key is a prefix of another"
    assert not is_barrier(b"\x00" + key_a)


@given(st.text(max_size=5), st.text(max_size=5), st.text(max_size=5), st.text(max_size=5))
def test_composite_keys_are_unambiguous(a: str, b: str, c: str, d: str) -> None:
    """("a", "bc") and ("ab", "c") are different rows."""
    codec = RowCodec(layout(["varchar(9)", "varchar(9)"], ("c0", "c1")))
    assert (codec.row_key({"c0": a, "c1": b}) == codec.row_key({"c0": c, "c1": d})) == ((a, b) == (c, d))


@given(st.integers(0, 254))
def test_no_row_is_a_barrier(number: int) -> None:
    """Barriers sort before their bucket's rows and are never mistaken for one."""
    key = RowCodec(layout(["int"])).row_key({"c0": number})
    assert not is_barrier(key)
    assert is_barrier(barrier_key(key[0]))
    assert barrier_key(key[0]) < key


def test_barrier_reads_back() -> None:
    """A barrier's positions and offsets survive storage; regions split at the salt."""
    ends: tuple[dict[str, dict[int, int]], ...] = (
        {"t.s.d.a": {0: 7, 10: 0}},
        {},
        {"t.s.d.a": {0: 6}, "t.s.d.b": {1: 2}},
    )
    positions = {"shop": {"sequence": 3}}
    barrier = Barrier(bucket=1, buckets=2, batch=9, timestamp=5, positions=positions, ends=ends, incomplete=2)
    assert load_barrier(barrier.to_bytes()) == barrier
    former = b'{"format": 1, "bucket": 1, "buckets": 2, "batch": 9, "stamp": 5, "positions": {"shop": {"sequence": 3}}}'
    assert load_barrier(former) == Barrier(bucket=1, buckets=2, batch=9, timestamp=5, positions=positions)
    with pytest.raises(ValueError, match="unknown format"):
        load_barrier(former.replace(b'"format": 1', b'"format": 3'))
    assert split_keys(3) == [b"\x01", b"\x02"]


def test_null_in_a_row_key_is_refused() -> None:
    """A row without a key cannot be stored; the caller refuses it. So is NULL, if another key column allows it."""
    with pytest.raises(ValueError, match="c0 is NULL"):
        RowCodec(layout(["int"])).row_key({"c0": None})
    with pytest.raises(ValueError, match="c0 is NULL"):
        RowCodec(layout(["int", "int"], ("c0", "c1"), ("c1",))).row_key({"c0": None, "c1": None})


def test_a_key_that_hbase_does_not_take_is_refused() -> None:
    """It costs the row, not the batch, which HBase would refuse permanently."""
    codec = RowCodec(layout(["text"]))
    assert len(codec.row_key({"c0": "x" * 32_763})) == 32_767
    with pytest.raises(ValueError, match="row key of 32768 bytes, the store takes 32767"):
        codec.row_key({"c0": "x" * 32_764})


def test_what_can_not_be_null_is_stored_as_ever() -> None:
    """Golden bytes of a table from before keys allowed NULL: its layout's record and its rows' keys stay the same."""
    former = layout(["int", "varchar(9)"], ("c0", "c1"))
    assert dump_layout(former) == (
        b'{"format":1,"topology":"t","table":"x","id":7,"family":"d","columns":[{"name":"c0","type":"int32",'
        b'"origin":"s.t.c0"},{"name":"c1","type":"string","origin":"s.t.c1"}],"row_key":["c0","c1"],"salt_buckets":4}'
    )
    assert RowCodec(former).row_key({"c0": 17, "c1": "a"}).hex() == "000180000011610000"
    nullable = layout(["int", "varchar(9)"], ("c0", "c1"), ("c1",))
    assert RowCodec(nullable).row_key({"c0": 17, "c1": "a"})[1:].hex() == "018000001101610000"
    assert b'"format":2' in dump_layout(nullable)
    with pytest.raises(ValueError, match="reads up to format 2"):
        load_layout(dump_layout(nullable).replace(b'"format":2', b'"format":3'))


def test_unsigned_fits_its_kind() -> None:
    """Unsigned types use the next wider kind, so that no value is truncated."""
    assert from_mysql("int unsigned") == LogicalType(kind="int64")
    assert from_mysql("bigint unsigned") == LogicalType(kind="uint64")
