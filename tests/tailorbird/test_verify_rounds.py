"""Rounds of repeated comparison, and the merge of sorted streams."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.model.errors import Fatal
from tailorbird.verify.findings import MOST_FINDINGS, Finding
from tailorbird.verify.merging import merged
from tailorbird.verify.rounds import AGREES, MOVED, RowObservation, recheck

ROWS = st.dictionaries(st.text("ab0", max_size=3), st.integers(0, 3), max_size=12)


@given(near=ROWS, far=ROWS)
def test_a_merge_names_every_key_once(near: dict[str, int], far: dict[str, int]) -> None:
    """With what each side has of it, in order."""
    found = list(merged(sorted(near.items()), sorted(far.items())))
    assert found == [(key, near.get(key), far.get(key)) for key in sorted({*near, *far})]


def test_a_stream_out_of_order_is_refused() -> None:
    """Otherwise existing rows would be reported as missing."""
    with pytest.raises(Fatal, match="far end are out of order: a after b"):
        list(merged([("a", 1)], [("b", 1), ("a", 1)]))


def finding(key: str) -> Finding:
    return Finding(stage="index", table="t", key={"id": key}, kind="missing", columns={}, position="")


def differs(key: str, evidence: object = "same") -> RowObservation:
    return RowObservation(state="differs", evidence=repr(evidence), finding=finding(key))


def look(keys: Sequence[str], views: dict[str, list[RowObservation]]) -> dict[str, RowObservation]:
    """The next view of each key; the last one again and again."""
    return {key: views[key].pop(0) if len(views[key]) > 1 else views[key][0] for key in keys}


def test_each_row_ends_as_what_its_looks_say() -> None:
    """Different: the same in three consecutive rounds. Moving: it kept changing. Unknown: no cut covered it."""
    views: dict[str, list[RowObservation]] = {
        "right": [differs("right"), differs("right"), AGREES],
        "wrong": [MOVED, differs("wrong", 1), differs("wrong", 2)],
        "moving": [one for n in range(10) for one in (differs("moving"), differs("moving", n), MOVED)],
        "late": [differs("late"), RowObservation(state="uncovered", reason="no cut")],
    }
    pauses: list[int] = []
    result = recheck(list(views), lambda keys: look(keys, views), pause=pauses.append, block=3)
    assert (result.differing, [one.key["id"] for one in result.findings]) == (["wrong"], ["wrong"])
    assert (result.moving, result.reasons) == (1, ("1 row: no cut",))
    assert pauses == [4, 4, 3, 3, 2, 2, 2, 2, 2]


def test_findings_are_bounded_and_all_are_counted() -> None:
    """A million wrong rows are a number, and the first of them by name."""
    keys = [str(n) for n in range(MOST_FINDINGS + 7)]
    result = recheck(keys, lambda some: {key: differs(key) for key in some}, pause=lambda left: None)
    assert (len(result.findings), result.differing) == (MOST_FINDINGS, keys)


def test_nothing_to_look_at_is_no_look() -> None:
    """Equal at first sight costs nothing more."""

    def never(keys: Sequence[str]) -> dict[str, Any]:
        raise AssertionError

    assert recheck([], never, pause=lambda left: None).looks == 0
