"""Mapping of every type to a document, and rows that cannot be mapped."""

from __future__ import annotations

import math
import struct
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cdc.model.errors import Skippable
from cdc.model.types import Canonical, parse_type
from cdc.stored.cells import LAYOUT, Barrier, RowCodec
from cdc.stored.layout import Layout, LayoutColumn, dump_layout, load_layout
from indexer.index.collapse import RowChange
from indexer.index.mapping import (
    Field,
    Mapper,
    Value,
    barrier_document,
    fields_of,
    fitted,
    indexed_row,
    solr_value,
    tombstone,
)

TYPES: dict[str, tuple[Canonical, str, object, str | None, object]] = {
    # type: value, field type, stored, query field type, query value
    "bool": (True, "boolean", True, None, None),
    "int8": (-128, "pint", -128, None, None),
    "int16": (32767, "pint", 32767, None, None),
    "int32": (-(2**31), "pint", -(2**31), None, None),
    "int64": (2**63 - 1, "plong", 2**63 - 1, None, None),
    "uint64": (2**64 - 1, "string", "18446744073709551615", None, None),
    "decimal(38,10)": ("-12345678901234567890.1234567890", "string", "-12345678901234567890.1234567890", "pdouble",
                       -12345678901234567890.1234567890),
    "float32": (1.100000023841858, "pdouble", 1.1, None, None),
    "float64": (0.1, "pdouble", 0.1, None, None),
    "date": ("0999-12-31Z", "string", "0999-12-31", "pdate", "0999-12-31T00:00:00Z"),
    "datetime": ("2026-11-21T10:12:00.123456Z", "string", "2026-11-21T10:12:00.123456Z", "pdate",
                 "2026-11-21T10:12:00.123Z"),
    "timestamp": ("2026-11-21T10:12:00Z", "string", "2026-11-21T10:12:00Z", "pdate", "2026-11-21T10:12:00Z"),
    "time": ("-838:59:59", "string", "-838:59:59", None, None),
    "string": ("<b>é\x00😀", "exact", "<b>é\x00😀", None, None),
    "json": ('{"a": 1}', "stored", '{"a": 1}', None, None),
    "bytes": ("AAH/", "stored", "AAH/", None, None),
    "geometry": ("SRID=3857;LINESTRING(1 2,3 4)", "exact", "SRID=3857;LINESTRING(1 2,3 4)", None, None),
}  # fmt: skip


def layout(**types: str) -> Layout:
    columns = tuple(LayoutColumn(name=n, type=parse_type(t), origin="") for n, t in types.items())
    return Layout(
        topology="t", table="wide", id=3, family="d", columns=columns, row_key=(next(iter(types)),), salt_buckets=2
    )


def change(stored: Layout, **values: Canonical) -> RowChange:
    codec = RowCodec(stored)
    return RowChange(row=b"\x00\x01k", version=42, cells=codec.cells(values, batch=7, ts_ms=1234), deleted=False)


@pytest.mark.parametrize("type_", TYPES)
def test_each_type_has_its_exact_field_and_its_query_field(type_: str) -> None:
    """The stored field has the value as people write it. Queries that it does not support use the query field."""
    value, field_type, stored, query_type, query_value = TYPES[type_]
    one = layout(c=type_)
    wanted = [Field(name="c", type=field_type, stored=True)]
    expected = {"c": stored}
    if query_type is not None:
        wanted.append(Field(name="_q_c", type=query_type, stored=False))
        expected["_q_c"] = query_value
    assert list(fields_of(one, ())) == wanted
    document = Mapper(one, ()).document(change(one, c=value), now_ms=99)
    assert {name: value for name, value in document.items() if name in ("c", "_q_c")} == expected
    stored_alone = Mapper(one, ["c"], queried=False).document(change(one, c=value), now_ms=99)
    assert stored_alone == {name: document[name] for name in document if name != "_q_c"}


@pytest.mark.parametrize(
    ("value", "place"),
    [
        ("SRID=4326;POINT(2.35 48.85)", "48.85,2.35"), ("POINT(-180 0.000001)", "1e-06,-180.0"),
        ("SRID=3857;POINT(1 2)", None), ("POINT(200 100)", None), (None, None),
    ],
)  # fmt: skip
def test_a_point_has_its_place_on_earth(value: str | None, place: str | None) -> None:
    """A location has the latitude first, as in Solr. Coordinates of a plane, and values beyond the earth, have none."""
    one = layout(k="int32", c="point")
    wanted = [Field(name="c", type="exact", stored=True), Field(name="_l_c", type="location", stored=False)]
    assert list(fields_of(one, ()))[1:] == wanted
    document = Mapper(one, ()).document(change(one, k=1, c=value), now_ms=0)
    assert (document.get("c"), document.get("_l_c")) == (value, place)
    assert "_l_c" not in Mapper(one, (), queried=False).document(change(one, k=1, c=value), now_ms=0)


@pytest.mark.parametrize("type_", TYPES)
def test_a_list_has_its_elements_fields_with_many_values(type_: str) -> None:
    """Members of a list are counted, filtered and searched one by one. An empty list is absent, like NULL."""
    value, field_type, stored, query_type, query_value = TYPES[type_]
    one = layout(k="int32", c=f"list<{type_}>")
    wanted = [Field(name="c", type=field_type, stored=True, many=True)]
    expected: dict[str, object] = {"c": [stored, stored], "_t_c": [str(stored), str(stored)]}
    if query_type is not None:
        wanted.append(Field(name="_q_c", type=query_type, stored=False, many=True))
        expected["_q_c"] = [query_value, query_value]
    wanted.append(Field(name="_t_c", type="words", stored=False, many=True))
    assert list(fields_of(one, ["c"]))[1:] == wanted
    mapper = Mapper(one, ["c"])
    row: dict[str, Canonical] = {"k": 1, "c": [value, value]}  # type: ignore[list-item]  # none of them is NULL
    document = mapper.document(change(one, **row), now_ms=0)
    assert {name: document[name] for name in expected} == expected
    stored_alone = Mapper(one, ["c"], queried=False).document(change(one, **row), now_ms=0)
    assert stored_alone == {name: document[name] for name in document if name not in ("_q_c", "_t_c")}
    types = {column.name: column.type for column in one.columns}
    assert indexed_row(types, row) == {"k": 1, "c": expected["c"]}
    nothing: list[Canonical] = [[], None]
    for empty in nothing:
        assert mapper.document(change(one, k=1, c=empty), now_ms=0).keys().isdisjoint({"c", "_q_c", "_t_c"})
        assert indexed_row(types, {"k": 1, "c": empty}) == {"k": 1, "c": None}


@pytest.mark.parametrize(
    ("value", "type_", "many", "held"),
    [
        (7, "exact", False, "7"),
        (7, "exact", True, "7"),
        ([7, 8], "exact", True, ["7", "8"]),
        ([7], "pint", False, 7),
        ([7, 8], "pint", False, None),
        (["7", "x"], "pint", True, None),
        (["2026-11-21T10:12:00Z"], "pdate", True, ["2026-11-21T10:12:00Z"]),
        ([1.5], "pdate", True, None),
    ],
)
def test_a_list_fits_an_older_field_or_is_refused(value: Value, type_: str, many: bool, held: object) -> None:
    """A column that became a list keeps its field until the rebuild: values that do not fit are refused, not cut."""
    if held is None:
        with pytest.raises(ValueError, match=r"values|not a time|invalid"):
            fitted(value, type_, many)
    else:
        assert fitted(value, type_, many) == held


def test_null_is_absent_and_empty_is_not() -> None:
    """SQL's NULL and the empty string stay two values, in every type."""
    one = layout(k="int32", a="string", b="string", d="decimal(4,2)")
    document = Mapper(one, ["a", "b"]).document(change(one, k=1, a="", b=None, d=None), now_ms=99)
    assert document == {
        "_id": "00016b", "_fence": 42, "_kind": "row", "_ts": 1234, "_indexed_at": 99, "_batch": 7, "_layout": 3,
        "k": 1, "a": "", "_t_a": "",
    }  # fmt: skip


def test_a_searched_column_is_found_by_words_too() -> None:
    """`search:` adds an analysed field to the exact one."""
    one = layout(k="int32", name="string")
    assert fields_of(one, ["name"])[-1] == Field(name="_t_name", type="words", stored=False)
    assert Mapper(one, ["name"]).document(change(one, k=1, name="Ada"), now_ms=0)["_t_name"] == "Ada"


def test_members_of_a_set_stand_one_by_one() -> None:
    """A SET stays one text for comparisons, and is counted by member; an empty SET has no members."""
    one = layout(k="int32", tags="string")
    one = replace(one, columns=(one.columns[0], replace(one.columns[1], members=True)))
    assert load_layout(dump_layout(one)) == one
    assert fields_of(one, ())[-1] == Field(name="_m_tags", type="string", stored=False, many=True)
    mapper = Mapper(one, ())
    document = mapper.document(change(one, k=1, tags="new,hot"), now_ms=0)
    assert (document["tags"], document["_m_tags"]) == ("new,hot", ["new", "hot"])
    for value in ("", None):
        assert "_m_tags" not in mapper.document(change(one, k=1, tags=value), now_ms=0)


@pytest.mark.parametrize(("value", "stored"), [(math.nan, "NaN"), (math.inf, "Infinity"), (-math.inf, "-Infinity")])
def test_numbers_that_json_lacks_are_not_lost(value: float, stored: str) -> None:
    """JSON writers turn these numbers into null, which would read as NULL."""
    one = layout(k="float64")
    assert Mapper(one, ()).document(change(one, k=value), now_ms=0)["k"] == stored


@given(st.floats(width=32))
@example(3.4028234663852886e38)
@example(1.401298464324817e-45)
@example(-0.0)
def test_a_float_is_reported_by_its_shortest_number_and_stays_the_same(value: float) -> None:
    """Readers of the index get exactly the same FLOAT, in no more digits than distinguish it from its neighbours."""
    shown = solr_value("float32", value)
    if not math.isfinite(value):
        assert shown in ("NaN", "Infinity", "-Infinity")
        return
    assert isinstance(shown, float)
    assert struct.pack(">f", shown) == struct.pack(">f", value)
    assert len(f"{shown:.9g}") <= len(f"{value:.9g}")


@pytest.mark.parametrize(
    ("cell", "value", "reason"),
    [
        (b"name", None, "cell name of layout 3 is missing"),
        (b"_nulls", None, "cell _nulls of layout 3 is missing"),
        (b"k", b"\x00", "cannot read"),
        (b"name", b"\xff\xfe", "cannot read"),
        (b"_nulls", b"", "cannot read"),
        (b"_ts", b"1", "cannot read"),
    ],
)
def test_cells_that_are_no_row_are_skippable(cell: bytes, value: bytes | None, reason: str) -> None:
    """A row that another program has written in part becomes a dead letter with its reason; the others continue."""
    one = layout(k="int32", name="string")
    cells = dict(change(one, k=1, name="x").cells)
    if value is None:
        del cells[cell]
    else:
        cells[cell] = value
    with pytest.raises(Skippable, match=reason):
        Mapper(one, ()).document(RowChange(row=b"r", version=1, cells=cells, deleted=False), now_ms=0)


def test_tombstone_and_barrier() -> None:
    """A tombstone is a key and a version, so that `_kind:row` hides it. A barrier contains what every query sees."""
    assert tombstone(RowChange(row=b"\x01\x01k", version=43, cells={}, deleted=True)) == {"_id": "01016b", "_fence": 43}
    barrier = Barrier(bucket=1, buckets=2, batch=7, timestamp=1000, positions={"shop": {"sequence": 5}}, incomplete=3)
    assert barrier_document(barrier, 2002, now_ms=99) == {
        "_id": "barrier-1", "_fence": 2002, "_kind": "barrier", "_stamp": 1000, "_batch": 7, "_buckets": 2,
        "_positions": '{"shop":{"sequence":5}}', "_indexed_at": 99,
        "_incomplete": 3,
    }  # fmt: skip


def test_the_layout_cell_is_what_the_document_names() -> None:
    """`_layout` of a document is the layout id in the row, with which its bytes were read."""
    one = layout(k="int32")
    assert change(one, k=1).cells[LAYOUT] == (3).to_bytes(4, "big")
    assert Mapper(one, ()).document(change(one, k=1), now_ms=0)["_layout"] == 3
