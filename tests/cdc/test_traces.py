"""Traces: 8 bytes for each record that a row comes from."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.stored.traces import NOWHERE, GroupCount, Origin, count_entry, entries_of, entry, place_of


@given(st.integers(0, 254), st.integers(0, 4095), st.integers(0, 2**44 - 1), st.integers(0, 255), st.integers(0, 2**48))
def test_what_is_kept_is_reported(node: int, partition: int, offset: int, group: int, rows: int) -> None:
    """Every entry is read back unchanged, in any combination."""
    kept = entry(node, place_of(partition, offset)) + count_entry(group, rows)
    assert list(entries_of(kept)) == [Origin(node, partition, offset), GroupCount(group, min(rows, 2**48 - 1))]


def test_what_has_no_room_is_left_out() -> None:
    """Places that do not fit are omitted rather than stored wrongly."""
    assert place_of(4096, 0) == place_of(0, 2**44) == place_of(-1, 0) == NOWHERE
    assert entry(255, 0) == entry(0, NOWHERE) == b""


def test_other_bytes_are_refused() -> None:
    """A trace with half an entry is refused."""
    with pytest.raises(ValueError, match="7 bytes"):
        list(entries_of(b"1234567"))
