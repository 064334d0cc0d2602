"""The immutable mapping whose copies share memory: it behaves like a dict, and old copies never change."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.persistent import PersistentMap, changed_keys, persistent
from tests.support.work import measured


class Clash(int):
    """A key of which many have the same hash. It must not equal an int, which has another one."""

    def __hash__(self) -> int:
        return int(self) % 3

    def __add__(self, other: int) -> Clash:
        return Clash(int(self) + other)


keys = st.integers(0, 300) | st.integers(1000, 1060).map(Clash)
steps = st.lists(st.tuples(st.sampled_from(["put", "without", "updated"]), keys, st.integers()), max_size=200)


@given(steps)
def test_it_is_a_dict_whose_old_copies_stay(found: list[tuple[str, int, int]]) -> None:
    """After any steps each copy has the items that a dict had at that step, and names what changed since."""
    copies: list[tuple[PersistentMap[int, int], dict[int, int]]] = [(PersistentMap(), {})]
    for what, key, value in found:
        now, known = copies[-1][0], dict(copies[-1][1])
        if what == "put":
            now, known[key] = now.put(key, value), value
        elif what == "updated":
            now, known = now.updated({key: value, key + 1: value}), known | {key: value, key + 1: value}
        else:
            now = now.without(key)
            known.pop(key, None)
        copies.append((now, known))
    for now, known in copies:
        assert now == known
        assert (len(now), bool(now), set(now), dict(now)) == (len(known), bool(known), set(known), known)
    (now, known), (then, before) = copies[-1], copies[len(copies) // 2]
    differing = {key for key in {*known, *before} if known.get(key) != before.get(key)}
    assert differing <= changed_keys(then, now)
    assert changed_keys(now, now) == set()
    assert differing <= changed_keys(before, now)


def test_a_change_costs_the_same_however_many_keys_there_are() -> None:
    """It copies a few nodes, and a comparison looks only at these."""
    lines = []
    for count in (100, 20_000):
        now = persistent({f"t{number}": number for number in range(count)})
        with measured() as work:
            after = now.put("t7", -1).without("t8")
            assert changed_keys(now, after) == {"t7", "t8"}
        lines.append(work.lines)
        assert work.bytes < 12_000
    assert lines[1] <= 4 * lines[0]


def test_missing_keys_and_equality() -> None:
    """It raises KeyError like a dict, and is equal to any mapping with the same items."""
    with pytest.raises(KeyError):
        PersistentMap({"a": 1})["b"]
    assert PersistentMap({"a": 1}) == {"a": 1} != PersistentMap()
    assert persistent(made := PersistentMap({"a": 1})) is made
