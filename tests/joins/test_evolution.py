"""A stored layout follows the changes of the query's result."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cdc.model.errors import UsageError
from cdc.model.types import parse_type
from cdc.stored.layout import Layout, LayoutColumn
from joins.stores.evolution import evolved, places


def layout(id_: int, **columns: str) -> Layout:
    made = tuple(LayoutColumn(name=name, type=parse_type(type_), origin="o") for name, type_ in columns.items())
    return Layout(topology="t", table="wide", id=id_, family="d", columns=made, row_key=("id",), salt_buckets=2)


STORED = layout(4, id="int32", name="string", price="decimal(6,2)")


def test_what_does_not_change_keeps_its_layout() -> None:
    """Under every behavior the same result is written under the same layout; a new table starts with layout 1."""
    for behavior in ("evolve", "lenient", "exception"):
        assert evolved(STORED, replace(STORED, id=1), behavior) is STORED
        assert evolved(None, STORED, behavior).id == 1


def test_that_a_column_is_a_set_is_noted_in_the_layout_that_there_is() -> None:
    """It changes no stored row, so no behavior refuses it and no rebuild is needed."""
    wanted = replace(STORED, id=1, columns=tuple(replace(c, members=c.name == "name") for c in STORED.columns))
    for behavior in ("evolve", "lenient", "exception"):
        noted = evolved(STORED, wanted, behavior)
        assert (noted.id, noted.columns) == (4, wanted.columns)
        assert evolved(noted, wanted, behavior) is noted


def test_evolve_takes_every_change() -> None:
    """Columns are added, dropped and change type under the next id."""
    wanted = layout(1, id="int32", price="string", extra="bool")
    assert evolved(STORED, wanted, "evolve") == replace(wanted, id=5)


def test_lenient_keeps_what_went_and_refuses_other_types() -> None:
    """A dropped column stays, NULL from then on; the new result is stored once and no more."""
    wanted = layout(1, id="int32", extra="bool", name="string")
    kept = evolved(STORED, wanted, "lenient")
    assert [column.name for column in kept.columns] == ["id", "extra", "name", "price"]
    assert kept.id == 5
    assert places(kept, {"id": 0, "extra": 3, "name": 1}) == [0, 3, 1, None]
    assert evolved(kept, wanted, "lenient") is kept
    with pytest.raises(UsageError, match="name was string and is int32"):
        evolved(STORED, layout(1, id="int32", name="int32"), "lenient")
    with pytest.raises(UsageError, match="row_key was id and is id, name"):
        evolved(STORED, replace(STORED, row_key=("id", "name")), "lenient")


def test_exception_names_what_would_change() -> None:
    """Nothing changes, and the error lists what would have."""
    with pytest.raises(UsageError, match=r"price decimal\(6,2\) is dropped; name was string and is bool"):
        evolved(STORED, layout(1, id="int32", name="bool"), "exception")


def test_a_key_that_may_be_null_is_another_key() -> None:
    """Its rows have other keys in HBase, so it needs another layout, which only `evolve` allows."""
    wanted = replace(STORED, id=1, nullable_key=("id",))
    for behavior in ("lenient", "exception"):
        with pytest.raises(UsageError, match="id of the row key may be NULL"):
            evolved(STORED, wanted, behavior)
    nullable = evolved(STORED, wanted, "evolve")
    assert nullable == replace(wanted, id=5)
    assert evolved(nullable, wanted, "exception") is nullable
    with pytest.raises(UsageError, match="id of the row key may no longer be NULL"):
        evolved(nullable, STORED, "lenient")
