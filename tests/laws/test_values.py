"""Laws of the words: what is encoded is decoded, keys sort as their values do, stored records read back."""

from __future__ import annotations

import base64
import datetime as dt
import struct
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.stored.cells import Barrier, RowCodec, barrier_key, is_barrier, load_barrier, split_keys
from cdc.stored.layout import Layout, LayoutColumn, dump_layout, load_layout
from cdc.stored.values import datetime_of, decoder, encoder, micros_of
from cdc.words.types import Canonical, LogicalType, from_mysql, parse_type

_BITS = {"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "bigint": 64}


def column_types() -> st.SearchStrategy[str]:
    """Every MySQL column type of the table of types."""
    integers = [f"{name}{sign}" for name in _BITS for sign in ("", " unsigned")]
    decimals = st.tuples(st.integers(1, 65), st.integers(0, 30)).map(lambda p: f"decimal({max(p)},{min(p)})")
    others = ["bit(1)", "bit(9)", "float", "double", "date", "datetime(6)", "timestamp", "time(3)", "varchar(9)",
              "text", "json", "enum('a','b')", "set('a')", "binary(3)", "blob", "year"]  # fmt: skip
    return st.sampled_from(integers + others) | decimals


def canonical(column_type: str) -> st.SearchStrategy[Canonical]:
    """Canonical values that a column of the type may hold."""
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
            return st.floats(width=32, allow_nan=False, allow_infinity=False)
        case "float64":
            return st.floats(allow_nan=False, allow_infinity=False)
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


typed_values = column_types().flatmap(lambda t: st.tuples(st.just(t), canonical(t)))


@given(typed_values)
def test_value_survives_its_bytes(typed: tuple[str, Canonical]) -> None:
    """decode(encode(v)) == v for every kind: the table of types is lossless."""
    column_type, value = typed
    type_ = from_mysql(column_type)
    assert decoder(type_)(encoder(type_)(value)) == value


@given(column_types())
def test_type_survives_its_text(column_type: str) -> None:
    """A layout's types read back as they were stored."""
    assert parse_type(str(from_mysql(column_type))) == from_mysql(column_type)


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
    """Golden bytes: HBase's `Bytes.toBytes`, so that other readers of the table agree with us."""
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
    with pytest.raises(ValueError, match="no logical type"):
        from_mysql("geometry")
    assert micros_of(datetime_of(-1)) == -1


def layout(columns: list[str], row_key: tuple[str, ...] = ("c0",)) -> Layout:
    return Layout(
        topology="t",
        table="x",
        id=7,
        family="d",
        columns=tuple(
            LayoutColumn(name=f"c{i}", type=from_mysql(c), origin=f"s.t.c{i}") for i, c in enumerate(columns)
        ),
        row_key=row_key,
        salt_buckets=4,
    )


@given(st.lists(typed_values.flatmap(lambda t: st.tuples(st.just(t[0]), st.none() | st.just(t[1]))), max_size=20))
def test_row_survives_its_cells(columns: list[tuple[str, Canonical]]) -> None:
    """A whole row reads back with NULL apart from empty, and with its batch and time."""
    made = layout(["int"] + [column_type for column_type, _ in columns])
    values: dict[str, Canonical] = {"c0": 1} | {f"c{i + 1}": value for i, (_, value) in enumerate(columns)}
    codec = RowCodec(load_layout(dump_layout(made)))
    row = codec.row(codec.cells(values, batch=3, ts_ms=1_700_000_000_123))
    assert (row.values, row.layout_id, row.batch, row.ts_ms) == (values, 7, 3, 1_700_000_000_123)


@given(st.sampled_from(["int", "bigint unsigned", "varchar(9)", "smallint"]).flatmap(
    lambda t: st.tuples(st.just(t), canonical(t), canonical(t))))  # fmt: skip
def test_keys_sort_as_values_do(case: tuple[str, Canonical, Canonical]) -> None:
    """Within a bucket, rows lie in the order of their keys (texts by UTF-8), and different values never share a key."""
    column_type, a, b = case
    codec = RowCodec(layout([column_type]))
    key_a, key_b = codec.row_key({"c0": a})[1:], codec.row_key({"c0": b})[1:]
    order_a, order_b = (a.encode(), b.encode()) if isinstance(a, str) and isinstance(b, str) else (a, b)
    assert (key_a < key_b) == (order_a < order_b)  # type: ignore[operator]  # both are of one type
    assert (key_a == key_b) == (a == b)


@given(st.text(max_size=5), st.text(max_size=5), st.text(max_size=5), st.text(max_size=5))
def test_composite_keys_are_unambiguous(a: str, b: str, c: str, d: str) -> None:
    """("a", "bc") and ("ab", "c") are different rows."""
    codec = RowCodec(layout(["varchar(9)", "varchar(9)"], ("c0", "c1")))
    assert (codec.row_key({"c0": a, "c1": b}) == codec.row_key({"c0": c, "c1": d})) == ((a, b) == (c, d))


@given(st.integers(0, 254))
def test_no_row_is_a_barrier(number: int) -> None:
    """Barriers sort before their bucket's rows and are never taken for one."""
    key = RowCodec(layout(["int"])).row_key({"c0": number})
    assert not is_barrier(key)
    assert is_barrier(barrier_key(key[0]))
    assert barrier_key(key[0]) < key


def test_barrier_reads_back() -> None:
    """What a barrier says of positions and offsets survives storage; regions split at the salt."""
    ends: tuple[dict[str, dict[int, int]], ...] = (
        {"t.s.d.a": {0: 7, 10: 0}},
        {},
        {"t.s.d.a": {0: 6}, "t.s.d.b": {1: 2}},
    )
    positions = {"shop": {"sequence": 3}}
    barrier = Barrier(bucket=1, buckets=2, batch=9, stamp=5, positions=positions, ends=ends, incomplete=2)
    assert load_barrier(barrier.to_bytes()) == barrier
    former = b'{"format": 1, "bucket": 1, "buckets": 2, "batch": 9, "stamp": 5, "positions": {"shop": {"sequence": 3}}}'
    assert load_barrier(former) == Barrier(bucket=1, buckets=2, batch=9, stamp=5, positions=positions)
    with pytest.raises(ValueError, match="unknown format"):
        load_barrier(former.replace(b'"format": 1', b'"format": 3'))
    assert split_keys(3) == [b"\x01", b"\x02"]


def test_null_in_a_row_key_is_refused() -> None:
    """A row without a key can not be stored; it is refused by the caller."""
    with pytest.raises(ValueError, match="c0 is NULL"):
        RowCodec(layout(["int"])).row_key({"c0": None})


def test_unsigned_fits_its_kind() -> None:
    """Unsigned types take the next wider kind, so that no value is cut."""
    assert from_mysql("int unsigned") == LogicalType(kind="int64")
    assert from_mysql("bigint unsigned") == LogicalType(kind="uint64")
