"""Rows for PostgreSQL, without a server: keys are read back, wrong values are refused, and passwords are not shown."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.model.errors import UsageError
from cdc.model.tls import PostgresServer, Tls, libpq_parameters
from cdc.model.types import Canonical, parse_type
from cdc.stored.cells import RowCodec
from cdc.stored.layout import Layout, LayoutColumn
from joins.runtime.records import Record, RowGone, RowPut
from joins.stores.postgres.pg_relations import relation_name, staging_of, view_name
from joins.stores.postgres.pg_sink import RowTexts, staged_columns
from joins.stores.postgres.relational import column_type, columns_of, to_text
from joins.stores.staged import staged_rows

UNFIT = (ValueError, TypeError, OverflowError, struct.error)
TYPES = ("string", "int8", "int64", "uint64", "bytes", "decimal(9,3)", "date")
LAYOUT = Layout(
    topology="t", table="wide", id=1, family="d", row_key=TYPES, salt_buckets=3, nullable_key=("string", "int64"),
    columns=tuple(LayoutColumn(name=one, type=parse_type(one), origin="") for one in TYPES),
)  # fmt: skip


@given(
    st.tuples(
        st.none()
        | st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
        | st.sampled_from(["\0", "\0\0", "a\0ÿ"]),
        st.integers(-128, 127),
        st.none() | st.integers(-(2**63), 2**63 - 1),
        st.integers(0, 2**64 - 1),
        st.sampled_from(["", "AAA=", "AP8A"]),
        st.sampled_from(["0.000", "-1.500", "999999.999"]),
        st.sampled_from(["0001-01-01Z", "1970-01-01Z"]),
    )
)
def test_the_values_of_a_row_key_are_read_back(values: tuple[Canonical, ...]) -> None:
    """`verify` and its repair find a row in PostgreSQL by its row key, also with NULLs and zero bytes in it."""
    codec, row = RowCodec(LAYOUT), dict(zip(TYPES, values, strict=True))
    assert codec.key_values(codec.row_key(row)) == row


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        ("int32", 2**31), ("int32", "1"), ("int32", True), ("decimal(6,2)", "1.555"), ("decimal(6,2)", 1.5),
        ("float32", 1e39), ("float64", "x"), ("date", "2024-02-30Z"), ("datetime", "2024-01-01 00:00:00"),
        ("time", "1 day"), ("string", "a\0b"), ("string", 7), ("bytes", "no base64!"), ("list<int8>", [1, None]),
        ("list<int8>", [300]),
    ],
)  # fmt: skip
def test_a_value_that_is_not_of_its_type_is_refused(type_: str, value: Canonical) -> None:
    """PostgreSQL would round or convert some of them; every sink refuses them."""
    with pytest.raises(UNFIT):
        to_text(parse_type(type_))(value)


def test_rows_that_do_not_fit_are_refused_alone() -> None:
    """The rest of a batch is staged: whole rows, and the keys of deleted ones."""
    layout = replace(LAYOUT, row_key=("int8",), nullable_key=())
    values: list[Canonical] = ["x", 1, None, 5, "", "1.500", "1970-01-01Z"]
    records: list[Record] = [RowPut(values, 9, b"t"), RowPut(["x", 300, *values[2:]], 9), RowGone([2]), RowGone([None])]
    found = staged_rows(records, layout, RowTexts(layout, attempt=4))
    assert [row.form for row in found.rows] == [
        ("x", "1", None, "5", "\\x", "1.500", "1970-01-01", "9", "\\x74", "4", "f"),
        (None, "2", None, None, None, None, None, "0", "\\x", "4", "t"),
    ]
    assert len(found.refused) == 1
    assert len(staged_columns(layout)) == len(found.rows[0].form)


@pytest.mark.parametrize("name", ["ctid", "_from", "x" * 64, "é" * 32])
def test_a_column_that_postgresql_cannot_have_is_refused(name: str) -> None:
    """A long name would be cut, and two columns could become one."""
    column = LayoutColumn(name=name, type=parse_type("int8"), origin="")
    with pytest.raises(UsageError, match="give it another name in the query"):
        columns_of(replace(LAYOUT, columns=(*LAYOUT.columns, column)))


def test_names_fit_and_texts_in_keys_compare_by_bytes() -> None:
    """PostgreSQL cuts names at 63 bytes without an error; a key must not depend on a collation of the system."""
    relation = relation_name("x" * 63 + ".v12", "1b4e28ba-2fa1-11d2-883f-0016d3cca427")
    assert len(staging_of(relation)) <= 63
    assert (view_name("orders.v2"), view_name("orders")) == ("orders", "orders")
    assert column_type(parse_type("string"), in_key=True) == 'text COLLATE "C"'
    assert column_type(parse_type("json"), in_key=True) == 'text COLLATE "C"'
    assert column_type(parse_type("list<decimal(6,2)>")) == "numeric(6,2)[]"


def test_a_password_is_not_shown_and_not_sent_in_clear() -> None:
    """Neither a log line nor an error shows it, and a server that proves nothing does not get it in clear."""
    server = PostgresServer(
        hostname="db.example", port=5432, username="u", password="s3cret", dbname="d", schema="s",
        tls=Tls(mode="required"),
    )  # fmt: skip
    assert "s3cret" not in f"{server} {server!r}"
    assert libpq_parameters(server.tls, server.hostname) == {"sslmode": "require", "require_auth": "!password"}
    assert libpq_parameters(Tls(mode="verify_identity"), "db.example")["sslrootcert"] == "system"
