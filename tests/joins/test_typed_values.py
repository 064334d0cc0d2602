"""SQL of values that a condition is computed from."""

from __future__ import annotations

from cdc.model.types import LogicalType
from joins.engine.spark_expressions import bound


def test_a_condition_is_next_to_columns_of_every_kind() -> None:
    """All columns of a table are typed for its condition. A vector is none that it can use, but must not end it."""
    vector = LogicalType(kind="list", element=LogicalType(kind="float32"))
    types = (LogicalType(kind="int32"), vector)
    assert bound("{0} <> 2", "v", types) == "try_cast(v[0] AS INT) <> 2"
    assert bound("{1} IS NULL", "v", types) == "from_json(v[1], 'ARRAY<FLOAT>') IS NULL"
