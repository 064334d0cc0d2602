"""Definitions of thousands of tables are held compressed, and read like those that are not."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cdc.model.event import Position
from cdc.model.history import ChangeRecords, SchemaChange, TableState, history_from_records, records
from cdc.model.schema import Column, TableId, TableSchema
from cdc.packed import PackedJson, packed, unpacked

_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(), _VALUES, max_size=4))
def test_a_packed_object_is_equal_to_its_object(value: dict[str, object]) -> None:
    """Fields, order and equality are those of the object, and it is not packed twice."""
    found = packed(value)
    assert found == value
    assert list(found) == list(value)
    assert len(found) == len(value)
    assert dict(found) == unpacked(found) == value
    assert packed(found) is found
    assert all(found[name] == value[name] for name in value)


def test_a_history_is_read_from_packed_and_from_plain_records() -> None:
    """Stored records have not changed: a history is the same, whether its records are read as JSON or packed. All of a
    large change exist one after another only."""
    position = Position(file="f", pos=4, gtid_set="", sequence=1)
    change = SchemaChange(position=position, ddl="", tables=tuple(map(_state, range(3))))
    plain = list(records(change))
    held = ChangeRecords(change)
    assert len(held) == len(plain) == 3
    assert list(held) == plain
    assert held[1] == plain[1]
    assert all(isinstance(state.detail, PackedJson) for state in change.tables)
    assert all(type(value["detail"]) is dict for _, value in plain if value is not None)
    small = [(key, value and packed(value)) for key, value in plain]
    assert history_from_records(small, "s") == history_from_records(plain, "s")


def _state(number: int) -> TableState:
    table = TableId(source="s", database="d", table=f"t{number}")
    columns = (Column(name="id", column_type="int", nullable=False), Column(name="v", column_type="text"))
    schema = TableSchema(table_id=table, version=1, columns=columns, primary_key=("id",))
    return TableState(table_id=table, schema=schema, version=1, detail={"charset": "utf8mb4", "columns": [{"a": 1}]})
