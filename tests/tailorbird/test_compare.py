"""The comparison that the demo's exit code rests on: it must see every kind of difference, and no other."""

from __future__ import annotations

import pytest

from tailorbird.verify.compare import Difference, Key, Row, compare, keyed

EXPECTED: list[Row] = [{"id": 1, "a": "x"}, {"id": 2, "a": None}, {"id": 3, "a": "z"}]


def found(*rows: Row) -> dict[Key, Row]:
    return dict(keyed(rows, ("id",)))


@pytest.mark.parametrize(
    ("rows", "counts"),
    [
        (EXPECTED, (0, 0, 0)),
        (EXPECTED[:2], (1, 0, 0)),
        ([*EXPECTED, {"id": 4, "a": "x"}], (0, 1, 0)),
        ([*EXPECTED[:2], {"id": 3, "a": "y"}], (0, 0, 1)),
        ([{"id": 1, "a": "x"}, {"id": 2}, {"id": 3, "a": "z"}], (0, 0, 0)),
        ([{"id": 1, "a": "x"}, {"id": 2, "a": ""}, {"id": 3, "a": "z"}], (0, 0, 1)),
        ([{"id": 1, "a": "x"}, {"id": 2, "a": None, "b": 1}, {"id": 3, "a": "z"}], (0, 0, 1)),
        ([], (3, 0, 0)),
    ],
)
def test_differences_are_counted(rows: list[Row], counts: tuple[int, int, int]) -> None:
    """A missing, an extra, a different row is each seen; an absent field is NULL, and NULL is not empty."""
    difference = compare(found(*EXPECTED), found(*rows))
    assert (difference.missing, difference.extra, difference.different) == counts
    assert difference.none == (counts == (0, 0, 0))
    assert bool(difference.examples) == (counts != (0, 0, 0))


def test_a_boolean_is_no_integer() -> None:
    """True equals 1 in Python, but a column of another type is a difference."""
    assert compare(found({"id": 1, "a": True}), found({"id": 1, "a": 1})).different == 1


def test_lists_are_equal_member_by_member() -> None:
    """Order, number and type of the members count; a list that is absent is none without members."""
    for other in ([2, 1], [1], [True, 2], [], None):
        assert compare(found({"id": 1, "a": [1, 2]}), found({"id": 1, "a": other})).different == 1  # type: ignore[dict-item]  # lists of one type
    assert compare(found({"id": 1, "a": [1, 2]}), found({"id": 1, "a": [1, 2]})).none


def test_a_null_key_is_a_key() -> None:
    """The group of the rows without a value is one like any other."""
    assert compare(found({"id": None, "a": 1}), found({"id": None, "a": 1})).none
    assert compare(found({"id": None, "a": 1}), found({"id": None, "a": 2})).different == 1


def test_differences_of_several_tables_add_up() -> None:
    """A sum is empty only if each part is, and it contains the examples of every part."""
    less, more = compare(found(*EXPECTED), found()), compare(found(), found({"id": 4}))
    both = less + more + Difference()
    assert both.counts() == {"missing": 3, "extra": 1, "different": 0}
    assert both.examples == (*less.examples, "extra (4,)")
    assert (Difference() + Difference()).none


def test_two_rows_of_one_key_are_refused() -> None:
    """A key that two rows share would hide one of them."""
    with pytest.raises(ValueError, match="two rows with the key"):
        keyed([{"id": 1}, {"id": 1}], ("id",))
